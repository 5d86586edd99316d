// A butterfly all-reduce with all its members in one process on one core: encode, decode, checksum
// and add, no network. Arguments: members, codec of both halves. Counters: bytes_per_second of the
// members' vectors, `memcpy` = speed as a share of copying every member's vector once, measured in
// the same process (a plain number, though it is printed with "/s"), `wire` = bytes a member sends
// per byte of its vector. The result is checked before anything is timed.

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include "base/byte_ops.h"
#include "base/rng.h"
#include "bench/copy_rate.h"
#include "engine/collective/butterfly.h"
#include "engine/collective/slices.h"

namespace swarmline {
namespace {

constexpr std::uint64_t kElements = 4 * 1024 * 1024;  // 16 MiB of fp32
constexpr std::uint64_t kBytes = kElements * sizeof(float);
constexpr double kErrorMax = 0.1;  // lin8 on sums of at most eight values in [-1, 1]

struct Vectors {
  std::vector<Buffer> inputs;
  std::vector<Buffer> outputs;
};

Vectors make_vectors(std::uint32_t ranks) {
  Vectors vectors;
  for (std::uint32_t r = 0; r < ranks; ++r) {
    Rng rng(r + 1);
    vectors.inputs.emplace_back(kBytes);
    for (float& value : vectors.inputs.back().as<float>())
      value = unit_float(rng.next_u32()) * 2 - 1;
    vectors.outputs.push_back(Buffer::zeroed(kBytes));
  }
  return vectors;
}

// Wire bytes that the members sent in all; 0: a chunk was refused or the round did not end.
std::uint64_t reduce(const CodecSpec& codec, Vectors& vectors) {
  const auto ranks = static_cast<std::uint32_t>(vectors.inputs.size());
  const std::vector<double> weights(ranks, 1.0 / ranks);
  std::vector<std::unique_ptr<ButterflyAllReduce>> members;
  std::deque<std::pair<std::uint32_t, ChunkSend>> wire;
  for (std::uint32_t r = 0; r < ranks; ++r) {
    ButterflySpec spec{.rank = r,
                       .ranks = ranks,
                       .elements = kElements,
                       .bounds = slice_bounds(kElements, weights, 16),
                       .scatter = std::vector<CodecSpec>(ranks, codec),
                       .gather = codec};
    members.push_back(std::make_unique<ButterflyAllReduce>(
        std::move(spec), vectors.inputs[r].bytes(), vectors.outputs[r].bytes()));
    while (members[r]->send_more([&](ChunkSend send) { wire.emplace_back(r, std::move(send)); })) {
    }
  }
  while (!wire.empty()) {
    const auto [from, send] = std::move(wire.front());
    wire.pop_front();
    auto sends = members[send.to]->on_chunk(from, send.part, send.chunk, send.whole());
    if (!sends) return 0;
    for (ChunkSend& next : *sends) wire.emplace_back(send.to, std::move(next));
  }
  std::uint64_t bytes = 0;
  for (const auto& member : members) {
    if (!member->done()) return 0;
    bytes += member->progress().bytes_to_send;
  }
  return bytes;
}

bool is_right(const CodecSpec& codec, Vectors& vectors) {
  if (reduce(codec, vectors) == 0) return false;
  const auto first = vectors.outputs[0].as<float>();
  for (const Buffer& output : vectors.outputs) {
    if (!same_bytes(output.bytes(), vectors.outputs[0].bytes())) return false;
  }
  for (std::size_t i = 0; i < kElements; i += 997) {
    float sum = 0;
    for (const Buffer& input : vectors.inputs) sum += input.as<float>()[i];
    const double error = double{first[i]} - double{sum};
    const double error_max = codec.kind == CodecKind::kNone ? 0 : kErrorMax;
    if (!(error <= error_max && error >= -error_max)) return false;
  }
  return true;
}

void all_reduce(benchmark::State& state, const CodecSpec& codec) {
  const auto ranks = static_cast<std::uint32_t>(state.range(0));
  Vectors vectors = make_vectors(ranks);
  if (!is_right(codec, vectors)) {
    state.SkipWithError("wrong sums");
    return;
  }
  const double copy = bench::copy_seconds(kBytes) * ranks;
  std::uint64_t wire = 0;
  const double start = bench::thread_seconds();
  for (auto _ : state) wire += reduce(codec, vectors);
  const double each = (bench::thread_seconds() - start) / static_cast<double>(state.iterations());
  const auto bytes = state.iterations() * static_cast<std::int64_t>(kBytes * ranks);
  state.SetBytesProcessed(bytes);
  state.counters["memcpy"] = copy / each;
  state.counters["wire"] = static_cast<double>(wire) / static_cast<double>(bytes);
}

void register_all() {
  for (const char* kind : {"none", "fp16", "bf16", "lin8"}) {
    const CodecSpec codec = *parse_codec(kind);
    const std::string name = "all_reduce/" + to_string(codec);
    benchmark::RegisterBenchmark(name.c_str(),
                                 [codec](benchmark::State& state) { all_reduce(state, codec); })
        ->Arg(2)
        ->Arg(4)
        ->Arg(8)
        ->ArgName("members")
        ->Unit(benchmark::kMillisecond);
  }
}

}  // namespace
}  // namespace swarmline

int main(int argc, char** argv) {
  swarmline::register_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
