#include "tools/chaos/chaos_plan.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include <fmt/format.h>

#include "base/limits.h"
#include "engine/config/raw_toml.h"
#include "engine/store/files.h"
#include "sim/scenario/scenario_keys.h"

namespace swarmline {
namespace {

constexpr double kSecondsMax = 1e6;
constexpr std::array<std::string_view, 13> kKinds = {
    "kill",   "restart",   "stop",    "slow",      "cut",       "corrupt",
    "join",   "half-open", "isolate", "disk-full", "disk-slow", "journal-refused",
    "command"};
constexpr std::array<std::string_view, 10> kPhases = {
    "joining",  "forward",    "backward", "reduce",   "commit",
    "download", "checkpoint", "start",    "takeover", "last-checkpoint"};
constexpr std::array<std::string_view, 4> kSections = {"", "plan", "faults", "random_faults"};
constexpr const char* kWho =
    "expected \"coordinator\", \"stage 1\", \"one of stage 1\", \"newcomer\", \"stage of "
    "newcomer\" or a process's name such as \"peer-3\"";

template <typename Enum>
std::optional<Enum> named(std::span<const std::string_view> names, std::string_view name) {
  const auto found = std::ranges::find(names, name);
  if (found == names.end()) return std::nullopt;
  return static_cast<Enum>(found - names.begin());
}

std::string list_of(std::span<const std::string_view> names) {
  return fmt::format("{}", fmt::join(names, ", "));
}

bool heals(ChaosKind kind) {
  return kind != ChaosKind::kKill && kind != ChaosKind::kJoin;
}

bool is_drawn(ChaosKind kind) {
  return heals(kind) && kind != ChaosKind::kCommand;
}

bool has_no_step(ChaosPhase phase) {
  return phase == ChaosPhase::kJoining || phase == ChaosPhase::kDownload;
}

bool of_links(ChaosKind kind) {
  using enum ChaosKind;
  return kind == kCut || kind == kCorrupt || kind == kHalfOpen || kind == kIsolate;
}

bool of_journal(ChaosKind kind) {
  return kind == ChaosKind::kDiskSlow || kind == ChaosKind::kJournalRefused;
}

bool peers_only(ChaosPhase phase) {
  return phase == ChaosPhase::kForward || phase == ChaosPhase::kBackward;
}

std::optional<std::uint32_t> number_after(std::string_view text, std::string_view beginning) {
  if (!text.starts_with(beginning)) return std::nullopt;
  text.remove_prefix(beginning.size());
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::optional<ChaosTarget> target_from(const std::string& text) {
  using Kind = ChaosTarget::Kind;
  if (text == kCoordinatorName) return ChaosTarget{.kind = Kind::kCoordinator, .name = {}};
  if (text == "newcomer") return ChaosTarget{.kind = Kind::kNewcomer, .name = {}};
  if (text == "stage of newcomer") return ChaosTarget{.kind = Kind::kNewcomerStage, .name = {}};
  if (const auto stage = number_after(text, "stage "))
    return ChaosTarget{.kind = Kind::kStage, .stage = *stage, .name = {}};
  if (const auto stage = number_after(text, "one of stage "))
    return ChaosTarget{.kind = Kind::kOneOfStage, .stage = *stage, .name = {}};
  if (number_after(text, "peer-").value_or(0) > 0)
    return ChaosTarget{.kind = Kind::kNamed, .name = text};
  return std::nullopt;
}

ChaosFault read_fault(ScenarioKeys& keys, const std::string& name) {
  ChaosFault fault;
  fault.name = name;
  const auto key = [&](const char* last) { return name + "." + last; };
  std::string kind, who, phase;
  keys.text("faults", key("kind"), kind);
  fault.line = keys.line("faults", key("kind"));
  if (const auto known = named<ChaosKind>(kKinds, kind))
    fault.kind = *known;
  else
    keys.mistake("faults", key("kind"),
                 fmt::format("found {}, expected one of {}", keys.found("faults", key("kind")),
                             list_of(kKinds)));
  keys.text("faults", key("who"), who);
  if (const auto target = target_from(who))
    fault.who = *target;
  else if (fault.kind != ChaosKind::kJoin)
    keys.mistake("faults", key("who"),
                 fmt::format("found {}, {}", keys.found("faults", key("who")), kWho));
  keys.text("faults", key("at_phase"), phase);
  if (!phase.empty()) {
    fault.phase = named<ChaosPhase>(kPhases, phase);
    if (!fault.phase)
      keys.mistake("faults", key("at_phase"),
                   fmt::format("found \"{}\", expected one of {}", phase, list_of(kPhases)));
  }
  keys.real("faults", key("at_seconds"), fault.at_seconds, 0, kSecondsMax);
  keys.count("faults", key("at_step"), fault.at_step, 0, std::uint64_t{1} << 40);
  keys.real("faults", key("for_seconds"), fault.seconds, 1e-3, kSecondsMax);
  keys.real("faults", key("factor"), fault.factor, 1, 1e3);
  keys.real("faults", key("flips"), fault.flips, 1e-9, 1);
  keys.text("faults", key("command"), fault.command);
  keys.text("faults", key("undo"), fault.undo);
  if (fault.kind == ChaosKind::kCommand && fault.command.empty())
    keys.mistake("faults", key("command"), "is missing: what the fault is, for /bin/sh");
  if (fault.phase && keys.has("faults", key("at_seconds")))
    keys.mistake("faults", key("at_seconds"), "found beside at_phase, expected one of them");
  using Target = ChaosTarget::Kind;
  const bool newcomer =
      fault.who.kind == Target::kNewcomer || fault.who.kind == Target::kNewcomerStage;
  if (fault.kind == ChaosKind::kJoin && fault.phase)
    keys.mistake("faults", key("at_phase"), "a peer joins at a time or at a step");
  if (newcomer && !fault.phase && fault.kind != ChaosKind::kJoin)
    keys.mistake("faults", key("who"), "a newcomer is hurt at a phase: at_phase is missing");
  if (fault.phase == ChaosPhase::kJoining && !newcomer && fault.who.kind != Target::kCoordinator)
    keys.mistake("faults", key("who"),
                 "who joins is \"newcomer\"; others are \"stage of newcomer\" or \"coordinator\"");
  return fault;
}

void read_random(ScenarioKeys& keys, RandomChaos& random) {
  keys.count("random_faults", "count", random.count, 0, kChaosFaultsMax);
  keys.real("random_faults", "after_seconds", random.after, 0, kSecondsMax);
  keys.real("random_faults", "over_seconds", random.seconds, 1e-3, kSecondsMax);
  keys.count("random_faults", "seed", random.seed, 0, std::uint64_t{1} << 62);
  keys.real("random_faults", "longest_seconds", random.longest, 1e-2, kSecondsMax);
  keys.real("random_faults", "factor", random.factor, 1, 1e3);
  std::vector<std::string> kinds;
  keys.texts("random_faults", "kinds", kinds);
  for (const std::string& name : kinds) {
    const auto kind = named<ChaosKind>(kKinds, name);
    if (kind && is_drawn(*kind))
      random.kinds.push_back(*kind);
    else
      keys.mistake("random_faults", "kinds",
                   fmt::format("found \"{}\", expected one of {} without kill, join and command",
                               name, list_of(kKinds)));
  }
  if (kinds.empty())
    random.kinds = {ChaosKind::kRestart, ChaosKind::kStop, ChaosKind::kSlow, ChaosKind::kCut,
                    ChaosKind::kCorrupt};
  if (random.count > 0 && random.seconds == 0)
    keys.mistake("random_faults", "over_seconds", "is missing: over how long the faults come");
}

}  // namespace

std::string_view to_string(ChaosKind kind) {
  return kKinds[static_cast<std::size_t>(kind)];
}

std::string_view to_string(ChaosPhase phase) {
  return kPhases[static_cast<std::size_t>(phase)];
}

std::string to_string(const ChaosTarget& target) {
  switch (target.kind) {
    case ChaosTarget::Kind::kCoordinator:
      return kCoordinatorName;
    case ChaosTarget::Kind::kOneOfStage:
      return fmt::format("one of stage {}", target.stage);
    case ChaosTarget::Kind::kStage:
      return fmt::format("stage {}", target.stage);
    case ChaosTarget::Kind::kNewcomer:
      return "newcomer";
    case ChaosTarget::Kind::kNewcomerStage:
      return "stage of newcomer";
    case ChaosTarget::Kind::kNamed:
      break;
  }
  return target.name;
}

bool ChaosFault::needs_newcomer() const {
  using Target = ChaosTarget::Kind;
  return kind != ChaosKind::kJoin &&
         (who.kind == Target::kNewcomer || who.kind == Target::kNewcomerStage ||
          (phase && has_no_step(*phase)));
}

bool ChaosPlan::hurts_links() const {
  return std::ranges::any_of(faults, of_links, &ChaosFault::kind) ||
         (random.count > 0 && std::ranges::any_of(random.kinds, of_links));
}

bool ChaosPlan::ends_coordinator() const {
  return std::ranges::any_of(faults, [](const ChaosFault& fault) {
    return fault.kind == ChaosKind::kKill && fault.who.kind == ChaosTarget::Kind::kCoordinator;
  });
}

Result<ChaosPlan> parse_chaos_plan(std::string_view text, std::string_view origin) {
  if (text.size() > Limits::config_file_bytes_max)
    return fail(ErrorCode::kUserMistake,
                fmt::format("{}: longer than {} bytes", origin, Limits::config_file_bytes_max));
  auto entries = read_toml(text, origin);
  if (!entries) return std::unexpected(entries.error());
  ScenarioKeys keys(std::move(*entries), origin);
  ChaosPlan plan;
  std::uint64_t format = 0;
  keys.count("", "chaos_format", format, kChaosFormat, kChaosFormat);
  if (!keys.has("", "chaos_format"))
    keys.mistake("", "chaos_format", "is missing: expected chaos_format = 1 above all sections");
  plan.name = "chaos";
  keys.text("plan", "name", plan.name);
  for (const std::string& name : keys.tables("faults"))
    if (plan.faults.size() < kChaosFaultsMax) plan.faults.push_back(read_fault(keys, name));
  read_random(keys, plan.random);
  SWARMLINE_TRY(keys.check(kSections));
  return plan;
}

Result<ChaosPlan> load_chaos_plan(const std::string& path) {
  auto text = read_text_file(path, Limits::config_file_bytes_max);
  if (!text) return std::unexpected(text.error());
  return parse_chaos_plan(*text, path);
}

Result<void> check_chaos_plan(const ChaosPlan& plan, const RunConfig& config,
                              std::string_view origin) {
  for (const ChaosFault& fault : plan.faults) {
    const auto mistake = [&](const char* key, const std::string& what) {
      return fail(ErrorCode::kUserMistake, fmt::format("{}:{}: faults.{}.{}: {}", origin,
                                                       fault.line, fault.name, key, what));
    };
    using Target = ChaosTarget::Kind;
    const bool of_stage = fault.who.kind == Target::kStage || fault.who.kind == Target::kOneOfStage;
    if (of_stage && fault.who.stage >= config.pipeline.stages)
      return mistake("who",
                     fmt::format("the run has {} stages, counted from 0", config.pipeline.stages));
    if (fault.phase && peers_only(*fault.phase) && config.pipeline.stages < 2)
      return mistake("at_phase", "a run of one stage sends no activations");
    if (of_journal(fault.kind) && fault.who.kind != Target::kCoordinator)
      return mistake("who", "only the coordinator has a journal");
    if (of_journal(fault.kind) && !config.run.etcd.empty())
      return mistake("kind", "the journal of the run is not a file");
    if (fault.phase == ChaosPhase::kCheckpoint && config.checkpoint.every_steps == 0)
      return mistake("at_phase",
                     "the run writes no checkpoint before its end; give it "
                     "--set checkpoint.every_steps=N");
    const std::uint64_t last = fault.phase ? config.run.steps : config.run.steps + 1;
    if (fault.at_step >= last)
      return mistake("at_step",
                     fmt::format("the run has {} steps, counted from 0", config.run.steps));
  }
  return {};
}

bool coordinator_comes_to(const ChaosFault& fault) {
  return fault.who.kind == ChaosTarget::Kind::kCoordinator && fault.phase &&
         !peers_only(*fault.phase);
}

std::vector<ChaosPoint> points_of(const ChaosFault& fault, bool alone) {
  using Kind = MessageKind;
  // The first stage only sends activations, the last one only gets them.
  const auto either_way = [](Kind kind) {
    return std::vector<ChaosPoint>{{.kind = kind, .sent = false}, {.kind = kind, .sent = true}};
  };
  const bool coordinator = coordinator_comes_to(fault);
  switch (*fault.phase) {
    case ChaosPhase::kJoining:
      return {{.kind = Kind::kWelcome, .sent = coordinator}};
    case ChaosPhase::kForward:
      return either_way(Kind::kForward);
    case ChaosPhase::kBackward:
      return either_way(Kind::kGradient);
    case ChaosPhase::kReduce:
      if (coordinator) return {{.kind = Kind::kReduced, .sent = false}};
      return {{.kind = alone ? Kind::kSeal : Kind::kReduceChunk, .sent = false}};
    case ChaosPhase::kCommit:
      return {{.kind = Kind::kCommit, .sent = coordinator}};
    case ChaosPhase::kDownload: {
      if (coordinator) return {{.kind = Kind::kStateOffer, .sent = true}};
      using Target = ChaosTarget::Kind;
      const bool newcomer =
          fault.who.kind == Target::kNewcomer || fault.who.kind == Target::kNewcomerStage;
      return {{.kind = newcomer ? Kind::kPiece : Kind::kPieceRequest, .sent = false}};
    }
    case ChaosPhase::kStart:
      return {{.kind = Kind::kReady, .sent = !coordinator}};
    case ChaosPhase::kTakeover:
      return {{.kind = Kind::kResume, .sent = coordinator}};
    case ChaosPhase::kCheckpoint:
    case ChaosPhase::kLastCheckpoint:
      return {{.kind = Kind::kSaveStage, .sent = coordinator}};
  }
  return {};
}

}  // namespace swarmline
