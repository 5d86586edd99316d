#include "tools/predict/plan_snapshot.h"

#include <cmath>
#include <functional>
#include <set>

#include <fmt/format.h>

#include "base/limits.h"
#include "engine/store/json_value.h"

namespace swarmline {
namespace {

// 2^53: above it a JSON number may not be the one that was written.
constexpr double kExactMax = 9007199254740992.0;

Result<void> mistake(const std::string& where, const std::string& expected) {
  return fail(ErrorCode::kUserMistake, fmt::format("{}: expected {}", where, expected));
}

// Takes an object's members one by one; finish() refuses what nobody took.
class Fields {
 public:
  Fields(const JsonValue& object, std::string where) : object_(object), where_(std::move(where)) {}

  Result<void> is_object() const {
    if (object_.kind == JsonValue::Kind::kObject) return {};
    return mistake(where_.empty() ? "snapshot" : where_, "an object");
  }
  std::string path(std::string_view name) const {
    return where_.empty() ? std::string(name) : fmt::format("{}.{}", where_, name);
  }
  const JsonValue& take(std::string_view name) {
    taken_.insert(std::string(name));
    return object_[name];
  }
  bool has(std::string_view name) { return take(name).kind != JsonValue::Kind::kNull; }

  Result<void> number(std::string_view name, double& to, double least, bool may_equal) {
    if (!has(name)) return {};
    const JsonValue& value = take(name);
    const bool fits = value.is_number() && std::isfinite(value.number) &&
                      (may_equal ? value.number >= least : value.number > least);
    if (!fits) {
      return mistake(path(name),
                     fmt::format("a number {} {}", may_equal ? "of at least" : "above", least));
    }
    to = value.number;
    return {};
  }
  template <typename T>
  Result<void> whole(std::string_view name, T& to, double least, double most) {
    if (!has(name)) return {};
    const JsonValue& value = take(name);
    const bool fits = value.is_number() && value.number >= least && value.number <= most &&
                      std::floor(value.number) == value.number;
    if (!fits) return mistake(path(name), fmt::format("a whole number {} to {}", least, most));
    to = static_cast<T>(value.number);
    return {};
  }
  Result<void> truth(std::string_view name, bool& to) {
    if (!has(name)) return {};
    const JsonValue& value = take(name);
    if (value.kind != JsonValue::Kind::kBool) return mistake(path(name), "true or false");
    to = value.boolean;
    return {};
  }
  Result<void> text(std::string_view name, std::string& to) {
    if (!has(name)) return {};
    const JsonValue& value = take(name);
    if (value.kind != JsonValue::Kind::kString || value.string.size() > Limits::address_bytes_max)
      return mistake(path(name),
                     fmt::format("text of at most {} bytes", Limits::address_bytes_max));
    to = value.string;
    return {};
  }
  // `read` gets each item and its path.
  Result<void> list(std::string_view name, std::size_t most,
                    const std::function<Result<void>(const JsonValue&, std::string)>& read) {
    if (!has(name)) return {};
    const JsonValue& value = take(name);
    if (value.kind != JsonValue::Kind::kArray || value.items.size() > most) {
      return mistake(path(name), fmt::format("a list of at most {}", most));
    }
    for (std::size_t i = 0; i < value.items.size(); ++i) {
      SWARMLINE_TRY(read(value.items[i], fmt::format("{}[{}]", path(name), i)));
    }
    return {};
  }
  Result<void> finish() const {
    for (const JsonMember& member : object_.members) {
      if (!taken_.contains(member.name)) {
        return fail(ErrorCode::kUserMistake,
                    fmt::format("{}: there is no such key; docs/formats/plan.md lists all",
                                path(member.name)));
      }
    }
    return {};
  }

