#include "balancer/cut.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include <fmt/format.h>

#include "base/check.h"

namespace swarmline {
namespace {

// Sums of the same numbers in another order count as equal.
constexpr double kSlack = 1 + 1e-12;

Result<void> user_mistake(std::string what) {
  return fail(ErrorCode::kUserMistake, std::move(what));
}

Result<void> check_options(const ModelCosts& costs, const CutOptions& options) {
  const std::size_t layers = costs.layer_flops.size();
  const std::uint32_t share = options.share_layers;
  SWARMLINE_CHECK(share >= 1 && layers % share == 0);
  SWARMLINE_CHECK(options.stage_speeds.empty() || options.stage_speeds.size() == options.stages);
  const std::size_t blocks = layers / share;
  if (options.stages < 1 || options.stages > blocks) {
    const std::string shared =
        share == 1 ? "" : fmt::format(" in blocks of {} (model.share_layers)", share);
    return user_mistake(fmt::format(
        "pipeline.stages: {} stages for {} layers{}; expected 1 to {}, each stage needs a block",
        options.stages, layers, shared, blocks));
  }
  if (options.layers.empty()) return {};
  const std::uint64_t sum =
      std::accumulate(options.layers.begin(), options.layers.end(), std::uint64_t{0});
  if (options.layers.size() != options.stages || sum != layers) {
    return user_mistake(fmt::format(
        "pipeline.layers: {} numbers adding up to {}; expected {} (one per stage) adding up to {}",
        options.layers.size(), sum, options.stages, layers));
  }
  for (const std::uint32_t count : options.layers) {
    if (count == 0 || count % share != 0) {
      return user_mistake(fmt::format(
          "pipeline.layers: a stage with {} layers; expected a multiple of {}, at least {}", count,
          share, share));
    }
  }
  return {};
}

// Minimises over all cuts of `blocks` into stages. time(stage, first, last) of blocks [first,
// last).
class Cutter {
 public:
  Cutter(const ModelCosts& costs, const CutOptions& options)
      : costs_(costs), options_(options), blocks_(costs.layer_flops.size() / options.share_layers) {
    prefix_.push_back(0);
    for (const double flops : costs.layer_flops) prefix_.push_back(prefix_.back() + flops);
  }

  // Layers per stage.
  std::vector<std::uint32_t> cut() {
    solve([](double best, double time) { return std::max(best, time); }, kInfinity);
    const double slowest = best_[options_.stages][blocks_];
    // Sums of squares do not pick the least maximum, so they choose among the cuts that have it.
    solve([](double best, double time) { return best + time * time; }, slowest * kSlack);
    std::vector<std::uint32_t> layers(options_.stages);
    std::size_t last = blocks_;
    for (std::size_t stage = options_.stages; stage > 0; --stage) {
      const std::size_t first = from_[stage][last];
      layers[stage - 1] = static_cast<std::uint32_t>((last - first) * options_.share_layers);
      last = first;
    }
    return layers;
  }

 private:
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();

  double time(std::size_t stage, std::size_t first, std::size_t last) const {
    const std::uint32_t share = options_.share_layers;
    double flops = prefix_[last * share] - prefix_[first * share];
    flops += stage == 0 ? costs_.embedding_flops : costs_.receiving_flops;
    flops += stage + 1 == options_.stages ? costs_.head_flops : costs_.sending_flops;
    return options_.stage_speeds.empty() ? flops : flops / options_.stage_speeds[stage];
  }

  // best_[s][b]: least value of the first b blocks on the first s stages, none slower than
  // `time_max`.
  template <typename Join>
  void solve(Join join, double time_max) {
    best_.assign(options_.stages + 1U, std::vector<double>(blocks_ + 1, kInfinity));
    from_.assign(options_.stages + 1U, std::vector<std::size_t>(blocks_ + 1, 0));
    best_[0][0] = 0;
    for (std::size_t s = 1; s <= options_.stages; ++s) {
      const std::size_t last_max = blocks_ - (options_.stages - s);
      for (std::size_t last = s; last <= last_max; ++last) {
        for (std::size_t first = s - 1; first < last; ++first) {
          if (best_[s - 1][first] == kInfinity) continue;
          const double t = time(s - 1, first, last);
          const double value = join(best_[s - 1][first], t);
          if (t > time_max || value >= best_[s][last]) continue;
          best_[s][last] = value;
          from_[s][last] = first;
        }
      }
    }
  }

  const ModelCosts& costs_;
  const CutOptions& options_;
  std::size_t blocks_;
  std::vector<double> prefix_;  // FLOPs of the layers before
  std::vector<std::vector<double>> best_;
  std::vector<std::vector<std::size_t>> from_;
};

}  // namespace

Result<std::vector<StageSpec>> cut_layers(const ModelCosts& costs, const CutOptions& options) {
  SWARMLINE_TRY(check_options(costs, options));
  const std::vector<std::uint32_t> layers =
      options.layers.empty() ? Cutter(costs, options).cut() : options.layers;
  std::vector<StageSpec> stages;
  std::uint32_t first = 0;
  for (std::uint32_t s = 0; s < options.stages; ++s) {
    stages.push_back({.stage = StageId(static_cast<std::uint16_t>(s)),
                      .stages = options.stages,
                      .first_layer = first,
                      .last_layer = first + layers[s]});
    first += layers[s];
  }
  return stages;
}

double stage_flops(const ModelCosts& costs, const StageSpec& stage) {
  SWARMLINE_CHECK(stage.first_layer <= stage.last_layer &&
                  stage.last_layer <= costs.layer_flops.size());
  double flops = 0;
  for (std::uint32_t l = stage.first_layer; l < stage.last_layer; ++l)
    flops += costs.layer_flops[l];
  flops += stage.has_embedding() ? costs.embedding_flops : costs.receiving_flops;
  flops += stage.has_head() ? costs.head_flops : costs.sending_flops;
  return flops;
}

}  // namespace swarmline
