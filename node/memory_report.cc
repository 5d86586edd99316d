#include "node/memory_report.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/units.h"
#include "console/text.h"
#include "engine/store/json_writer.h"

namespace swarmline {
namespace {

constexpr int kMemoryFormat = 2;

std::string bytes_text(std::uint64_t bytes) {
  return human_bytes(static_cast<double>(bytes));
}

struct Row {
  const char* name;
  const char* key;
  std::uint64_t PeerMemory::* bytes;
};
constexpr Row kRows[] = {
    {"parameters", "parameters", &PeerMemory::parameters},
    {"gradients", "gradients", &PeerMemory::gradients},
    {"optimizer state", "optimizer", &PeerMemory::optimizer},
    {"error feedback", "residuals", &PeerMemory::residuals},
    {"activations", "activations", &PeerMemory::activations},
    {"payloads", "payloads", &PeerMemory::payloads},
    {"while computing", "working", &PeerMemory::working},
    {"libraries' scratch", "libraries", &PeerMemory::libraries},
    {"averaging", "averaging", &PeerMemory::averaging},
    {"checkpoint's copy", "checkpoint", &PeerMemory::checkpoint},
    {"shadows", "shadows", &PeerMemory::shadows},
};

std::string layers_text(const StageSpec& stage) {
  return stage.first_layer == stage.last_layer
             ? std::string("none")
             : fmt::format("{}-{}", stage.first_layer, stage.last_layer - 1);
}

// The smallest card that holds it; empty: none does.
std::string_view smallest_card(std::uint64_t device_bytes) {
  for (const Card& card : common_cards())
    if (fits(card, device_bytes)) return card.name;
  return {};
}

std::string stage_text(const RunConfig& config, const StageHolding& holding) {
  const UnderWay under_way = under_way_at(config, holding.stage);
  std::string out = fmt::format(
      "stage {}: layers {}, {} parameters, peers: {}\n"
      "  microbatches under way at a peer: {}, {} of them between forward and backward\n",
      holding.stage.stage.value, layers_text(holding.stage), with_commas(holding.parameters),
      holding.peers, under_way.microbatches, under_way.graphs);
  out += fmt::format("  {:<18} {:>11} {:>11} {:>11}\n", "", "on a CPU", "on a GPU", "beside it");
  const auto line = [&](const char* name, std::uint64_t cpu, std::uint64_t device,
                        std::uint64_t host) {
    if (cpu + device + host == 0) return;
    out += fmt::format("  {:<18} {:>11} {:>11} {:>11}\n", name, bytes_text(cpu), bytes_text(device),
                       bytes_text(host));
  };
  for (const Row& row : kRows)
    line(row.name, holding.memory.*row.bytes, holding.cuda.device.*row.bytes,
         holding.cuda.host.*row.bytes);
  line("in all", holding.memory.total(), holding.cuda.device.total(), holding.cuda.host.total());
  const std::string_view card = smallest_card(holding.cuda.device.total());
  out += card.empty() ? "  fits no common GPU\n"
                      : fmt::format("  the smallest common GPU that it fits: {}\n", card);
  if (config.pipeline.recompute == Recompute::kAuto)
    out += fmt::format("  {} on a CPU if it recomputes\n",
                       bytes_text(holding.needed_recomputing_bytes));
  return out;
}

void write_memory(JsonWriter& json, const PeerMemory& memory) {
  json.begin_object();
  for (const Row& row : kRows) json.member(row.key, memory.*row.bytes);
  json.member("total", memory.total()).end_object();
}

void write_stage(JsonWriter& json, const RunConfig& config, const StageHolding& holding) {
  const UnderWay under_way = under_way_at(config, holding.stage);
  json.begin_object()
      .member("stage", holding.stage.stage.value)
      .member("first_layer", holding.stage.first_layer)
      .member("last_layer", holding.stage.last_layer)
      .member("peers", holding.peers)
      .member("parameters", holding.parameters)
      .member("microbatches", under_way.microbatches)
      .member("graphs", under_way.graphs)
      .member("activation_bytes_per_microbatch", holding.activation_bytes)
      .member("checkpoint_bytes", holding.saved_bytes);
  write_memory(json.key("cpu"), holding.memory);
  write_memory(json.key("cpu_recomputing"), holding.memory_recomputing);
  write_memory(json.key("cuda_device"), holding.cuda.device);
  write_memory(json.key("cuda_host"), holding.cuda.host);
  json.key("fits").begin_array();
  for (const Card& card : common_cards())
    if (fits(card, holding.cuda.device.total())) json.value(card.name);
  json.end_array().end_object();
}

}  // namespace

const std::vector<Card>& common_cards() {
  static const std::vector<Card> kCards = {
      {"RTX 3060 12 GB", 12 * kGiB}, kSpotCard,
      {"V100 16 GB", 16 * kGiB},     {"A10G 24 GB", 23 * kGiB},
      {"RTX 4090 24 GB", 24 * kGiB}, {"A100 40 GB", 40 * kGiB},
      {"L40S 48 GB", 46 * kGiB},     {"H100 80 GB", 80 * kGiB},
  };
  return kCards;
}

bool fits(const Card& card, std::uint64_t device_bytes) {
  return static_cast<double>(device_bytes) <= static_cast<double>(card.bytes) * (1 - kCardReserve);
}

std::string memory_text(const RunConfig& config, const std::vector<StageHolding>& stages) {
  std::string out;
  std::uint64_t all = 0;
  std::uint32_t peers = 0;
  for (const StageHolding& holding : stages) {
    out += stage_text(config, holding) + "\n";
    all += holding.peers * holding.memory.total();
    peers += holding.peers;
  }
  out += fmt::format(
      "All {} peers on CPUs: {}. Beside this each process takes what the program and libtorch do:\n"
      "some 150 MiB on a CPU, and on a GPU the CUDA context. How it is counted, and how near it "
      "is\n"
      "to what runs take: docs/memory.md.\n",
      peers, bytes_text(all));
  return out;
}

std::string memory_json(const RunConfig& config, const ModelSpec& model,
                        const std::vector<StageHolding>& stages) {
  JsonWriter json(2);
  json.begin_object().member("format", kMemoryFormat).member("run", config.run.name);
  json.member("vocab", model.shape.vocab).member("sequence", model.sequence);
  json.member("microbatch", config.batch.microbatch);
  json.key("stages").begin_array();
  for (const StageHolding& holding : stages) write_stage(json, config, holding);
  json.end_array().key("cards").begin_array();
  for (const Card& card : common_cards())
    json.begin_object().member("name", card.name).member("bytes", card.bytes).end_object();
  return json.end_array().end_object().take() + "\n";
}

}  // namespace swarmline
