#include "tools/predict/fleet_prices.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "balancer/cut.h"
#include "base/nearest.h"
#include "engine/config/raw_toml.h"
#include "engine/store/files.h"
#include "pipeline/protocol/run_status.h"

namespace swarmline {
namespace {

constexpr double kTera = 1e12;
constexpr double kMilli = 1e-3;
constexpr std::uint64_t kStatusBytesMax = 16 << 20;

// A class as the file says it; zero: not said.
struct Written {
  double count = 0;
  double tflops = 0;
  double forward_ms = 0, backward_ms = 0;  // of one layer and one microbatch
  double price = -1, on_demand_price = -1, bandwidth = -1, latency_ms = -1;
  double egress_price = -1;
  double memory = 0;  // bytes
  std::uint32_t line = 0;
};

struct Key {
  std::string_view name;
  double Written::* field;
  double least;
  bool may_equal;
  bool of_defaults;
};
constexpr Key kKeys[] = {
    {"count", &Written::count, 1, true, false},
    {"tflops", &Written::tflops, 0, false, false},
    {"forward_ms", &Written::forward_ms, 0, false, false},
    {"backward_ms", &Written::backward_ms, 0, false, false},
    {"memory", &Written::memory, 0, true, false},
    {"price", &Written::price, 0, true, true},
    {"on_demand_price", &Written::on_demand_price, 0, true, true},
    {"bandwidth", &Written::bandwidth, 0, true, true},
    {"latency_ms", &Written::latency_ms, 0, true, true},
    {"egress_price", &Written::egress_price, 0, true, true},
};

struct File {
  Written defaults{.price = 0, .on_demand_price = 0, .bandwidth = 0, .latency_ms = 0};
  std::vector<std::pair<std::string, Written>> classes;  // in the order of the file
};

class Reader {
 public:
  explicit Reader(std::string origin) : origin_(std::move(origin)) {}

  Result<File> read(std::string_view text) {
    const auto entries = read_toml(text, origin_);
    if (!entries) return std::unexpected(entries.error());
    for (const RawEntry& entry : *entries) SWARMLINE_TRY(take(entry));
    if (!format_seen_)
      return fail(
          ErrorCode::kUserMistake,
          fmt::format("{}: found no fleet_format; write fleet_format = {} as its first line",
                      origin_, kFleetPricesFormat));
    for (const auto& [name, written] : file_.classes) SWARMLINE_TRY(check(name, written));
    return std::move(file_);
  }

 private:
  std::unexpected<Error> mistake(std::uint32_t line, std::string_view key,
                                 const std::string& sentence) const {
    return fail(ErrorCode::kUserMistake,
                fmt::format("{}:{}: {}: {}", origin_, line, key, sentence));
  }

  Result<void> take(const RawEntry& entry) {
    if (entry.section.empty()) return take_top(entry);
    if (entry.section == "defaults") {
      if (entry.key.empty()) return {};
      return take_number(entry, entry.key, file_.defaults, true);
    }
    if (entry.section == "devices") {
      if (entry.key.empty()) return {};
      const std::size_t dot = entry.key.rfind('.');
      if (dot == std::string::npos)
        return mistake(entry.line, "devices." + entry.key,
                       "expected a section of its own; write for example [devices.t4]");
      const std::string name = entry.key.substr(0, dot);
      auto at = std::ranges::find(file_.classes, name, [](const auto& c) { return c.first; });
      if (at == file_.classes.end()) {
        if (file_.classes.size() == kFleetClassesMax)
          return mistake(entry.line, "devices",
                         fmt::format("expected at most {}", kFleetClassesMax));
        at = file_.classes.insert(at, {name, Written{.line = entry.line}});
      }
      return take_number(entry, entry.key.substr(dot + 1), at->second, false);
    }
    return mistake(entry.line, entry.section,
                   "there is no such section; there are defaults and devices");
  }

