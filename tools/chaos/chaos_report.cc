#include "tools/chaos/chaos_report.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "balancer/plan.h"
#include "base/order_statistics.h"
#include "console/text.h"
#include "engine/store/json_writer.h"

namespace swarmline {
namespace {

constexpr int kChaosResultFormat = 1;
constexpr std::size_t kStepsBefore = 3;  // of the first fault, to know an undisturbed one by
// Events that tell of a peer's way in, not of its loss.
constexpr std::array<std::string_view, 4> kQuietEvents = {"peer_joined", "early_seat",
                                                          "peer_seated", "move"};

// What the living peers could give at best, over time.
class Optimum {
 public:
  Optimum(std::span<const ChaosSpeed> changes, std::uint64_t stages) {
    std::map<std::string, double> speeds;
    for (const ChaosSpeed& change : changes) {
      speeds[change.process] = change.speed;
      const double best = best_of(speeds, stages);
      if (!points_.empty() && points_.back().first == change.at)
        points_.back().second = best;
      else
        points_.emplace_back(change.at, best);
    }
  }
  // The same all the time.
  explicit Optimum(double rate) { points_.emplace_back(0, rate); }

  double integral(double from, double to) const {
    double sum = 0;
    for (std::size_t i = 0; i < points_.size(); ++i) {
      const double begin = std::max(points_[i].first, from);
      const double end = i + 1 < points_.size() ? std::min(points_[i + 1].first, to) : to;
      if (end > begin) sum += (end - begin) * points_[i].second;
    }
    return sum;
  }