 private:
  const JsonValue& object_;
  const std::string where_;
  std::set<std::string> taken_;
};

Result<void> read_stage(const JsonValue& value, const std::string& where, PlanSnapshot& snapshot) {
  Fields fields(value, where);
  SWARMLINE_TRY(fields.is_object());
  PlanStage stage;
  SWARMLINE_TRY(fields.number("cost", stage.cost, 0, false));
  SWARMLINE_TRY(fields.whole("state_bytes", stage.state_bytes, 0, kExactMax));
  SWARMLINE_TRY(fields.whole("memory_bytes", stage.memory_bytes, 0, kExactMax));
  snapshot.stages.push_back(stage);
  return fields.finish();
}

Result<void> read_stage_number(Fields& fields, const PlanSnapshot& snapshot, StageId& stage) {
  const double last = static_cast<double>(snapshot.stages.size()) - 1;
  return fields.whole("stage", stage.value, 0, last);
}

Result<void> read_shadow(const JsonValue& value, const std::string& where,
                         const PlanSnapshot& snapshot, PlanPeer& peer) {
  Fields fields(value, where);
  SWARMLINE_TRY(fields.is_object());
  if (!fields.has("stage")) return mistake(fields.path("stage"), "the stage that it follows");
  PlanShadow shadow;
  SWARMLINE_TRY(read_stage_number(fields, snapshot, shadow.stage));
  SWARMLINE_TRY(fields.truth("ready", shadow.ready));
  peer.shadows.push_back(shadow);
  return fields.finish();
}

Result<void> read_peer(const JsonValue& value, const std::string& where, PlanSnapshot& snapshot) {
  Fields fields(value, where);
  SWARMLINE_TRY(fields.is_object());
  PlanPeer peer;
  if (!fields.has("peer")) return mistake(fields.path("peer"), "the peer's number");
  SWARMLINE_TRY(fields.whole("peer", peer.peer.value, 1, UINT32_MAX));
  if (fields.has("stage")) {
    SWARMLINE_TRY(read_stage_number(fields, snapshot, peer.stage.emplace()));
  }
  SWARMLINE_TRY(fields.truth("arriving", peer.arriving));
  if (peer.arriving && !peer.stage) {
    return mistake(fields.path("arriving"), "a stage that it is on its way to");
  }
  SWARMLINE_TRY(fields.number("speed", peer.speed, 0, false));
  SWARMLINE_TRY(fields.number("link_bits_per_second", peer.link_bits_per_second, 0, true));
  SWARMLINE_TRY(fields.whole("memory_bytes", peer.memory_bytes, 0, kExactMax));
  SWARMLINE_TRY(fields.whole("shadow_memory_bytes", peer.shadow_memory_bytes, 0, kExactMax));
  SWARMLINE_TRY(fields.number("slow_seconds", peer.slow_seconds, 0, true));
  SWARMLINE_TRY(fields.text("zone", peer.at.zone));
  SWARMLINE_TRY(fields.text("host", peer.at.host));
  SWARMLINE_TRY(fields.list("shadows", kPlanStagesMax, [&](const JsonValue& item, auto at) {
    return read_shadow(item, at, snapshot, peer);
  }));
  snapshot.peers.push_back(std::move(peer));
  return fields.finish();
}

Result<void> read_options(const JsonValue& value, PlanOptions& options) {
  if (value.kind == JsonValue::Kind::kNull) return {};
  Fields fields(value, "options");
  SWARMLINE_TRY(fields.is_object());
  SWARMLINE_TRY(fields.number("horizon_seconds", options.horizon_seconds, 0, false));
  SWARMLINE_TRY(fields.number("hysteresis", options.hysteresis, 0, true));
  SWARMLINE_TRY(fields.number("redundancy_worth", options.redundancy_worth, 0, true));
  SWARMLINE_TRY(fields.number("spread_cost_max", options.spread_cost_max, 0, true));
  SWARMLINE_TRY(fields.whole("moves_max", options.moves_max, 0, kPlanPeersMax));
  if (fields.has("shadows_per_stage")) {
    SWARMLINE_TRY(fields.whole("shadows_per_stage", options.shadows_per_stage.emplace(), 0, 64));
  }
  SWARMLINE_TRY(
      fields.whole("shadows_per_peer_max", options.shadows_per_peer_max, 0, kPlanStagesMax));
  SWARMLINE_TRY(fields.number("shadow_load", options.shadow_load, 0, true));
  SWARMLINE_TRY(fields.number("download_load", options.download_load, 0, true));
  SWARMLINE_TRY(fields.number("shadow_loss_max", options.shadow_loss_max, 0, true));
  SWARMLINE_TRY(fields.number("fail_slow_share", options.fail_slow_share, 0, true));
  SWARMLINE_TRY(fields.number("fail_slow_seconds", options.fail_slow_seconds, 0, false));
  SWARMLINE_TRY(fields.number("link_bits_per_second", options.link_bits_per_second, 0, false));
  return fields.finish();
}

Result<void> check_peers_differ(const PlanSnapshot& snapshot) {
  std::set<PeerId> seen;
  for (std::size_t p = 0; p < snapshot.peers.size(); ++p) {
    if (!seen.insert(snapshot.peers[p].peer).second) {
      return mistake(fmt::format("peers[{}].peer", p), "a number that no other peer has");
    }
  }
  return {};
}

Result<void> check_format(Fields& fields) {
  const JsonValue& format = fields.take("format");
  if (!format.is_number()) {
    return mistake("format", fmt::format("{}, the format of snapshots", kPlanFormat));
  }
  if (format.number == kPlanFormat) return {};
  return fail(ErrorCode::kIncompatible,
              fmt::format("snapshot format {}, this program reads {}", format.number, kPlanFormat));
}

}  // namespace

Result<PlanQuestion> parse_plan_question(std::string_view text) {
  const auto root = parse_json(text);
  if (!root) return fail(ErrorCode::kUserMistake, root.error().what);
  Fields fields(*root, "");
  PlanQuestion question;
  PlanSnapshot& snapshot = question.snapshot;
  SWARMLINE_TRY(fields.is_object());
  SWARMLINE_TRY(check_format(fields));
  SWARMLINE_TRY(fields.list("stages", kPlanStagesMax, [&](const JsonValue& item, auto at) {
    return read_stage(item, at, snapshot);
  }));
  if (snapshot.stages.empty()) {
    SWARMLINE_TRY(mistake("stages", "a list of at least one stage"));
  }
  SWARMLINE_TRY(fields.list("peers", kPlanPeersMax, [&](const JsonValue& item, auto at) {
    return read_peer(item, at, snapshot);
  }));
  SWARMLINE_TRY(check_peers_differ(snapshot));
  SWARMLINE_TRY(read_options(fields.take("options"), question.options));
  SWARMLINE_TRY(fields.finish());
  return question;
}

}  // namespace swarmline
