#include "pipeline/coordinator/steps/commit_order.h"

#include "pipeline/protocol/message_kinds.h"

namespace swarmline {

wire::Commit CommitOrder::message_to(const Seat& to, bool keep, bool ends_early_seat) const {
  wire::Commit commit;
  *commit.mutable_to() = to_wire(to);
  commit.set_step(step);
  commit.set_skipped(skipped);
  commit.set_again(again);
  for (const GroupResult& result : results) {
    wire::GroupDigest* digest = commit.add_groups();
    digest->set_group(result.group.value);
    digest->set_attempt(result.attempt.value);
    digest->set_digest(result.digest);
  }
  commit.set_learning_rate(scalars.learning_rate);
  commit.set_clip_scale(scalars.clip_scale);
  commit.set_bias_correction1(scalars.bias_correction1);
  commit.set_bias_correction2(scalars.bias_correction2);
  commit.set_loss(loss);
  commit.set_keep(keep);
  commit.set_ends_early_seat(ends_early_seat);
  return commit;
}

CommitOrder commit_said_again(const RunShape& shape, const CommitRecord& record) {
  CommitOrder order;
  order.step = record.step;
  order.skipped = record.skipped;
  order.again = true;
  for (std::uint32_t group = 0; group < record.group_digests.size(); ++group)
    order.results.push_back(
        {.group = GroupId{group}, .attempt = {}, .digest = record.group_digests[group]});
  if (!record.skipped)
    order.scalars = step_scalars(shape.config.optimizer, record.step, shape.config.run.steps,
                                 record.updates - 1, record.gradient_norm);
  order.scalars.learning_rate = record.learning_rate;
  order.scalars.clip_scale = record.clip_scale;
  order.loss = record.loss;
  return order;
}

}  // namespace swarmline
