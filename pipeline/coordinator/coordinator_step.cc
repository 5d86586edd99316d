// From leases to complete phases: one step's life as the coordinator sees it.
#include <algorithm>

#include "base/limits.h"
#include "base/log.h"
#include "pipeline/coordinator/coordinator_impl.h"

namespace swarmline {

namespace {

constexpr std::size_t kFailuresKept = 8;  // sentences of one microbatch
constexpr std::size_t kFailureBytesMax = 1024;

std::string pack_mask(const StageMask& mask) {
  if (std::all_of(mask.begin(), mask.end(), [](bool wanted) { return wanted; })) return {};
  std::string packed((mask.size() + 7) / 8, '\0');
  for (std::size_t s = 0; s < mask.size(); ++s)
    if (mask[s]) packed[s / 8] = static_cast<char>(packed[s / 8] | 1 << (s % 8));
  return packed;
}

}  // namespace

// ---- Leases -------------------------------------------------------------------------------------

void Coordinator::Impl::on_want_leases(const wire::WantLeases& want) {
  if (want.seat().stage() != 0) return;  // only stage 0 has the data
  LeaseBook& source = sources_[PeerId{want.seat().peer()}];
  source.wanted = std::max(source.wanted, want.total());
  pump_leases();
}

bool Coordinator::Impl::is_sealed(const Phase& phase) const {
  return board_.active() && phase == Phase{PhaseKind::kTrain, board_.step()};
}

// What a sealed step has lost is leased once those who are to add it have been told so.
bool Coordinator::Impl::may_lease(const Phase& phase) const {
  if (!is_sealed(phase)) return true;
  return std::ranges::all_of(shape_.stages, [&](const StageSpec& stage) {
    return reopened_.contains(stage.stage) || ledger_.stage_complete(phase, stage.stage);
  });
}

void Coordinator::Impl::pump_leases() {
  if (state_ == State::kWaiting || ended_ || collecting_) return;
  std::vector<Phase> phases = ledger_.open_phases();
  // Evaluations first: the step on their version follows them.
  std::sort(phases.begin(), phases.end(), [](const Phase& a, const Phase& b) {
    return a.kind != b.kind ? a.kind > b.kind : a.step < b.step;
  });
  std::map<PeerId, wire::Leases> granted;
  for (const Phase& phase : phases) {
    if (!may_lease(phase)) continue;
    bool progress = true;
    while (progress && ledger_.leasable(phase) > 0) {
      progress = false;
      for (const auto& [peer, source] : sources_) {
        if (!takes_leases(peer, source)) continue;
        for (const Lease& lease : ledger_.lease(phase, sessions_.of(peer)->seat, 1)) {
          grant(peer, lease, granted[peer]);
          progress = true;
        }
      }
    }
  }
  send_leases(granted);
}

bool Coordinator::Impl::takes_leases(PeerId peer, const LeaseBook& source) const {
  const SessionPtr session = sessions_.of(peer);
  return source.granted < source.wanted && session && serves(session->seat) &&
         !membership_.spared(membership_.members().at(peer));
}

void Coordinator::Impl::grant(PeerId source, const Lease& lease, wire::Leases& leases) {
  for (std::uint32_t i = 0; i < lease.count; ++i) {
    wire::Lease* out = leases.add_leases();
    *out->mutable_phase() = to_wire(lease.phase);
    out->set_index(lease.first + i);
    out->set_attempt(lease.attempt.value);
    out->set_opening(opened_.at(lease.phase).opening());
    if (lease.phase.kind == PhaseKind::kTrain) out->set_stage_mask(pack_mask(lease.stages));
  }
  sources_.at(source).granted += lease.count;
}

void Coordinator::Impl::send_leases(const std::map<PeerId, wire::Leases>& granted) {
  for (const auto& [peer, leases] : granted)
    sessions_.of(peer)->channel->notify(make_frame(MessageKind::kLeases, leases));
}

// ---- Contributions ------------------------------------------------------------------------------

void Coordinator::Impl::on_report(const wire::Report& report) {
  const Seat seat = from_wire(report.seat());
  const Phase phase = from_wire(report.phase());
  const std::uint32_t leasable = ledger_.leasable(phase);
  wire::ReportAck ack;
  *ack.mutable_phase() = report.phase();
  for (const wire::Contribution& contribution : report.contributions()) {
    const Verdict verdict = ledger_.report(phase, seat.stage, contribution.index(), seat,
                                           Attempt{contribution.attempt()});
    if (verdict == Verdict::kRefused) {
      ack.add_refused(contribution.index());
      continue;
    }
    ack.add_accepted(contribution.index());
    if (verdict == Verdict::kAccepted && seat.stage.value + 1U == shape_.stages.size())
      ledger_.record_loss(phase, contribution.index(), contribution.loss_sum());
  }
  notify(seat, make_frame(MessageKind::kReportAck, ack));
  note_report(phase);
  after_progress(phase);
  // What a lost peer may have had is missing now that no sender holds it.
  if (ledger_.leasable(phase) > leasable) pump_leases();
}

void Coordinator::Impl::on_claim(const SessionPtr& session, const Frame& frame,
                                 const RpcChannel::Respond& respond) {
  auto claim = parse<wire::Claim>(frame);
  if (!claim) return respond(std::unexpected(claim.error()));
  const Seat seat = from_wire(claim->seat());
  const AttemptId id = from_wire(claim->id());
  wire::ClaimReply reply;
  reply.set_granted(
      id.attempt.value != 0 && seat == session->seat && membership_.is_current(seat) &&
      ledger_.claim(id.microbatch.phase, seat.stage, id.microbatch.index, seat, id.attempt));
  respond(make_frame(MessageKind::kClaimReply, reply));
}

void Coordinator::Impl::on_release_claim(const wire::ReleaseClaim& release) {
  const Seat seat = from_wire(release.seat());
  const AttemptId id = from_wire(release.id());
  ledger_.release_claim(id.microbatch.phase, seat.stage, id.microbatch.index, seat, id.attempt);
  pump_leases();
}

void Coordinator::Impl::on_compute_failed(const wire::ComputeFailed& failed) {
  const Seat seat = from_wire(failed.seat());
  const AttemptId id = from_wire(failed.id());
  const Phase phase = id.microbatch.phase;
  if (!ledger_.is_open(phase) || id.microbatch.index >= ledger_.indices(phase)) return;
  const std::uint32_t peers = ledger_.report_failure(phase, id.microbatch.index, seat.peer);
  std::vector<std::string>& whats = failures_[id.microbatch];
  if (whats.size() < kFailuresKept)
    whats.push_back(
        fmt::format("{}: {}", to_string(seat), failed.what().substr(0, kFailureBytesMax)));
  const std::size_t stage_peers = membership_.ready_of(seat.stage).size();
  const auto limit = std::clamp<std::size_t>(stage_peers, 1, Limits::failures_per_microbatch_max);
  if (peers >= limit) {
    std::string errors;
    for (const std::string& what : whats) errors += "; " + what;
    return fail_run(
        fmt::format("{} failed on {} peers{}", to_string(id.microbatch), peers, errors));
  }
  ledger_.release_claim(phase, seat.stage, id.microbatch.index, seat, id.attempt);
  // Elsewhere the sender before picks another peer; a source has none before it.
  if (seat.stage.value == 0) ledger_.expire(phase, id.microbatch.index);
  pump_leases();
}

void Coordinator::Impl::on_stall(const wire::StallReport& stall) {
  const Seat reporter = from_wire(stall.seat());
  const Seat stalled = from_wire(stall.stalled());
  log(LogLevel::kWarn, "{} reports that {} does not answer for {}", to_string(reporter),
      to_string(stalled), to_string(from_wire(stall.id()).microbatch));
  // The stalled peer's upstream hears nothing of a gradient that did not arrive: the one who sent
  // it told us.
  if (reporter.stage.value != stalled.stage.value + 1U || stalled.stage.value == 0) return;
  for (const Seat& upstream :
       membership_.ready_of(StageId{static_cast<std::uint16_t>(stalled.stage.value - 1)}))
    notify(upstream, make_frame(MessageKind::kStallReport, stall));
}

void Coordinator::Impl::after_progress(const Phase& phase) {
  if (ended_ || !ledger_.is_open(phase)) return;
  if (is_sealed(phase)) return mend_rounds();
  if (!ledger_.complete(phase)) return;
  if (phase.kind == PhaseKind::kEval) return finish_eval(phase);
  if (!board_.active() && sequence_.may_seal(phase.step)) seal(phase.step);
}

void Coordinator::Impl::finish_eval(const Phase& phase) {
  const auto tokens =
      static_cast<double>(std::uint64_t{ledger_.indices(phase)} * options_.config.batch.microbatch *
                          options_.config.batch.sequence);
  const double loss = ledger_.loss_sum(phase) / tokens;
  ledger_.commit(phase);
  opened_.erase(phase);
  std::erase_if(failures_, [&](const auto& entry) { return entry.first.phase == phase; });
  stats_.on_evaluated(loss);
  if (auto kept = journal_.record_evaluated(phase.step); !kept) return journal_failed(kept.error());
  wire::RetirePhase retire;
  *retire.mutable_phase() = to_wire(phase);
  broadcast(make_frame(MessageKind::kRetirePhase, retire));
  if (options_.log_line) {
    EvalLogLine line;
    line.version = phase.step;
    line.loss = loss;
    line.sequences = options_.eval_sequences;
    line.tokens = static_cast<std::uint64_t>(tokens);
    line.wall_seconds = runtime_.wall_seconds();
    options_.log_line(to_json_line(line));
  }
  sequence_.on_evaluated(phase.step);
  // A step that only waited for this evaluation can close now.
  for (const Phase& open : ledger_.open_phases()) after_progress(open);
  advance();
}

}  // namespace swarmline
