#include "tools/predict/plan_report.h"

#include <algorithm>

#include <fmt/format.h>

#include "engine/store/json_writer.h"

namespace swarmline {
namespace {

struct StageCounts {
  std::uint32_t serving = 0;
  std::uint32_t arriving = 0;
  std::uint32_t shadows = 0;  // ready
  double speed = 0;           // of those who serve
};

std::vector<StageCounts> count_stages(const PlanSnapshot& snapshot) {
  std::vector<StageCounts> counts(snapshot.stages.size());
  for (const PlanPeer& peer : snapshot.peers) {
    for (const PlanShadow& shadow : peer.shadows)
      counts[shadow.stage.value].shadows += shadow.ready;
    if (!peer.stage) continue;
    StageCounts& stage = counts[peer.stage->value];
    ++(peer.arriving ? stage.arriving : stage.serving);
    if (!peer.arriving) stage.speed += peer.speed;
  }
  return counts;
}

const char* name_of(MoveKind kind) {
  switch (kind) {
    case MoveKind::kInstant:
      return "instant";
    case MoveKind::kDownload:
      return "download";
    case MoveKind::kRetire:
      return "retire";
  }
  return "";
}

// "peer 5", or "peer 5 (gpu-box)".
std::string who(const PlanQuestion& question, PeerId peer) {
  const auto name = question.names.find(peer);
  return name == question.names.end() ? fmt::format("peer {:<5}", peer.value)
                                      : fmt::format("peer {} ({})", peer.value, name->second);
}

std::string move_line(const PlanQuestion& question, const PlanMove& move) {
  const std::string from = move.from ? fmt::format("stage {}", move.from->value) : "nowhere";
  const bool retires = move.kind == MoveKind::kRetire;
  const std::string to = retires ? "nowhere" : fmt::format("stage {}", move.to.value);
  const std::string time = retires ? "retired"
                           : move.kind == MoveKind::kInstant
                               ? "at once"
                               : fmt::format("{:.0f} s", move.seconds);
  return fmt::format("  {} {:<9} -> {:<9} {:>8}   {}\n", who(question, move.peer), from, to, time,
                     move.reason);
}

std::string shadow_line(const PlanQuestion& question, const ShadowChange& change) {
  return fmt::format("  {} {:<7} stage {:<5} {}\n", who(question, change.peer),
                     change.add ? "follows" : "drops", change.stage.value, change.reason);
}

void add_name(JsonWriter& json, const PlanQuestion& question, PeerId peer) {
  if (const auto name = question.names.find(peer); name != question.names.end())
    json.member("name", name->second);
}

}  // namespace

std::string plan_text(const PlanQuestion& question, const SwarmPlan& plan) {
  std::string text = "stage       cost  serve  on the way  shadows   throughput\n";
  const auto counts = count_stages(question.snapshot);
  for (std::size_t s = 0; s < counts.size(); ++s) {
    const double cost = question.snapshot.stages[s].cost;
    text +=
        fmt::format("{:>5} {:>10.4g} {:>6} {:>11} {:>8} {:>12.4g}\n", s, cost, counts[s].serving,
                    counts[s].arriving, counts[s].shadows, counts[s].speed / cost);
  }
  if (!plan.moves.empty())
    text += "\nmoves\n";
  else
    text += question.moves ? "\nno moves\n" : "\nno moves: the run has balance.moves = false\n";
  for (const PlanMove& move : plan.moves) text += move_line(question, move);
  text += plan.shadows.empty() ? "\nno changes of shadows\n" : "\nshadows\n";
  for (const ShadowChange& change : plan.shadows) text += shadow_line(question, change);
  text += fmt::format(
      "\nmicrobatches per second of the slowest stage: {:.4g} now, {:.4g} when all have arrived, "
      "{:.4g} at best\n",
      plan.throughput_before, plan.throughput_after, best_throughput(question.snapshot));
  return text;
}

std::string plan_json(const PlanQuestion& question, const SwarmPlan& plan) {
  JsonWriter json(1);
  json.begin_object().member("format", kPlanFormat).member("kind", "plan");
  json.key("throughput").begin_object().member("now", plan.throughput_before);
  json.member("after", plan.throughput_after);
  json.member("best", best_throughput(question.snapshot)).end_object();
  json.key("stages").begin_array();
  const auto counts = count_stages(question.snapshot);
  for (std::size_t s = 0; s < counts.size(); ++s) {
    json.begin_object().member("stage", s).member("serving", counts[s].serving);
    json.member("arriving", counts[s].arriving).member("shadows", counts[s].shadows);
    json.member("throughput", counts[s].speed / question.snapshot.stages[s].cost).end_object();
  }
  json.end_array().key("moves").begin_array();
  for (const PlanMove& move : plan.moves) {
    json.begin_object().member("peer", move.peer.value);
    add_name(json, question, move.peer);
    json.member("kind", name_of(move.kind));
    json.key("from");
    move.from ? json.value(move.from->value) : json.null();
    json.key("to");
    move.kind == MoveKind::kRetire ? json.null() : json.value(move.to.value);
    json.member("seconds", move.seconds).member("reason", move.reason).end_object();
  }
  json.end_array().key("shadows").begin_array();
  for (const ShadowChange& change : plan.shadows) {
    json.begin_object().member("peer", change.peer.value);
    add_name(json, question, change.peer);
    json.member("stage", change.stage.value);
    json.member("change", change.add ? "add" : "drop").member("reason", change.reason);
    json.end_object();
  }
  json.end_array().end_object();
  return json.take() + "\n";
}

namespace {

// Parameters in fp32, and two codes with their scales (docs/optimizer.md).
constexpr double kPackedStateBytes = 4 + 2.03;

ReplayOptions costs_of(const ReplayTableOptions& options) {
  ReplayOptions costs;
  if (options.packed_moments) costs.state_bytes_per_parameter = kPackedStateBytes;
  if (options.free) costs.state_bytes_per_parameter = 0;
  return costs;
}

}  // namespace

ReplayTable replay_table(const Fleet& fleet, const ReplayTableOptions& options) {
  struct Rule {
    const char* name;
    ReplayPolicy policy;
    double period_seconds;
  };
  constexpr Rule kRules[] = {{"none", ReplayPolicy::kNone, 300},
                             {"paper, 300 s", ReplayPolicy::kPaperRule, 300},
                             {"paper, 60 s", ReplayPolicy::kPaperRule, 60},
                             {"swarmline", ReplayPolicy::kSwarmline, 300},
                             {"bound", ReplayPolicy::kBound, 300}};
  ReplayTable table{.fleet = fleet.name,
                    .source = fleet.source,
                    .peak = fleet.peak(),
                    .seconds = fleet.seconds,
                    .options = options};
  for (const std::uint32_t stages : options.stages) {
    for (const Rule& rule : kRules) {
      ReplayRow row{.stages = stages, .rule = rule.name};
      for (std::uint64_t seed = 1; seed <= options.seeds; ++seed) {
        ReplayOptions replay = costs_of(options);
        replay.stages = stages;
        replay.seed = seed;
        replay.policy = rule.policy;
        replay.period_seconds = rule.period_seconds;
        add_result(row.result, replay_fleet(fleet, replay));
      }
      table.rows.push_back(std::move(row));
    }
  }
  return table;
}

std::string replay_text(const ReplayTable& table) {
  const ReplayOptions costs = costs_of(table.options);
  const auto seeds = static_cast<double>(table.options.seeds);
  std::string text = fmt::format("{}: {:.1f} h, up to {} machines, {} seeds\n", table.fleet,
                                 table.seconds / 3600, table.peak, table.options.seeds);
  text += table.options.free
              ? "joins, moves and shadows are free\n"
              : fmt::format(
                    "{:.0f} M parameters a stage, {:.3g} bytes each, {:.0f} before serving, {:.0f} "
                    "Mb/s\n",
                    costs.parameters / 1e6, costs.state_bytes_per_parameter,
                    costs.served_bytes_per_parameter, costs.link_bits_per_second / 1e6);
  // In 80 columns.
  text +=
      "\n                     % of the best seating        a run             all runs\n"
      "stages rule         overall first h last h  moves at once shadows emptied saved\n";
  std::string notes;
  for (const ReplayRow& row : table.rows) {
    const ReplayResult& r = row.result;
    text += fmt::format(
        "{:>6} {:<12} {:>7.2f} {:>7.2f} {:>6.2f} {:>6.1f} {:>7.1f} {:>7.1f} {:>7} {:>5}\n",
        row.stages, row.rule, 100 * r.overall.share(), 100 * r.first_hour.share(),
        100 * r.last_hour.share(), static_cast<double>(r.moves) / seeds,
        static_cast<double>(r.instant_moves) / seeds,
        static_cast<double>(r.shadow_downloads) / seeds, r.stages_emptied, r.stages_survived);
    if (row.rule == "none" && r.seconds_without_optimum > 0) {
      notes += fmt::format("left out: {:.0f} of {:.0f} s with fewer machines than {} stages\n",
                           r.seconds_without_optimum / seeds, r.seconds / seeds, row.stages);
    }
  }
  return text + notes;
}

std::string replay_json(const ReplayTable& table) {
  JsonWriter json(1);
  json.begin_object().member("format", kPlanFormat).member("kind", "replay");
  json.member("fleet", table.fleet).member("source", table.source);
  json.member("seconds", table.seconds).member("peak", table.peak);
  json.member("seeds", table.options.seeds).member("free", table.options.free);
  json.member("moments", table.options.packed_moments ? kPackedMoments : kPlainMoments);
  json.key("rows").begin_array();
  for (const ReplayRow& row : table.rows) {
    const ReplayResult& r = row.result;
    json.begin_object().member("stages", row.stages).member("rule", row.rule);
    json.member("overall", r.overall.share()).member("first_hour", r.first_hour.share());
    json.member("last_hour", r.last_hour.share());
    json.member("seconds", r.seconds);
    json.member("seconds_without_optimum", r.seconds_without_optimum);
    json.member("joins", r.joins).member("moves", r.moves);
    json.member("instant_moves", r.instant_moves);
    json.member("shadow_downloads", r.shadow_downloads);
    json.member("stages_emptied", r.stages_emptied);
    json.member("stages_survived", r.stages_survived).end_object();
  }
  json.end_array().end_object();
  return json.take() + "\n";
}

}  // namespace swarmline
