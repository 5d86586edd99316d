#include "pipeline/coordinator/run/run_totals.h"

#include <array>
#include <utility>

#include <fmt/format.h>

#include "engine/store/json_value.h"
#include "engine/store/json_writer.h"

namespace swarmline {
namespace {

constexpr std::uint64_t kTotalsFormat = 1;

constexpr std::array<std::pair<const char*, std::uint64_t BoundaryTotals::*>, 8> kBoundaryKeys = {{
    {"forward_codec_bytes", &BoundaryTotals::forward_codec},
    {"forward_token_bytes", &BoundaryTotals::forward_tokens},
    {"forward_framing_bytes", &BoundaryTotals::forward_framing},
    {"backward_codec_bytes", &BoundaryTotals::backward_codec},
    {"backward_framing_bytes", &BoundaryTotals::backward_framing},
    {"microbatches", &BoundaryTotals::forward_messages},
    {"gradients", &BoundaryTotals::backward_messages},
    {"early_tries", &BoundaryTotals::early_tries},
}};

constexpr std::array<std::pair<const char*, std::uint64_t RunTotals::*>, 5> kKeys = {{
    {"since_step", &RunTotals::since_version},
    {"reduce_bytes", &RunTotals::reduce_bytes},
    {"second_tries", &RunTotals::second_tries},
    {"control_bytes", &RunTotals::control_bytes},
    {"checkpoint_bytes", &RunTotals::checkpoint_bytes},
}};

constexpr std::array<std::pair<const char*, double CostTotals::*>, 8> kAmounts = {{
    {"machines", &CostTotals::machines},
    {"coordinator", &CostTotals::coordinator},
    {"egress", &CostTotals::egress},
    {"waiting", &CostTotals::waiting},
    {"joining", &CostTotals::joining},
    {"idle", &CostTotals::idle},
    {"again", &CostTotals::again},
    {"fetched", &CostTotals::fetched},
}};

constexpr std::array<std::pair<const char*, std::uint64_t CostTotals::*>, 5> kCostCounts = {{
    {"since_step", &CostTotals::since_version},
    {"egress_bytes", &CostTotals::egress_bytes},
    {"joiner_bytes", &CostTotals::joiner_bytes},
    {"shadow_bytes", &CostTotals::shadow_bytes},
    {"steps_again", &CostTotals::steps_again},
}};

void write(JsonWriter& json, const CostTotals& cost) {
  json.begin_object();
  for (const auto& [key, field] : kCostCounts) json.member(key, cost.*field);
  for (const auto& [key, field] : kAmounts) json.member(key, cost.*field);
  json.end_object();
}

CostTotals read_cost(const JsonValue& json) {
  CostTotals cost;
  for (const auto& [key, field] : kCostCounts) cost.*field = json[key].count();
  for (const auto& [key, field] : kAmounts) cost.*field = json[key].number_or(0);
  return cost;
}

}  // namespace

void BoundaryTotals::add(const wire::BoundaryBytes& bytes) {
  forward_codec += bytes.forward_codec();
  forward_tokens += bytes.forward_tokens();
  forward_framing += bytes.forward_framing();
  backward_codec += bytes.backward_codec();
  backward_framing += bytes.backward_framing();
  forward_messages += bytes.forward_messages();
  backward_messages += bytes.backward_messages();
  early_tries += bytes.early_tries();
}

void BoundaryTotals::add(const BoundaryTotals& other) {
  for (const auto& [key, field] : kBoundaryKeys) this->*field += other.*field;
}

std::string to_text(const RunTotals& totals) {
  JsonWriter json;
  json.begin_object().member("format", kTotalsFormat);
  for (const auto& [key, field] : kKeys) json.member(key, totals.*field);
  json.member("seconds", totals.seconds).member("held_out_loss", totals.held_out_loss);
  json.key("losses").begin_array();
  for (const double loss : totals.losses) json.value(loss);
  json.end_array().key("boundaries").begin_array();
  for (const BoundaryTotals& boundary : totals.boundaries) {
    json.begin_object();
    for (const auto& [key, field] : kBoundaryKeys) json.member(key, boundary.*field);
    json.end_object();
  }
  json.end_array();
  if (totals.cost) {
    json.key("cost");
    write(json, *totals.cost);
  }
  json.end_object();
  return json.take();
}

Result<RunTotals> parse_run_totals(std::string_view text) {
  const auto json = parse_json(text);
  if (!json) return fail(ErrorCode::kCorrupt, "the journal's totals are " + json.error().what);
  const std::uint64_t format = (*json)["format"].count();
  if (format == 0) return fail(ErrorCode::kCorrupt, "the journal's totals have no format");
  if (format > kTotalsFormat)
    return fail(ErrorCode::kIncompatible,
                fmt::format("the journal's totals have format {}, and this program reads {}",
                            format, kTotalsFormat));
  RunTotals totals;
  for (const auto& [key, field] : kKeys) totals.*field = (*json)[key].count();
  totals.seconds = (*json)["seconds"].number_or(0);
  if (const JsonValue& loss = (*json)["held_out_loss"]; loss.is_number())
    totals.held_out_loss = loss.number;
  for (const JsonValue& loss : (*json)["losses"].items)
    if (loss.is_number() && totals.losses.size() < RunTotals::kLossesShown)
      totals.losses.push_back(loss.number);
  for (const JsonValue& item : (*json)["boundaries"].items) {
    BoundaryTotals& boundary = totals.boundaries.emplace_back();
    for (const auto& [key, field] : kBoundaryKeys) boundary.*field = item[key].count();
  }
  if (const JsonValue& cost = (*json)["cost"]; cost.kind == JsonValue::Kind::kObject)
    totals.cost = read_cost(cost);
  return totals;
}

}  // namespace swarmline
