#include "pipeline/coordinator/steps/committer.h"

#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "base/marks.h"
#include "pipeline/protocol/knobs.h"
#include "pipeline/protocol/message_kinds.h"

namespace swarmline {

std::optional<CommitRecord> Committer::commit(Era era) {
  const RunConfig& config = in_.shape.config;
  const std::uint64_t step = in_.round.board().step();
  const double norm = std::sqrt(in_.round.board().sum_of_squares());
  const bool skipped = !std::isfinite(norm);
  if (skipped) SWARMLINE_MARK("committer.not_finite");
  StepScalars scalars;
  if (!skipped) scalars = step_scalars(config.optimizer, step, config.run.steps, updates_++, norm);
  const CommitRecord record = record_of(era, scalars, norm);
  if (skipped && config.run.on_nonfinite == NonFinite::kStop) {
    in_.rulings.fail_run(fmt::format(
        "the gradient of step {} is not finite (loss {}); lower the learning rate, or set "
        "run.on_nonfinite = \"skip\" to pass over such steps",
        step + 1, record.loss));
    return std::nullopt;
  }
  in_.journal.record_commit(record);
  tell({.step = step,
        .skipped = skipped,
        .results = in_.round.board().results(),
        .scalars = scalars,
        .loss = record.loss});
  return record;
}

CommitRecord Committer::record_of(Era era, const StepScalars& scalars, double norm) const {
  CommitRecord record;
  record.step = in_.round.board().step();
  record.version = record.step + 1;
  record.tokens = in_.shape.config.tokens_per_step();
  record.loss = in_.ledger.loss_sum(in_.round.phase()) / static_cast<double>(record.tokens);
  record.wall_seconds = in_.alarms.runtime().wall_seconds();
  record.gradient_norm = norm;
  record.skipped = !std::isfinite(norm);
  record.era = era.value;
  record.updates = updates_;
  record.clip_scale = scalars.clip_scale;
  record.learning_rate = scalars.learning_rate;
  for (const GroupResult& group : in_.round.board().results())
    record.group_digests.push_back(group.digest);
  return record;
}

// Stages where somebody has yet to fetch what is committed now: the others keep the result for it.
std::set<StageId> Committer::keepers() const {
  std::set<StageId> keepers = in_.standbys.stages_to_keep_for();
  for (const auto& [peer, member] : in_.members.members()) {
    const Seat& seat = member.seat;
    if (member.state == MemberState::kLost && member.moves_to &&
        in_.alarms.now() - member.moves_since < knobs().move_time)
      keepers.insert(*member.moves_to);
    if (!in_.members.serves(seat) && !in_.members.follows(seat)) continue;
    for (const GroupId group : in_.shape.groups.groups_of(seat.stage))
      if (!in_.round.board().is_member(group, seat)) keepers.insert(seat.stage);
  }
  return keepers;
}

void Committer::tell(CommitOrder order) {
  const std::set<StageId> keep = keepers();
  for (const auto& [peer, session] : in_.sessions.seated()) {
    const Seat& seat = session->seat;
    if (in_.members.serves(seat) || in_.members.follows(seat))
      in_.outbox.send(session, make_frame(MessageKind::kCommit,
                                          order.message_to(seat, keep.contains(seat.stage),
                                                           in_.members.serves_early(seat))));
  }
  in_.standbys.tell_commit(order, keep);
  in_.states.remember(std::move(order));
}

}  // namespace swarmline
