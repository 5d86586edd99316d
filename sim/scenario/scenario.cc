#include "sim/scenario/scenario.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "base/hours.h"
#include "base/limits.h"
#include "base/printable.h"
#include "engine/config/load.h"
#include "engine/config/schema.h"
#include "engine/store/files.h"
#include "sim/scenario/scenario_keys.h"

namespace swarmline {
namespace {

constexpr double kSecondsMax = 1e9;
constexpr double kTeraFlopsMax = 1e6;
constexpr double kMegabitMax = 1e8;
constexpr std::uint64_t kStepsWithoutEnd = 1'000'000'000;
constexpr std::string_view kFormatKey = "scenario_format";
constexpr std::array<std::string_view, 8> kOwnSections = {
    "", "scenario", "machines", "fleet", "link", "zone_links", "faults", "random_faults"};

bool is_own(std::string_view section) {
  return std::ranges::find(kOwnSections, section) != kOwnSections.end();
}

// The text with the scenario's own lines empty, so that the rest is a run's config and mistakes in
// it are found on their lines.
std::string run_part(std::string_view text) {
  std::string out;
  bool own = true;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    const std::size_t first = line.find_first_not_of(" \t");
    if (first != std::string_view::npos && line[first] == '[') {
      const std::size_t name = line.find_first_not_of("[ \t", first);
      const std::size_t stop = line.find_first_of("].= \t", name);
      own = name != std::string_view::npos && stop != std::string_view::npos &&
            is_own(line.substr(name, stop - name));
    } else if (first != std::string_view::npos && line.substr(first).starts_with(kFormatKey)) {
      out += "config_version = 1";
    }
    if (!own) out += line;
    out += '\n';
  }
  return out;
}

void read_scenario(ScenarioKeys& keys, Scenario& scenario) {
  keys.text("scenario", "name", scenario.name);
  keys.count("scenario", "seed", scenario.seed, 0, std::uint64_t{1} << 62);
  double hours = 0;
  keys.real("scenario", "hours", hours, 0, kSecondsMax / kSecondsPerHour);
  keys.real("scenario", "seconds", scenario.seconds, 0, kSecondsMax);
  if (hours > 0 && scenario.seconds > 0)
    keys.mistake("scenario", "hours", "found beside scenario.seconds, expected one of them");
  if (hours > 0) scenario.seconds = hours * kSecondsPerHour;
  double milliseconds = to_seconds(scenario.link.latency) * 1e3;
  keys.real("link", "latency_ms", milliseconds, 0, 60e3);
  scenario.link.latency = from_seconds(milliseconds / 1e3);
  milliseconds = 0;
  keys.real("link", "jitter_ms", milliseconds, 0, 60e3);
  scenario.link.jitter = from_seconds(milliseconds / 1e3);
}

MachineKind read_machine(ScenarioKeys& keys, const std::string& name) {
  MachineKind kind;
  kind.name = name;
  const auto key = [&](const char* last) { return name + "." + last; };
  std::uint64_t count = 0;
  keys.count("machines", key("count"), count, 0, kScenarioMachinesMax);
  kind.count = static_cast<std::uint32_t>(count);
  keys.real("machines", key("join_seconds"), kind.join_seconds, 0, kSecondsMax);
  double tera = 0, forward = 0, backward = 0, both = 0, up = 0, down = 0;
  keys.real("machines", key("tflops"), tera, 1e-6, kTeraFlopsMax);
  keys.real("machines", key("forward_ms"), forward, 1e-3, kSecondsMax);
  keys.real("machines", key("backward_ms"), backward, 1e-3, kSecondsMax);
  keys.real("machines", key("jitter"), kind.jitter, 0, 0.99);
  keys.real("machines", key("bandwidth_mbit"), both, 1e-3, kMegabitMax);
  keys.real("machines", key("up_mbit"), up, 1e-3, kMegabitMax);
  keys.real("machines", key("down_mbit"), down, 1e-3, kMegabitMax);
  keys.real("machines", key("price"), kind.price, 0, 1e6);
  keys.text("machines", key("zone"), kind.zone);
  if (kind.zone.size() > Limits::name_bytes_max || !is_printable(kind.zone))
    keys.mistake("machines", key("zone"),
                 fmt::format("found {}, expected at most {} printable ASCII characters",
                             keys.found("machines", key("zone")), Limits::name_bytes_max));
  kind.flops = tera * 1e12;
  kind.forward_seconds = forward / 1e3;
  kind.backward_seconds = backward / 1e3;
  kind.up_bits = (up > 0 ? up : both) * 1e6;
  kind.down_bits = (down > 0 ? down : both) * 1e6;
  const bool timed = forward > 0 && backward > 0;
  if ((tera > 0) == timed || (forward > 0) != (backward > 0)) {
    keys.mistake("machines", key("tflops"),
                 fmt::format("machine \"{}\" needs its speed: either tflops, or forward_ms and "
                             "backward_ms",
                             name));
  }
  if ((kind.up_bits > 0) != (kind.down_bits > 0))
    keys.mistake("machines", key(up > 0 ? "up_mbit" : "down_mbit"),
                 "found without its other direction, expected up_mbit and down_mbit, or "
                 "bandwidth_mbit for both");
  return kind;
}

void read_fleet(ScenarioKeys& keys, const std::string& folder, Scenario& scenario,
                std::optional<Error>& broken) {
  std::string file;
  keys.text("fleet", "file", file);
  keys.text("fleet", "machine", scenario.fleet_machine);
  double hours = 0;
  keys.real("fleet", "from_hours", hours, 0, kSecondsMax / kSecondsPerHour);
  keys.real("fleet", "notice_seconds", scenario.notice_seconds, 0, 3600);
  scenario.fleet_from_seconds = hours * kSecondsPerHour;
  if (file.empty()) return;
  const bool known = std::ranges::any_of(scenario.machines, [&](const MachineKind& kind) {
    return kind.name == scenario.fleet_machine && kind.count == 0;
  });
  if (!known)
    return keys.mistake("fleet", "machine",
                        fmt::format("found {}, expected the name of a [machines.NAME] without "
                                    "count: what the fleet's machines are",
                                    keys.found("fleet", "machine")));
  auto fleet = load_fleet(file.front() == '/' ? file : folder + "/" + file);
  if (!fleet) {
    broken = fleet.error();
  } else if (scenario.fleet_from_seconds >= fleet->seconds) {
    keys.mistake("fleet", "from_hours",
                 fmt::format("found {}, expected less than the {:.1f} h of {}", hours,
                             fleet->seconds / kSecondsPerHour, file));
  } else {
    scenario.fleet = std::move(*fleet);
  }
}

void read_zone_links(ScenarioKeys& keys, const std::string& folder, Scenario& scenario,
                     std::optional<Error>& broken) {
  std::string file;
  keys.text("zone_links", "file", file);
  keys.text("zone_links", "coordinator", scenario.coordinator_zone);
  if (file.empty()) return;
  auto links =
      load_zone_links(file.front() == '/' ? file : folder + "/" + file, scenario.link.jitter);
  if (!links) {
    broken = links.error();
    return;
  }
  const auto unknown = [&](const std::string& zone) {
    return fmt::format("found \"{}\", expected a zone of {}", zone, file);
  };
  for (const MachineKind& kind : scenario.machines)
    if (!kind.zone.empty() && !links->knows(kind.zone))
      keys.mistake("machines", kind.name + ".zone", unknown(kind.zone));
  if (!scenario.coordinator_zone.empty() && !links->knows(scenario.coordinator_zone))
    keys.mistake("zone_links", "coordinator", unknown(scenario.coordinator_zone));
  scenario.zone_links = std::move(*links);
}

std::string kind_names() {
  std::string names;
  for (const FaultName& kind : kFaultKinds)
    if (!is_of_keys(kind.kind)) names += (names.empty() ? "" : ", ") + std::string(kind.name);
  return names;
}

// Links of scenarios are plain.
std::optional<FaultKind> kind_from(std::string_view name) {
  const auto kind = fault_kind_from(name);
  return kind && !is_of_keys(*kind) ? kind : std::nullopt;
}

SimNodeId read_node(ScenarioKeys& keys, const std::string& key, bool may_be_coordinator,
                    std::uint32_t machines) {
  if (const std::string found = keys.found("faults", key); found == "\"coordinator\"") {
    std::string name;
    keys.text("faults", key, name);
    if (!may_be_coordinator)
      keys.mistake("faults", key,
                   "found \"coordinator\", which can be stopped, restarted, cut off or corrupt, "
                   "or have a journal that fails, but not this; expected the number of a machine");
    return kCoordinatorNode;
  }
  std::uint64_t number = 1;
  keys.count("faults", key, number, 1, machines);
  return static_cast<SimNodeId>(number);
}

TimedFault read_fault(ScenarioKeys& keys, const std::string& name, std::uint32_t machines) {
  TimedFault timed;
  const auto key = [&](const char* last) { return name + "." + last; };
  std::string kind;
  keys.text("faults", key("kind"), kind);
  timed.line = keys.line("faults", key("kind"));
  const auto known = kind_from(kind);
  if (!known)
    keys.mistake("faults", key("kind"),
                 fmt::format("found \"{}\", expected one of {}", kind, kind_names()));
  timed.fault.kind = known.value_or(FaultKind::kFreeze);
  keys.real("faults", key("at_seconds"), timed.seconds, 0, kSecondsMax);
  double seconds = 1;
  keys.real("faults", key("for_seconds"), seconds, 1e-3, kSecondsMax);
  timed.fault.time = from_seconds(seconds);
  keys.real("faults", key("factor"), timed.fault.factor, 1, 1e6);
  const bool two = takes_two(timed.fault.kind);
  timed.fault.node =
      hits_disk(timed.fault.kind) || is_of_journal(timed.fault.kind)
          ? kCoordinatorNode
          : read_node(keys, key("machine"), hits_coordinator(timed.fault.kind), machines);
  if (keys.has("faults", key("other"))) {
    timed.fault.other = read_node(keys, key("other"), true, machines);
    if (!two)
      keys.mistake("faults", key("other"),
                   fmt::format("found at a \"{}\", which concerns one machine; take it out", kind));
    if (timed.fault.other == timed.fault.node)
      keys.mistake("faults", key("other"), "found the same machine twice, expected two");
  }
  return timed;
}

void read_random(ScenarioKeys& keys, Scenario& scenario) {
  RandomFaultOptions& random = scenario.random;
  double per_hour = 0, longest = to_seconds(random.time_max);
  keys.real("random_faults", "per_hour", per_hour, 1e-3, 1e6);
  keys.real("random_faults", "longest_seconds", longest, 1e-2, kSecondsMax);
  keys.real("random_faults", "slowest_factor", random.factor_max, 1, 1e6);
  std::vector<std::string> kinds;
  keys.texts("random_faults", "kinds", kinds);
  for (const std::string& name : kinds) {
    if (const auto kind = kind_from(name)) {
      random.kinds.push_back(*kind);
    } else {
      keys.mistake("random_faults", "kinds",
                   fmt::format("found \"{}\", expected some of {}", name, kind_names()));
    }
  }
  random.time_max = from_seconds(longest);
  if (per_hour == 0) return;
  if (random.kinds.empty())
    for (const FaultName& kind : kFaultKinds)
      if (!kind.on_request && !is_of_journal(kind.kind) && !is_of_keys(kind.kind))
        random.kinds.push_back(kind.kind);
  random.gap = from_seconds(kSecondsPerHour / per_hour);
  random.count = kScenarioFaultsMax;
  random.peers_made_max = kScenarioMachinesMax;
}

void read_machines(ScenarioKeys& keys, Scenario& scenario) {
  std::uint64_t total = 0;
  for (const std::string& name : keys.tables("machines")) {
    scenario.machines.push_back(read_machine(keys, name));
    total += scenario.machines.back().count;
  }
  if (scenario.machines.empty())
    return keys.mistake("machines", "",
                        "not found, expected what machines there are; write for example "
                        "[machines.gpu] with count = 8 and tflops = 30");
  if (total > kScenarioMachinesMax)
    keys.mistake(
        "machines", "",
        fmt::format("found {} machines, expected at most {}", total, kScenarioMachinesMax));
}

// What no key says by itself.
void check_whole(ScenarioKeys& keys, const Scenario& scenario) {
  const std::uint32_t there = scenario.listed_at_start() + scenario.fleet_at_start();
  const std::vector<std::uint32_t>& seats = scenario.run.pipeline.peers;
  if (there < scenario.run.pipeline.stages)
    keys.mistake("machines", "",
                 fmt::format("found {} machines at the beginning, expected at least one for each "
                             "of the {} stages",
                             there, scenario.run.pipeline.stages));
  const auto wanted = std::accumulate(seats.begin(), seats.end(), 0U);
  if (scenario.seats_given && wanted > there)
    keys.mistake("pipeline", "peers",
                 fmt::format("found {} peers in all, expected at most the {} machines that are "
                             "there at the beginning",
                             wanted, there));
  const auto timed = std::ranges::count_if(scenario.machines,
                                           [](const MachineKind& kind) { return kind.flops == 0; });
  if (timed != 0 && std::cmp_not_equal(timed, scenario.machines.size()))
    keys.mistake("machines", "",
                 "found some machines with tflops and some with forward_ms, expected the same of "
                 "all, so that their speeds can be compared");
  for (const std::string* codec :
       {&scenario.run.codec.forward, &scenario.run.codec.backward, &scenario.run.codec.averaging})
    if (*codec == "auto" || *codec == "topk")
      keys.mistake("codec", "",
                   fmt::format("found \"{}\", whose size depends on the data; expected "
                               "a codec of a fixed size",
                               *codec));
}

}  // namespace