  Result<void> take_top(const RawEntry& entry) {
    if (entry.key == "fleet_format") {
      const auto* number = std::get_if<std::int64_t>(&entry.value.data);
      if (number == nullptr || *number != kFleetPricesFormat)
        return mistake(
            entry.line, entry.key,
            fmt::format("found {}, this program reads {}", shown(entry.value), kFleetPricesFormat));
      format_seen_ = true;
      return {};
    }
    if (entry.key == "run")
      return mistake(entry.line, entry.key,
                     "the run is not named here any more; remove the line and write swarmline "
                     "fleet plan RUN.toml --prices FILE");
    return mistake(entry.line, entry.key, "there is no such key; there is fleet_format");
  }

  Result<void> take_number(const RawEntry& entry, const std::string& name, Written& to,
                           bool of_defaults) {
    std::vector<std::string_view> known;
    for (const Key& key : kKeys) {
      if (of_defaults && !key.of_defaults) continue;
      known.push_back(key.name);
      if (name != key.name) continue;
      double number = NAN;
      if (const auto* whole = std::get_if<std::int64_t>(&entry.value.data))
        number = static_cast<double>(*whole);
      if (const auto* real = std::get_if<double>(&entry.value.data)) number = *real;
      const bool fits =
          std::isfinite(number) && (key.may_equal ? number >= key.least : number > key.least) &&
          (name != "count" || (number == std::floor(number) && number <= kFleetClassPeersMax));
      if (!fits)
        return mistake(entry.line, place(entry),
                       fmt::format("found {}, expected {}", shown(entry.value), expected(key)));
      to.*key.field = number;
      return {};
    }
    const std::string_view near = nearest(name, known);
    return mistake(entry.line, place(entry),
                   near.empty()
                       ? fmt::format("there is no such key; there are {}", fmt::join(known, ", "))
                       : fmt::format("there is no such key; did you mean {}?", near));
  }

  static std::string place(const RawEntry& entry) { return entry.section + "." + entry.key; }
  static std::string expected(const Key& key) {
    if (key.name == "count") return fmt::format("a whole number from 1 to {}", kFleetClassPeersMax);
    return fmt::format("a number {} {}", key.may_equal ? "of at least" : "above", key.least);
  }

  Result<void> check(const std::string& name, const Written& written) const {
    const std::string place = "devices." + name;
    if (written.count == 0) return mistake(written.line, place, "expected a count of peers");
    const bool timed = written.forward_ms > 0 && written.backward_ms > 0;
    const bool half = (written.forward_ms > 0) != (written.backward_ms > 0);
    if (half || timed == (written.tflops > 0))
      return mistake(written.line, place,
                     "expected either tflops, as reached in training, or forward_ms and "
                     "backward_ms, of one layer and one microbatch");
    return {};
  }

