#include "pipeline/coordinator/steps/report_intake.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/limits.h"
#include "base/log.h"
#include "base/marks.h"
#include "base/printable.h"
#include "pipeline/protocol/message_kinds.h"

namespace swarmline {

void ReportIntake::on_report(const wire::Report& report) {
  const Seat seat = from_wire(report.seat());
  const Phase phase = from_wire(report.phase());
  const std::uint32_t leasable = ledger_.leasable(phase);
  wire::ReportAck ack;
  *ack.mutable_phase() = report.phase();
  for (const wire::Contribution& contribution : report.contributions()) {
    const Verdict verdict =
        ledger_.report(phase, seat.stage, contribution.index(), seat,
                       Attempt{contribution.attempt()}, PeerId{contribution.through()});
    if (verdict == Verdict::kRefused) {
      SWARMLINE_MARK("report_intake.refused");
      ack.add_refused(contribution.index());
      continue;
    }
    ack.add_accepted(contribution.index());
    if (verdict == Verdict::kAccepted && !failures_.empty())
      note_computed({phase, contribution.index()}, seat);
    if (verdict == Verdict::kAccepted && shape_.is_last(seat.stage))
      ledger_.record_loss(phase, contribution.index(), contribution.loss_sum());
  }
  outbox_.send(seat, make_frame(MessageKind::kReportAck, ack));
  progress_ = true;
  // What a lost peer may have had is missing now that no sender holds it.
  if (ledger_.leasable(phase) > leasable) leases_.wake();
}

void ReportIntake::on_claim(const Seat& seat, const Frame& frame,
                            const RpcChannel::Respond& respond) {
  auto claim = parse<wire::Claim>(frame);
  if (!claim) return outbox_.respond(respond, std::unexpected(claim.error()));
  const Seat claimer = from_wire(claim->seat());
  const AttemptId id = from_wire(claim->id());
  const bool granted =
      id.attempt.value != 0 && claimer == seat && members_.serves(seat) &&
      ledger_.claim(id.microbatch.phase, seat.stage, id.microbatch.index, seat, id.attempt);
  if (!granted) SWARMLINE_MARK("report_intake.claim_refused");
  wire::ClaimReply reply;
  reply.set_granted(granted);
  outbox_.respond(respond, make_frame(MessageKind::kClaimReply, reply));
}

void ReportIntake::on_release_claim(const wire::ReleaseClaim& release) {
  SWARMLINE_MARK("report_intake.claim_released");
  const Seat seat = from_wire(release.seat());
  const AttemptId id = from_wire(release.id());
  ledger_.release_claim(id.microbatch.phase, seat.stage, id.microbatch.index, seat, id.attempt);
  leases_.wake();
}

void ReportIntake::on_compute_failed(const wire::ComputeFailed& failed) {
  const Seat seat = from_wire(failed.seat());
  const AttemptId id = from_wire(failed.id());
  const Phase phase = id.microbatch.phase;
  if (!ledger_.is_open(phase) || id.microbatch.index >= ledger_.indices(phase)) return;
  const std::uint32_t peers = ledger_.report_failure(phase, id.microbatch.index, seat.peer);
  std::vector<std::string> whats{fmt::format("{}: {}", called(seat, members_.name_of(seat.peer)),
                                             printable(failed.what(), kFailureBytesMax))};
  if (failures_.size() < kFailedMicrobatchesMax || failures_.contains(id.microbatch)) {
    Failures& failures = failures_[id.microbatch];
    failures.seats.insert(seat);
    if (failures.whats.size() < kFailuresKept) failures.whats.push_back(whats.front());
    whats = failures.whats;
  }
  if (peers >= failures_to_stop_at(seat.stage)) {
    SWARMLINE_MARK("report_intake.poison");
    std::string errors;
    for (const std::string& what : whats) errors += "; " + what;
    return rulings_.fail_run(
        fmt::format("{} failed on {} peers{}", to_string(id.microbatch), peers, errors));
  }
  SWARMLINE_MARK("report_intake.failed_elsewhere");
  ledger_.release_claim(phase, seat.stage, id.microbatch.index, seat, id.attempt);
  // Elsewhere the sender before picks another peer; a source has none before it.
  if (seat.stage.value == 0) ledger_.expire(phase, id.microbatch.index);
  leases_.wake();
}

std::size_t ReportIntake::failures_to_stop_at(StageId stage) const {
  const std::size_t peers = std::max<std::size_t>(members_.count_serving(stage), 1);
  const std::size_t half = std::min((peers + 1) / 2, Ledger::kFailuresKept);
  return std::min(peers, std::max<std::size_t>(half, Limits::failures_per_microbatch_max));
}

// Who fails again and again at what others of its stage compute is at fault, not the microbatches.
void ReportIntake::note_computed(const MicrobatchId& microbatch, const Seat& by) {
  const auto failed = failures_.find(microbatch);
  if (failed == failures_.end()) return;
  std::erase_if(failed->second.seats, [&](const Seat& seat) {
    if (seat.stage != by.stage || seat.peer == by.peer) return false;
    const std::uint32_t wrong = ++wrong_failures_[{microbatch.phase, seat.peer}];
    if (wrong >= kWrongFailuresMax && members_.is_current(seat)) {
      SWARMLINE_MARK("report_intake.fails_at_what_others_compute");
      rulings_.lose(seat, fmt::format("it failed at {} microbatches that others computed", wrong),
                    Departure::kFailed);
    }
    return true;
  });
}

void ReportIntake::on_seat_lost(const SeatLoss& loss) {
  std::erase_if(wrong_failures_,
                [&](const auto& entry) { return entry.first.second == loss.seat.peer; });
  stalls_.erase(loss.seat.peer);
}

void ReportIntake::on_stall(const wire::StallReport& stall, Instant now) {
  const Seat reporter = from_wire(stall.seat());
  const Seat stalled = from_wire(stall.stalled());
  Stalls& stalls = stalls_[reporter.peer];
  if (now - stalls.since >= kStallPeriod) stalls = {.since = now};
  if (++stalls.told > kStallsMax) return SWARMLINE_MARK("report_intake.too_many_stalls");
  if (const auto times = stall_lines_.happened(now))
    log(LogLevel::kWarn, "{} reports that {} does not answer for {} ({} such reports)",
        to_string(reporter), to_string(stalled), to_string(from_wire(stall.id()).microbatch),
        times);
  if (reporter.stage.value != stalled.stage.value + 1U || stalled.stage.value == 0) return;
  SWARMLINE_MARK("report_intake.stall_told");
  const StageId before{static_cast<std::uint16_t>(stalled.stage.value - 1)};
  for (const Seat& upstream : members_.serving_of(before))
    outbox_.send(upstream, make_frame(MessageKind::kStallReport, stall));
}

void ReportIntake::on_retired(const Phase& phase) {
  std::erase_if(wrong_failures_, [&](const auto& entry) { return entry.first.first == phase; });
  std::erase_if(failures_, [&](const auto& entry) { return entry.first.phase == phase; });
}

}  // namespace swarmline
