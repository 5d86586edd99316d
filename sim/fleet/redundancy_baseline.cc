// Redundant computing: baselines.h.
#include <algorithm>
#include <optional>

#include "base/check.h"
#include "sim/fleet/baselines.h"

namespace swarmline {
namespace {

// Of the nodes that can't be lost any more: those with two stages, and those whose stages these
// have.
constexpr double kUnsafeShareMax = 0.05;

// A stage of a pipeline: who computes it; the stage before may do so in its place.
struct Place {
  std::optional<std::uint32_t> node;  // empty: the place before computes it
};

class RedundantPipelines {
 public:
  explicit RedundantPipelines(std::uint32_t stages) : stages_(stages) {}

  // False: somebody was lost whose stages nobody has in that pipeline.
  bool lose(std::uint32_t node) {
    if (std::erase(waiting_, node) > 0) return true;
    for (auto& pipeline : pipelines_) {
      const auto at = std::ranges::find(pipeline, node, &Place::node);
      if (at == pipeline.end()) continue;
      at->node.reset();
      const std::size_t stage = static_cast<std::size_t>(at - pipeline.begin());
      return stages_ > 1 && pipeline[(stage + stages_ - 1) % stages_].node &&
             pipeline[(stage + 1) % stages_].node;
    }
    return true;  // was lost with a pipeline that had ended already
  }
  void add(const std::vector<std::uint32_t>& nodes) {
    waiting_.insert(waiting_.end(), nodes.begin(), nodes.end());
  }
  // Pipelines that can't go on end; true: none is left that holds the state.
  bool end_broken() {
    for (auto& pipeline : pipelines_)
      if (is_broken(pipeline))
        for (const Place& place : pipeline)
          if (place.node) waiting_.push_back(*place.node);
    std::erase_if(pipelines_, [&](const auto& pipeline) { return is_broken(pipeline); });
    return pipelines_.empty();
  }
  bool should_assign() const {
    const std::size_t missed = missed_nodes();
    const std::size_t serving = pipelines_.size() * stages_ - missed;
    if (missed > 0 && waiting_.size() >= missed) return true;
    if (missed > 0 &&
        2.0 * static_cast<double>(missed) > kUnsafeShareMax * static_cast<double>(serving))
      return true;
    return (serving + waiting_.size()) / stages_ > pipelines_.size();
  }
  void assign() {
    std::vector<std::uint32_t> nodes;
    for (const auto& pipeline : pipelines_)
      for (const Place& place : pipeline)
        if (place.node) nodes.push_back(*place.node);
    nodes.insert(nodes.end(), waiting_.begin(), waiting_.end());
    const std::size_t used = nodes.size() / stages_ * stages_;
    pipelines_.assign(nodes.size() / stages_, std::vector<Place>(stages_));
    for (std::size_t i = 0; i < used; ++i) pipelines_[i / stages_][i % stages_].node = nodes[i];
    waiting_.assign(nodes.begin() + static_cast<std::ptrdiff_t>(used), nodes.end());
  }
  // Pipelines wait for each other at the end of a step.
  double speed() const {
    const double all = static_cast<double>(pipelines_.size()) / (1 + kRedundancyOverhead);
    return missed_nodes() > 0 ? all / kRedundancySlowdown : all;
  }
  bool any() const { return !pipelines_.empty(); }

 private:
  // Two neighbours are gone, or there is no neighbour.
  bool is_broken(const std::vector<Place>& pipeline) const {
    for (std::size_t s = 0; s < stages_; ++s)
      if (!pipeline[s].node && (stages_ == 1 || !pipeline[(s + 1) % stages_].node)) return true;
    return false;
  }
  std::size_t missed_nodes() const {
    std::size_t missed = 0;
    for (const auto& pipeline : pipelines_)
      missed += static_cast<std::size_t>(
          std::ranges::count_if(pipeline, [](const Place& place) { return !place.node; }));
    return missed;
  }

  std::size_t stages_;
  std::vector<std::vector<Place>> pipelines_;
  std::vector<std::uint32_t> waiting_;
};

}  // namespace

std::vector<WorkSpan> redundancy_timeline(const Fleet& usable, std::uint32_t stages) {
  SWARMLINE_CHECK(usable.names_nodes && stages > 0);
  WorkTimeline timeline;
  RedundantPipelines pipelines(stages);
  for (const FleetEvent& event : usable.events) {
    timeline.advance(event.seconds);
    WorkSpan& now = timeline.now();
    const bool trained = pipelines.any();
    bool fatal = false;
    for (const std::uint32_t node : event.removed) fatal |= !pipelines.lose(node);
    now.rolls_back |= pipelines.end_broken() && trained;
    pipelines.add(event.added);
    if (fatal || pipelines.should_assign()) {
      pipelines.assign();
      if (event.seconds > 0)
        now.stall_seconds = fatal || !trained ? kRedundancyGlobalSeconds : kRedundancyLocalSeconds;
    }
    now.speed = pipelines.speed();
  }
  return timeline.finish(usable.seconds);
}

}  // namespace swarmline