  std::string origin_;
  File file_;
  bool format_seen_ = false;
};

// Where the file says none, what the run's own config does.
double egress_of(double written, const FleetQuestion& question) {
  return written >= 0 ? written : question.config.money.egress_price;
}

FleetClass class_of(const std::string& name, const Written& written, const Written& defaults,
                    const FleetQuestion& question) {
  const auto or_default = [&](double Written::* field) {
    return written.*field >= 0 ? written.*field : defaults.*field;
  };
  FleetClass result{
      .name = name,
      .count = static_cast<std::uint32_t>(written.count),
      .flops_per_second = written.tflops * kTera,
      .dollars_per_hour = or_default(&Written::price),
      .on_demand_dollars_per_hour = or_default(&Written::on_demand_price),
      .memory_bytes = static_cast<std::uint64_t>(written.memory),
      .bits_per_second = or_default(&Written::bandwidth),
      .latency_seconds = or_default(&Written::latency_ms) * kMilli,
      .egress_dollars_per_gb = egress_of(or_default(&Written::egress_price), question)};
  if (written.tflops > 0) return result;
  const double ms = written.forward_ms + written.backward_ms;
  result.flops_per_second = model_costs(question.model).layer_flops.front() *
                            question.config.batch.microbatch / (ms * kMilli);
  result.forward_share = written.forward_ms / ms;
  return result;
}

std::string name_of(const PeerStatus& peer) {
  return peer.name.empty() ? fmt::format("peer {}", peer.peer) : peer.name;
}

// Every peer is a class of its own: what its device did for a microbatch is known.
Result<void> add_measured(const RunStatus& status, const Written& defaults,
                          FleetQuestion& question) {
  const RunConfig& config = question.config;
  if (status.stages.size() != config.pipeline.stages)
    return fail(ErrorCode::kUserMistake,
                fmt::format("the status has {} stages, the run's config {}; expected the same run",
                            status.stages.size(), config.pipeline.stages));
  const ModelCosts costs = model_costs(question.model);
  for (const StageStatus& stage : status.stages) {
    const StageSpec spec{.stage = StageId(static_cast<std::uint16_t>(stage.stage)),
                         .stages = config.pipeline.stages,
                         .first_layer = static_cast<std::uint32_t>(stage.first_layer),
                         .last_layer = static_cast<std::uint32_t>(stage.last_layer),
                         .inner_boundaries = {}};
    for (const PeerStatus& peer : stage.peers) {
      if (peer.state != "ready") continue;
      if (peer.seconds_per_microbatch <= 0)
        return fail(ErrorCode::kUserMistake,
                    fmt::format("{} of the status has not computed yet; expected a status of a "
                                "run that trains",
                                name_of(peer)));
      const double seconds = peer.seconds_per_microbatch;
      FleetClass measured{
          .name = name_of(peer),
          .count = 1,
          .flops_per_second = stage_flops(costs, spec) * config.batch.microbatch / seconds,
          .dollars_per_hour = defaults.price,
          .bits_per_second = defaults.bandwidth,
          .latency_seconds = defaults.latency_ms * kMilli,
          .egress_dollars_per_gb = egress_of(defaults.egress_price, question)};
      for (const BoundaryStatus& boundary : status.boundaries)
        if (boundary.from == stage.stage && boundary.forward_bytes_per_second > 0)
          measured.bits_per_second = 8 * boundary.forward_bytes_per_second;
      question.classes.push_back(std::move(measured));
    }
  }
  std::size_t next = 0;
  for (const StageStatus& stage : status.stages) {
    auto& seats = question.seats.emplace_back(question.classes.size(), 0);
    for (const PeerStatus& peer : stage.peers)
      if (peer.state == "ready") seats[next++] = 1;
    if (std::ranges::count(seats, 1U) == 0)
      return fail(ErrorCode::kUserMistake,
                  fmt::format("stage {} of the status has no peer that is ready; expected a status "
                              "of a run that trains",
                              stage.stage));
  }
  return {};
}

}  // namespace

Result<FleetQuestion> load_fleet_question(const RunConfig& config, const std::string& run,
                                          const std::string& path, const std::string& status_path) {
  FleetQuestion question;
  question.config = config;
  auto model = resolve_model_of_config(question.config);
  if (!model) return fail(model.error().code, fmt::format("{}: {}", run, model.error().what));
  question.model = std::move(*model);

  const auto text = read_text_file(path, kFleetPricesBytesMax);
  if (!text) return std::unexpected(text.error());
  const auto file = Reader(path).read(*text);
  if (!file) return std::unexpected(file.error());
  if (status_path.empty() == file->classes.empty())
    return fail(
        ErrorCode::kUserMistake,
        fmt::format("{}: expected [devices.NAME] sections or --status FILE, one of them", path));
  if (status_path.empty()) {
    for (const auto& [name, written] : file->classes)
      question.classes.push_back(class_of(name, written, file->defaults, question));
    return question;
  }
  const auto status_text = read_text_file(status_path, kStatusBytesMax);
  if (!status_text) return std::unexpected(status_text.error());
  const auto status = parse_status(*status_text);
  if (!status)
    return fail(ErrorCode::kUserMistake, fmt::format("{}: {}", status_path, status.error().what));
  if (const auto added = add_measured(*status, file->defaults, question); !added)
    return fail(added.error().code, fmt::format("{}: {}", status_path, added.error().what));
  return question;
}

}  // namespace swarmline