 private:
  static double best_of(const std::map<std::string, double>& speeds, std::uint64_t stages) {
    PlanSnapshot snapshot;
    snapshot.stages.resize(stages);
    for (const auto& [process, speed] : speeds)
      if (speed > 0)
        snapshot.peers.push_back(
            {.peer = PeerId{static_cast<std::uint32_t>(snapshot.peers.size() + 1)},
             .speed = speed});
    return snapshot.peers.size() < stages ? 0 : best_throughput(snapshot);
  }
  std::vector<std::pair<double, double>> points_;  // from when on, how much
};

bool names_peer(std::string_view text, std::uint32_t peer) {
  const std::string name = fmt::format("peer {}", peer);
  for (std::size_t at = text.find(name); at != text.npos; at = text.find(name, at + 1)) {
    const std::size_t end = at + name.size();
    if (end == text.size() || text[end] < '0' || text[end] > '9') return true;
  }
  return false;
}

bool tells_of(const JsonValue& event, const ChaosDone& fault) {
  if (std::ranges::find(kQuietEvents, event["kind"].string) != kQuietEvents.end()) return false;
  return fault.coordinator || std::ranges::any_of(fault.peers, [&](std::uint32_t peer) {
           return names_peer(event["detail"].string, peer);
         });
}

std::optional<double> recovered_after(double at, std::span<const double> commits,
                                      double microbatches, const Optimum& optimum) {
  for (std::size_t i = 0; i + kRecoveryWindow < commits.size(); ++i) {
    if (commits[i] < at) continue;
    const double wanted = optimum.integral(commits[i], commits[i + kRecoveryWindow]);
    if (static_cast<double>(kRecoveryWindow) * microbatches >= kRecoveredShare * wanted)
      return commits[i] - at;
  }
  return std::nullopt;
}

double first_fault(const ChaosResult& result) {
  double first = std::numeric_limits<double>::infinity();
  for (const ChaosDone& fault : result.faults)
    if (fault.at) first = std::min(first, *fault.at);
  return first;
}

// Nothing when there were too few steps before the first fault.
std::optional<double> undisturbed_share(const ChaosResult& result, std::span<const double> commits,
                                        const Optimum& optimum) {
  const double first = first_fault(result);
  const auto end = std::ranges::upper_bound(commits, first);
  if (end - commits.begin() < static_cast<std::ptrdiff_t>(kStepsBefore) + 1) return std::nullopt;
  const double possible = optimum.integral(commits.front(), *(end - 1));
  const auto steps = static_cast<double>(end - commits.begin() - 1);
  if (possible <= 0) return std::nullopt;
  return steps * static_cast<double>(result.microbatches) / possible;
}

// Of steps before anything was done; nothing when there were too few.
std::optional<double> undisturbed_rate(const ChaosResult& result, std::span<const double> commits) {
  const double first = first_fault(result);
  std::vector<double> steps;
  for (std::size_t i = 1; i < commits.size() && commits[i] <= first; ++i)
    steps.push_back(commits[i] - commits[i - 1]);
  if (steps.size() < kStepsBefore) return std::nullopt;
  return static_cast<double>(result.microbatches) / std::max(median(std::move(steps)), 1e-9);
}

std::string seconds_text(std::optional<double> seconds) {
  return seconds ? fmt::format("{:.2f} s", *seconds) : std::string("-");
}

std::string_view to_string(ChaosVerdict verdict) {
  switch (verdict) {
    case ChaosVerdict::kEqual:
      return "equal";
    case ChaosVerdict::kDiffers:
      return "different";
    case ChaosVerdict::kNotJudged:
      break;
  }
  return "not judged";
}

}  // namespace

bool ChaosResult::all_done() const {
  return std::ranges::all_of(faults, [](const ChaosDone& fault) { return fault.at.has_value(); });
}

bool ChaosResult::good() const {
  return finished && all_done() && comparison.verdict != ChaosVerdict::kDiffers;
}

void read_log(ChaosResult& result, std::span<const JsonValue> lines) {
  std::vector<double> commits;
  std::set<std::uint64_t> steps;
  for (const JsonValue& line : lines) {
    const double wall = line["wall_seconds"].number_or(0);
    const bool is_step = line["kind"].string == "step";
    if (is_step) {
      commits.push_back(wall);
      steps.insert(line["step"].count());
    }
    for (ChaosDone& fault : result.faults) {
      if (!fault.at || wall < *fault.at) continue;
      std::optional<double>& time = is_step ? fault.committed : fault.noticed;
      if (!time && (is_step || tells_of(line, fault))) time = wall - *fault.at;
    }
  }
  result.steps = steps.size();
  result.steps_again = commits.size() - steps.size();
  if (commits.size() < 2) return;
  result.began = commits.front();
  result.seconds = commits.back() - commits.front();
  const auto microbatches = static_cast<double>(result.microbatches);
  std::optional<Optimum> optimum;
  if (!result.speeds.empty()) {
    optimum.emplace(result.speeds, result.stages);
    const double possible = optimum->integral(commits.front(), commits.back());
    if (possible > 0)
      result.share = static_cast<double>(steps.size() - 1) * microbatches / possible;
    result.undisturbed = undisturbed_share(result, commits, *optimum);
  } else if (const auto rate = undisturbed_rate(result, commits)) {
    optimum.emplace(*rate);
  }
  if (!optimum) return;
  for (ChaosDone& fault : result.faults)
    if (fault.at) fault.recovered = recovered_after(*fault.at, commits, microbatches, *optimum);
}

std::string chaos_text(const ChaosResult& result) {
  std::size_t widest = 4;
  for (const ChaosDone& fault : result.faults) widest = std::max(widest, fault.what.size());
  std::string text =
      fmt::format("{}: {} faults in run {}\n", result.name, result.faults.size(), result.run);
  text += fmt::format("  {:<{}} {:>9} {:>9} {:>12} {:>16}\n", "what", widest, "at", "noticed",
                      "next commit", "throughput back");
  for (const ChaosDone& fault : result.faults) {
    const std::optional<double> at =
        fault.at ? std::optional(*fault.at - result.began) : std::nullopt;
    text += fmt::format("  {:<{}} {:>9} {:>9} {:>12} {:>16}\n", fault.what, widest,
                        fault.at ? seconds_text(at) : "not done", seconds_text(fault.noticed),
                        seconds_text(fault.committed), seconds_text(fault.recovered));
  }
  for (const std::string& end : result.unplanned) text += fmt::format("unplanned   {}\n", end);
  text += fmt::format("steps       {} in {}{}\n", result.steps, human_seconds(result.seconds),
                      result.steps_again > 0 ? fmt::format(", {} of them again", result.steps_again)
                                             : std::string());
  if (result.share)
    text += fmt::format("throughput  {:.1f} % of what the living peers could have given\n",
                        100 * *result.share);
  if (result.left())
    text += fmt::format("undisturbed {:.1f} % before the first fault: {:.1f} % of that are left\n",
                        100 * *result.undisturbed, 100 * *result.left());
  text += fmt::format("parameters  {}: {}\n", to_string(result.comparison.verdict),
                      result.comparison.sentence);
  text += fmt::format("end         {}\n", result.end);
  return text;
}

std::string chaos_json(const ChaosResult& result) {
  JsonWriter json(2);
  json.begin_object().member("format", kChaosResultFormat).member("kind", "chaos");
  json.member("name", result.name).member("run", result.run);
  json.member("finished", result.finished).member("end", result.end);
  json.member("began", result.began).member("seconds", result.seconds);
  json.member("steps", result.steps).member("steps_again", result.steps_again);
  json.member("share_of_optimum", result.share);
  json.member("share_undisturbed", result.undisturbed);
  json.key("faults").begin_array();
  for (const ChaosDone& fault : result.faults) {
    json.begin_object().member("name", fault.name).member("what", fault.what);
    json.key("peers").begin_array();
    for (const std::uint32_t peer : fault.peers) json.value(peer);
    json.end_array().member("coordinator", fault.coordinator);
    json.member("at", fault.at);
    json.member("noticed_seconds", fault.noticed);
    json.member("commit_seconds", fault.committed);
    json.member("recovered_seconds", fault.recovered);
    json.end_object();
  }
  json.end_array();
  json.key("unplanned").begin_array();
  for (const std::string& end : result.unplanned) json.value(end);
  json.end_array();
  json.key("parameters").begin_object();
  json.member("verdict", to_string(result.comparison.verdict));
  json.member("sentence", result.comparison.sentence);
  json.member("max_rel_to_peak", result.comparison.max_rel_to_peak);
  json.member("allowed", result.comparison.allowed).end_object();
  return json.end_object().take() + "\n";
}

}  // namespace swarmline
