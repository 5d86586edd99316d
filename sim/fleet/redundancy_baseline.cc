// Redundant computing: baselines.h.
#include <algorithm>
#include <optional>
#include <utility>

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

using Pipeline = std::vector<Place>;

std::size_t missed_of(const Pipeline& pipeline) {
  return static_cast<std::size_t>(
      std::ranges::count_if(pipeline, [](const Place& place) { return !place.node; }));
}

class RedundantPipelines {
 public:
  explicit RedundantPipelines(std::uint32_t stages) : stages_(stages) {}

  // False: somebody was lost whose stages nobody has in that pipeline.
  bool lose(std::uint32_t node) {
    if (std::erase(waiting_, node) > 0) return true;
    for (Pipeline& pipeline : pipelines_) {
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
    for (Pipeline& pipeline : pipelines_)
      if (is_broken(pipeline))
        for (const Place& place : pipeline)
          if (place.node) waiting_.push_back(*place.node);
    std::erase_if(pipelines_, [&](const Pipeline& pipeline) { return is_broken(pipeline); });
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
  // As many whole pipelines as there are nodes for; those that miss least stay. False: a node has
  // to fetch the state of a stage that it did not have.
  bool assign() {
    const std::size_t nodes = pipelines_.size() * stages_ - missed_nodes() + waiting_.size();
    std::vector<Pipeline> ended;
    while (pipelines_.size() > nodes / stages_) {
      const auto worst = std::ranges::max_element(pipelines_, {}, missed_of);
      ended.push_back(std::move(*worst));
      pipelines_.erase(worst);
    }
    pipelines_.resize(nodes / stages_, Pipeline(stages_));
    for (Pipeline& pipeline : pipelines_)
      for (std::size_t s = 0; s < stages_; ++s)
        if (!pipeline[s].node) pipeline[s].node = take_who_knows(ended, s);
    for (Pipeline& pipeline : pipelines_)
      for (Place& place : pipeline)
        if (!place.node) place.node = take_waiting();
    bool nobody_fetches = true;
    for (Pipeline& pipeline : ended)
      for (Place& place : pipeline)
        if (place.node) waiting_.push_back(*place.node);
    for (Pipeline& pipeline : pipelines_)
      for (Place& place : pipeline)
        if (!place.node) {
          place.node = take_waiting();
          nobody_fetches = false;
        }
    return nobody_fetches;
  }
  // Pipelines wait for each other at the end of a step.
  double speed() const {
    const double all = static_cast<double>(pipelines_.size()) / (1 + kRedundancyOverhead);
    return missed_nodes() > 0 ? all / kRedundancySlowdown : all;
  }
  bool any() const { return !pipelines_.empty(); }

 private:
  // Two neighbours are gone, or there is no neighbour.
  bool is_broken(const Pipeline& pipeline) const {
    for (std::size_t s = 0; s < stages_; ++s)
      if (!pipeline[s].node && (stages_ == 1 || !pipeline[(s + 1) % stages_].node)) return true;
    return false;
  }
  std::size_t missed_nodes() const {
    std::size_t missed = 0;
    for (const Pipeline& pipeline : pipelines_) missed += missed_of(pipeline);
    return missed;
  }
  // Of ended pipelines: who computed that stage, its own or its successor's.
  std::optional<std::uint32_t> take_who_knows(std::vector<Pipeline>& ended, std::size_t stage) {
    for (Pipeline& pipeline : ended)
      for (const std::size_t s : {stage, (stage + stages_ - 1) % stages_})
        if (pipeline[s].node) return std::exchange(pipeline[s].node, std::nullopt);
    return std::nullopt;
  }
  std::optional<std::uint32_t> take_waiting() {
    if (waiting_.empty()) return std::nullopt;
    const std::uint32_t node = waiting_.front();
    waiting_.erase(waiting_.begin());
    return node;
  }

  std::size_t stages_;
  std::vector<Pipeline> pipelines_;
  std::vector<std::uint32_t> waiting_;
};

}  // namespace

std::vector<WorkSpan> redundancy_timeline(const Fleet& usable, std::uint32_t stages,
                                          double state_seconds) {
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
      const bool nobody_fetches = pipelines.assign();
      if (event.seconds > 0)
        now.stall_seconds =
            (fatal || !trained ? kRedundancyGlobalSeconds : kRedundancyLocalSeconds) +
            (nobody_fetches ? 0 : state_seconds);
    }
    now.speed = pipelines.speed();
  }
  return timeline.finish(usable.seconds);
}

}  // namespace swarmline
