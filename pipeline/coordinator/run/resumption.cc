#include "pipeline/coordinator/run/resumption.h"

#include <utility>
#include <vector>

#include "base/marks.h"
#include "pipeline/coordinator/steps/commit_order.h"
#include "pipeline/protocol/message_kinds.h"

namespace swarmline {

void Resumption::tell(const CollectedHoldings& collected) {
  wire::Resume resume;
  for (const auto& [peer, member] : in_.members.members()) {
    Seat over = member.seat;
    if (member.state != MemberState::kLost)
      --over.incarnation.value;  // it may have begun meanwhile
    if (over.incarnation.value > 0) *resume.add_lost() = to_wire(over);
  }
  in_.members.refresh_views();
  const auto& last = collected.last_commit;
  for (const auto& [seat, holdings] : collected.holdings) {
    in_.outbox.send(seat, make_frame(MessageKind::kResume, resume));
    in_.outbox.send(seat, make_frame(MessageKind::kMembership, in_.members.view_for(seat)));
    if (last && holdings.version() < last->version) {
      SWARMLINE_MARK("resumption.commit_said_again");
      in_.outbox.send(seat,
                      make_frame(MessageKind::kCommit,
                                 commit_said_again(in_.shape, *last).message_to(seat, false)));
    }
    in_.members.at(seat.peer).stepped = holdings.stepped();
    if (holdings.stepped() > 0) in_.audit.say(seat, holdings.stepped(), holdings.state_digest());
    if (seat.stage.value == 0)
      in_.leases.restore(seat, {.wanted = holdings.wanted(),
                                .granted = holdings.leased(),
                                .finished = holdings.finished()});
  }
}

void Resumption::collect(const RunSequence::Opening& opening, const CollectedHoldings& collected) {
  const Phase phase = opening.phase;
  std::vector<Holder> holders;
  for (const auto& [seat, holdings] : collected.holdings)
    for (const wire::PhaseHoldings& held : holdings.phases()) {
      if (from_wire(held.phase()) != phase || !in_.members.serves(seat)) continue;
      if (held.version() != opening.version.value) {
        SWARMLINE_MARK("resumption.other_version");
        continue;
      }
      holders.push_back({.seat = seat, .held = &held});
    }
  if (holders.empty()) return;
  SWARMLINE_MARK("resumption.phase_collected");
  std::vector<BoundaryCodecs> codecs;
  for (const wire::BoundaryCodecs& named : holders.front().held->codecs())
    codecs.push_back({.forward = named.forward(), .backward = named.backward()});
  in_.phases.use_codecs(phase, std::move(codecs));
  in_.ledger.had_been_leased(phase);
  for (const Holder& holder : holders) take_acknowledged(phase, holder);
  for (const Holder& holder : holders) take_reported(phase, holder);
}

bool Resumption::take(const Phase& phase, const Seat& seat,
                      const wire::Contribution& contribution) {
  const Verdict verdict = in_.ledger.collect(phase, seat.stage, contribution.index(), seat);
  if (verdict == Verdict::kAccepted && in_.shape.is_last(seat.stage))
    in_.ledger.record_loss(phase, contribution.index(), contribution.loss_sum());
  return verdict != Verdict::kRefused;
}

void Resumption::take_acknowledged(const Phase& phase, const Holder& holder) {
  bool wrong = false;
  for (const wire::Contribution& contribution : holder.held->acknowledged())
    wrong = !take(phase, holder.seat, contribution) || wrong;
  if (wrong) in_.rulings.lose(holder.seat, "what it holds is another's");
}

void Resumption::take_reported(const Phase& phase, const Holder& holder) {
  wire::ReportAck ack;
  *ack.mutable_phase() = to_wire(phase);
  for (const wire::Contribution& contribution : holder.held->reported())
    take(phase, holder.seat, contribution) ? ack.add_accepted(contribution.index())
                                           : ack.add_refused(contribution.index());
  in_.outbox.send(holder.seat, make_frame(MessageKind::kReportAck, ack));
}

}  // namespace swarmline