std::uint32_t Scenario::listed_at_start() const {
  std::uint32_t count = 0;
  for (const MachineKind& kind : machines) count += kind.join_seconds > 0 ? 0 : kind.count;
  return count;
}

std::uint32_t Scenario::fleet_at_start() const {
  std::uint32_t alive = 0;
  if (fleet)
    for (const FleetEvent& event : fleet->events)
      if (event.seconds <= fleet_from_seconds) alive = event.count;
  return alive;
}

Result<Scenario> parse_scenario(std::string_view text, std::string_view origin,
                                const std::string& folder) {
  auto entries = read_toml(text, origin);
  if (!entries) return std::unexpected(entries.error());
  ScenarioKeys keys(std::move(*entries), origin);
  std::uint64_t format = 0;
  keys.count("", std::string(kFormatKey), format, 0, 1'000'000);
  if (format != kScenarioFormat)
    return fail(ErrorCode::kUserMistake,
                format == 0 ? fmt::format("{}: no line \"{} = {}\": not a scenario", origin,
                                          kFormatKey, kScenarioFormat)
                            : fmt::format("{}: {} is {}, this program reads {}", origin, kFormatKey,
                                          format, kScenarioFormat));
  Scenario scenario;
  scenario.seats_given = keys.has("pipeline", "peers");
  std::vector<std::string> overrides;
  if (!keys.has("data", "files")) overrides.emplace_back("data.files=[\"none\"]");
  auto run = run_config_from_text(run_part(text), origin, overrides);
  if (!run) return std::unexpected(run.error());
  scenario.run = std::move(*run);
  scenario.name = scenario.run.run.name;
  read_scenario(keys, scenario);
  if (scenario.seconds > 0 && !keys.has("run", "steps")) scenario.run.run.steps = kStepsWithoutEnd;
  read_machines(keys, scenario);
  std::optional<Error> broken;
  read_fleet(keys, folder, scenario, broken);
  read_zone_links(keys, folder, scenario, broken);
  std::uint32_t machines = 0;
  for (const MachineKind& kind : scenario.machines) machines += kind.count;
  if (scenario.fleet) machines += kScenarioMachinesMax;  // it brings more as it goes
  for (const std::string& name : keys.tables("faults"))
    if (scenario.faults.size() < kScenarioFaultsMax)
      scenario.faults.push_back(read_fault(keys, name, std::max(machines, 1U)));
  read_random(keys, scenario);
  if (!broken) check_whole(keys, scenario);
  SWARMLINE_TRY(keys.check(kOwnSections));
  if (broken) return std::unexpected(*broken);
  return scenario;
}

Result<Scenario> load_scenario(const std::string& path) {
  auto text = read_text_file(path, Limits::config_file_bytes_max);
  if (!text) return std::unexpected(text.error());
  const std::size_t slash = path.rfind('/');
  return parse_scenario(*text, path, slash == std::string::npos ? "." : path.substr(0, slash));
}

}  // namespace swarmline
