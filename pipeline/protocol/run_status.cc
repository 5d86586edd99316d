#include "pipeline/protocol/run_status.h"

#include <algorithm>
#include <concepts>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "base/hours.h"
#include "base/limits.h"
#include "base/printable.h"
#include "engine/store/json_value.h"
#include "engine/store/json_writer.h"

namespace swarmline {
namespace {

// ---- Members ------------------------------------------------------------------------------------
// Of each object, in the order in which they are written; read and written by the same list.

template <typename Given, typename Status>
concept Some = std::same_as<std::remove_const_t<Given>, Status>;

void each_member(Some<PeerStatus> auto& peer, const auto& member) {
  member("peer", peer.peer);
  member("name", peer.name);
  member("address", peer.address);
  member("state", peer.state);
  member("reach", peer.reach);
  member("in_flight", peer.in_flight);
  member("microbatches", peer.microbatches);
  member("seconds_per_microbatch", peer.seconds_per_microbatch);
  member("share", peer.share);
  member("busy", peer.busy);
  member("relayed_links", peer.relayed_links);
  member("relayed_bytes", peer.relayed_bytes);
  member("data", peer.data);
  member("speed", peer.speed);
  member("arriving", peer.arriving);
  member("moves_to", peer.moves_to);
  member("barred", peer.barred);
  member("memory_bytes", peer.memory_bytes);
  member("shadow_memory_bytes", peer.shadow_memory_bytes);
  member("slow_seconds", peer.slow_seconds);
  member("zone", peer.zone);
  member("host", peer.host);
}

void each_member(Some<ShadowStatus> auto& shadow, const auto& member) {
  member("peer", shadow.peer);
  member("name", shadow.name);
  member("serves", shadow.serves);
  member("state", shadow.state);
}

void each_member(Some<StageStatus> auto& stage, const auto& member) {
  member("stage", stage.stage);
  member("first_layer", stage.first_layer);
  member("last_layer", stage.last_layer);
  member("wanted", stage.wanted);
  member("cost", stage.cost);
  member("state_bytes", stage.state_bytes);
  member("peers", stage.peers);
  member("shadows", stage.shadows);
}

void each_member(Some<EventStatus> auto& event, const auto& member) {
  member("wall_seconds", event.wall_seconds);
  member("kind", event.kind);
  member("detail", event.detail);
  member("level", event.level);
}

void each_member(Some<RelayStatus> auto& relay, const auto& member) {
  member("name", relay.name);
  member("address", relay.address);
  member("links", relay.links);
  member("bytes", relay.bytes);
}

void each_member(Some<BoundaryStatus> auto& boundary, const auto& member) {
  member("from", boundary.from);
  member("to", boundary.to);
  member("forward_codec_bytes", boundary.forward_codec_bytes);
  member("forward_token_bytes", boundary.forward_token_bytes);
  member("forward_framing_bytes", boundary.forward_framing_bytes);
  member("backward_codec_bytes", boundary.backward_codec_bytes);
  member("backward_framing_bytes", boundary.backward_framing_bytes);
  member("microbatches", boundary.microbatches);
  member("gradients", boundary.gradients);
  member("forward_codec", boundary.forward_codec);
  member("forward_error", boundary.forward_error);
  member("forward_bytes_per_second", boundary.forward_bytes_per_second);
  member("backward_codec", boundary.backward_codec);
  member("backward_error", boundary.backward_error);
  member("backward_bytes_per_second", boundary.backward_bytes_per_second);
}

void each_member(Some<CostStatus> auto& cost, const auto& member) {
  member("currency", cost.currency);
  member("total", cost.total);
  member("since_step", cost.since_step);
  member("per_hour", cost.per_hour);
  member("per_step", cost.per_step);
  member("per_billion_tokens", cost.per_billion_tokens);
  member("machines", cost.machines);
  member("coordinator", cost.coordinator);
  member("egress", cost.egress);
  member("egress_bytes", cost.egress_bytes);
  member("waiting", cost.waiting);
  member("joining", cost.joining);
  member("idle", cost.idle);
  member("again", cost.again);
  member("steps_again", cost.steps_again);
  member("fetched", cost.fetched);
  member("joiner_bytes", cost.joiner_bytes);
  member("shadow_bytes", cost.shadow_bytes);
  member("unpriced", cost.unpriced);
  member("budget", cost.budget);
  member("budget_hours", cost.budget_hours);
}

void each_member(Some<RunStatus> auto& status, const auto& member) {
  member("run", status.run);
  member("state", status.state);
  member("sentence", status.sentence);
  member("step", status.step);
  member("steps", status.steps);
  member("version", status.version);
  member("era", status.era);
  member("era_sentence", status.era_sentence);
  member("segment", status.segment);
  member("segment_sentence", status.segment_sentence);
  member("journal", status.journal);
  member("refused", status.refused);
  member("page", status.page);
  member("unprotected", status.unprotected);
  member("wall_seconds", status.wall_seconds);
  member("events", status.events);
  member("loss", status.loss);
  member("held_out_loss", status.held_out_loss);
  member("unigram_entropy", status.unigram_entropy);
  member("bigram_entropy", status.bigram_entropy);
  member("tokens", status.tokens);
  member("tokens_per_second", status.tokens_per_second);
  member("mean_tokens_per_second", status.mean_tokens_per_second);
  member("eta_seconds", status.eta_seconds);
  member("elapsed_seconds", status.elapsed_seconds);
  member("since_step", status.since_step);
  member("in_flight", status.in_flight);
  member("balance_moves", status.balance_moves);
  member("balance_shadows", status.balance_shadows);
  member("stages", status.stages);
  member("boundaries", status.boundaries);
  member("relays", status.relays);
  member("reduce_bytes", status.reduce_bytes);
  member("second_tries", status.second_tries);
  member("control_bytes", status.control_bytes);
  member("checkpoint_bytes", status.checkpoint_bytes);
  member("checkpoint", status.checkpoint);
  member("cost", status.cost);
  member("losses", status.losses);
}

// ---- Reading ------------------------------------------------------------------------------------
// What is not there, or something else, is 0, empty or not known.

void read(const JsonValue& json, std::uint64_t& value) {
  value = json.count();
}
void read(const JsonValue& json, double& value) {
  value = json.number_or(0);
}
void read(const JsonValue& json, bool& value) {
  value = json.kind == JsonValue::Kind::kBool && json.boolean;
}
void read(const JsonValue& json, std::string& value) {
  value = printable(json.string, Limits::status_bytes_max);  // it is shown on screens
}
void read(const JsonValue& json, std::optional<double>& value) {
  if (json.is_number()) value = json.number;
}
void read(const JsonValue& json, std::vector<double>& values) {
  for (const JsonValue& item : json.items)
    if (item.is_number()) values.push_back(item.number);
}
template <typename Object>
void read(const JsonValue& json, std::vector<Object>& objects) {
  for (const JsonValue& item : json.items)
    each_member(objects.emplace_back(),
                [&item](const char* name, auto& value) { read(item[name], value); });
}

void read(const JsonValue& json, std::optional<CostStatus>& cost) {
  if (json.kind != JsonValue::Kind::kObject) return;
  each_member(cost.emplace(), [&json](const char* name, auto& value) { read(json[name], value); });
}

// ---- Writing ------------------------------------------------------------------------------------

template <typename Value>
void write(JsonWriter& json, const Value& value) {
  json.value(value);
}
template <typename Item>
void write(JsonWriter& json, const std::vector<Item>& items);
void write(JsonWriter& json, const std::optional<CostStatus>& cost);

template <typename Object>
void write_members(JsonWriter& json, const Object& object) {
  each_member(object, [&json](const char* name, const auto& value) {
    json.key(name);
    write(json, value);
  });
}

template <typename Item>
void write(JsonWriter& json, const std::vector<Item>& items) {
  json.begin_array();
  for (const Item& item : items) {
    if constexpr (std::is_arithmetic_v<Item>) {
      json.value(item);
    } else {
      json.begin_object();
      write_members(json, item);
      json.end_object();
    }
  }
  json.end_array();
}

void write(JsonWriter& json, const std::optional<CostStatus>& cost) {
  if (!cost) return static_cast<void>(json.null());
  json.begin_object();
  write_members(json, *cost);
  json.end_object();
}

// An entropy of 0: not measured, because nothing is held out.
void drop_zero(std::optional<double>& entropy) {
  if (entropy && !(*entropy > 0)) entropy.reset();
}

}  // namespace

std::string sentence_of(const EventStatus& event) {
  std::string kind = event.kind;
  std::ranges::replace(kind, '_', ' ');
  return kind + ": " + event.detail;
}

std::size_t RunStatus::peers() const {
  std::size_t sum = 0;
  for (const StageStatus& stage : stages) sum += stage.peers.size();
  return sum;
}

bool RunStatus::over() const {
  return state == "done" || state == "failed" || state == "stopped" || state == "died";
}

bool RunStatus::budget_is_spent() const {
  if (!cost) return false;
  return (cost->budget > 0 && cost->total >= cost->budget) ||
         (cost->budget_hours > 0 && elapsed_seconds >= cost->budget_hours * kSecondsPerHour);
}

std::size_t RunStatus::wanted() const {
  std::size_t sum = 0;
  for (const StageStatus& stage : stages) sum += stage.wanted;
  return sum;
}

std::size_t RunStatus::missing() const {
  std::size_t sum = 0;
  for (const StageStatus& stage : stages) {
    const auto here =
        static_cast<std::uint64_t>(std::ranges::count_if(stage.peers, [](const PeerStatus& peer) {
          return peer.state != "lost" && peer.state != "away";
        }));
    sum += stage.wanted - std::min(stage.wanted, here);
  }
  return sum;
}

Result<RunStatus> parse_status(std::string_view text) {
  auto parsed = parse_json(text);
  if (!parsed) {
    return fail(ErrorCode::kCorrupt, "the run's status is " + parsed.error().what);
  }
  const JsonValue& json = *parsed;
  if (const std::uint64_t format = json["format"].count(); format != kStatusFormat) {
    return fail(ErrorCode::kIncompatible,
                fmt::format("the run's status has format {}, this program reads {}; use the "
                            "program that the run uses",
                            format, kStatusFormat));
  }
  RunStatus status;
  each_member(status, [&json](const char* name, auto& value) { read(json[name], value); });
  drop_zero(status.unigram_entropy);
  drop_zero(status.bigram_entropy);
  return status;
}

std::string to_json(const RunStatus& status) {
  JsonWriter json;
  json.begin_object().member("format", kStatusFormat);
  write_members(json, status);
  json.end_object();
  return json.take();
}

}  // namespace swarmline
