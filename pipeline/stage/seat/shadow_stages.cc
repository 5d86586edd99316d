#include "pipeline/stage/seat/shadow_stages.h"

#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "pipeline/stage/common/arena_model.h"

namespace swarmline {

ShadowStages::ShadowStages(Runtime& runtime, DeviceQueue& queue, PeerLinks& links)
    : runtime_(runtime), queue_(queue), links_(links) {}

void ShadowStages::follow(SeatedStageParts parts) {
  const StageId stage = parts.stage.stage;
  drop(stage);
  log(LogLevel::kInfo, "{}: following stage {}", to_string(parts.self), stage.value);
  parts.model = std::make_unique<ArenaModel>(make_layout(parts.spec, parts.stage));
  parts.metrics = &metrics_;
  auto& made = stages_[stage];
  made = std::make_shared<SeatedStage>(runtime_, queue_, links_, std::move(parts));
  made->begin();
}

void ShadowStages::drop_all() {
  while (!stages_.empty()) drop(stages_.begin()->first);
}

void ShadowStages::drop(StageId stage) {
  auto found = stages_.extract(stage);
  if (found.empty()) return;
  const std::shared_ptr<SeatedStage> ends = std::move(found.mapped());
  ends->silence();
  ending_.push_back(ends);
  // Control jobs are done in their order: after this one the device has none of its.
  StageJob barrier;
  barrier.job.kind = JobKind::kOther;
  barrier.job.body = []() -> Result<void> { return {}; };
  barrier.done = [this, ends](const JobReport&) { std::erase(ending_, ends); };
  queue_.submit(std::move(barrier));
}

SeatedStage* ShadowStages::find(const Seat& name) const {
  const auto found = stages_.find(name.stage);
  return found != stages_.end() && found->second->self() == name ? found->second.get() : nullptr;
}

void ShadowStages::on_link_lost(const Seat& peer, const Error& error) {
  for (const auto& [stage, shadow] : stages_) shadow->on_link_lost(peer, error);
}

void ShadowStages::on_peer_lost(const Seat& lost) {
  for (const auto& [stage, shadow] : stages_) shadow->on_peer_lost(lost);
}

std::shared_ptr<SeatedStage> ShadowStages::take(StageId stage) {
  auto found = stages_.extract(stage);
  return found.empty() ? nullptr : std::move(found.mapped());
}

void ShadowStages::clear() {
  stages_.clear();
  ending_.clear();
}

std::vector<const SeatedStage*> ShadowStages::list() const {
  std::vector<const SeatedStage*> all;
  for (const auto& [stage, shadow] : stages_) all.push_back(shadow.get());
  return all;
}

void ShadowStages::check_invariants() const {
  for (const auto& [stage, shadow] : stages_) {
    SWARMLINE_CHECK(shadow->stage() == stage && shadow->self().stage == stage && !shadow->serves());
    shadow->check_invariants();
  }
}

}  // namespace swarmline
