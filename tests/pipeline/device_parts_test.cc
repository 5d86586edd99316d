// A round whose values are in a device's memory ends with the bits of one on the host, and so do
// the residuals that error feedback carries on.
#include "pipeline/averaging/device_parts.h"

#include <array>
#include <memory>

#include <gtest/gtest.h>

#include "base/byte_ops.h"
#include "sim/cluster/resident_model.h"
#include "tests/collective/chunk_bag.h"

namespace swarmline {
namespace {

constexpr std::uint32_t kRanks = 3;
constexpr std::uint64_t kElements = 5000;
constexpr std::size_t kBytes = kElements * sizeof(float);

struct Case {
  const char* codec;
  bool feedback;
  bool stochastic;
};

// Of one member: values, average and the residuals of this round and the next.
struct Member {
  Buffer values, average = Buffer::zeroed(kBytes);
  std::array<Buffer, 2> residuals = {Buffer::zeroed(kBytes), Buffer::zeroed(kBytes)};
};

class DevicePartsTest : public testing::TestWithParam<Case> {
 protected:
  DevicePartsTest() {
    layout_.elements = kElements;
    layout_.dtype = DType::kF32;
    for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
      there_[rank].bus = std::make_shared<DeviceBus>();
      there_[rank].gradients = std::make_unique<HostedGradients>(DType::kF32, there_[rank].bus);
      there_[rank].memory =
          std::make_unique<HostedOptimizer>(OptimizerSection{}, layout_, there_[rank].bus);
    }
  }

  ButterflySpec spec_of(std::uint32_t rank, std::vector<std::uint64_t> bounds) const {
    const auto codec = parse_codec(GetParam().codec, {.topk = 0.1});
    ButterflySpec spec{.rank = rank,
                       .ranks = kRanks,
                       .elements = kElements,
                       .bounds = std::move(bounds),
                       .scatter = std::vector(kRanks, *codec),
                       .gather = *codec,
                       .chunk_bytes = 1000 * sizeof(float)};
    if (codec->kind == CodecKind::kTopK) spec.gather = codec_of_sum(*codec, kRanks, DType::kF32);
    if (GetParam().stochastic) spec.key = kernels::StochasticKey{.seed = 5, .stream = {1, 2, 0}};
    return spec;
  }
  Residual residual_of(Member& member, int round) const {
    if (!GetParam().feedback) return {};
    return {.current = member.residuals[round % 2].bytes(),
            .next = member.residuals[1 - round % 2].bytes()};
  }

  static void exchange(std::array<std::unique_ptr<ButterflyAllReduce>, kRanks>& reduces, Rng& rng) {
    ChunkBag bag;
    for (std::uint32_t rank = 0; rank < kRanks; ++rank)
      while (reduces[rank]->send_more([&](ChunkSend send) { bag.post(rank, std::move(send)); })) {
      }
    while (!bag.empty()) {
      const ChunkBag::Message message = bag.take(Order::kRandom, rng);
      auto sends = reduces[message.send.to]->on_chunk(message.from, message.send.part,
                                                      message.send.chunk, message.send.whole());
      ASSERT_TRUE(sends) << sends.error().what;
      bag.post(message.send.to, std::move(*sends));
    }
    for (const auto& reduce : reduces) ASSERT_TRUE(reduce->done());
  }

  void on_host(std::array<Member, kRanks>& members, const std::vector<std::uint64_t>& bounds,
               int round) {
    std::array<std::unique_ptr<ButterflyAllReduce>, kRanks> reduces;
    for (std::uint32_t rank = 0; rank < kRanks; ++rank)
      reduces[rank] = std::make_unique<ButterflyAllReduce>(
          spec_of(rank, bounds), members[rank].values.bytes(), members[rank].average.bytes(),
          residual_of(members[rank], round));
    exchange(reduces, rng_);
  }

  // What is on the device is the member's; the host has no numbers but what was fetched.
  void on_device(std::array<Member, kRanks>& members, const std::vector<std::uint64_t>& bounds,
                 int round) {
    std::array<std::unique_ptr<ButterflyAllReduce>, kRanks> reduces;
    std::array<std::vector<SharedBytes>, kRanks> sums;
    std::array<Buffer, kRanks> inputs, outputs;
    std::array<std::array<Buffer, 2>, kRanks> residuals;
    for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
      const ButterflySpec spec = spec_of(rank, bounds);
      Member& member = members[rank];
      const auto no_numbers = [] {
        Buffer bytes(kBytes);
        fill_bytes(bytes.bytes(), std::byte{0xFF});
        return bytes;
      };
      inputs[rank] = no_numbers();
      outputs[rank] = no_numbers();
      residuals[rank] = {no_numbers(), no_numbers()};
      Residual here;
      DeviceGradients::Feedback feedback;
      if (GetParam().feedback) {
        here = {.current = residuals[rank][0].bytes(), .next = residuals[rank][1].bytes()};
        feedback = {.current = member.residuals[round % 2].data(),
                    .next = member.residuals[1 - round % 2].data()};
      }
      auto parts = take_parts(
          side(rank), spec, member.values.data(), feedback,
          {.values = inputs[rank].bytes(),
           .residual = GetParam().feedback ? residuals[rank][0].bytes() : MutableBytes()});
      ASSERT_TRUE(parts) << parts.error().what;
      reduces[rank] = std::make_unique<ButterflyAllReduce>(spec, inputs[rank].bytes(),
                                                           outputs[rank].bytes(), here);
      reduces[rank]->take_parts(std::move(*parts));
      const SliceChunks chunks = chunks_of(spec);
      sums[rank].resize(chunks.total());
      reduces[rank]->watch_sums([&sums, rank, chunks](const SliceChunks::Place& at,
                                                      const std::vector<SharedBytes>& wire) {
        ASSERT_EQ(wire.size(), 1U);
        sums[rank][chunks.number(at)] = wire.front().kept();
      });
    }
    exchange(reduces, rng_);
    for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
      const ButterflySpec spec = spec_of(rank, bounds);
      ASSERT_TRUE(bring_sums(side(rank), spec, sums[rank], members[rank].average.data()));
      EXPECT_TRUE(same_bytes(members[rank].average.bytes(), outputs[rank].bytes()));
      if (GetParam().feedback)
        ASSERT_TRUE(bring_own_residual(side(rank), spec, residuals[rank][1].bytes(),
                                       members[rank].residuals[1 - round % 2].data()));
    }
  }

  DeviceSide side(std::uint32_t rank) { return {*there_[rank].gradients, *there_[rank].memory}; }

  struct There {
    std::shared_ptr<DeviceBus> bus;
    std::unique_ptr<HostedGradients> gradients;
    std::unique_ptr<HostedOptimizer> memory;
  };
  ParameterLayout layout_;
  std::array<There, kRanks> there_;
  Rng rng_{1};
};

TEST_P(DevicePartsTest, EndsAsOnTheHost) {
  std::array<Member, kRanks> here, there;
  // Slices that move, an empty one among them, and chunks that end within a tile.
  const std::vector<std::vector<std::uint64_t>> bounds = {
      {0, 1700, 3300, kElements}, {0, 2500, 2500, kElements}, {0, 1, 4000, kElements}};
  for (int round = 0; round < 3; ++round) {
    Rng draws(static_cast<std::uint64_t>(round) + 10);
    for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
      here[rank].values = random_values(kElements, DType::kF32, draws);
      there[rank].values = Buffer::copy_of(here[rank].values.bytes());
    }
    on_host(here, bounds[round], round);
    on_device(there, bounds[round], round);
    for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
      EXPECT_TRUE(same_bytes(here[rank].average.bytes(), there[rank].average.bytes()));
      const auto& next = here[rank].residuals[1 - round % 2];
      EXPECT_TRUE(same_bytes(next.bytes(), there[rank].residuals[1 - round % 2].bytes()))
          << "rank " << rank << ", round " << round;
    }
  }
}

TEST_P(DevicePartsTest, OnlyWhatTravelsAndTheOwnSliceCrossTheBus) {
  std::array<Member, kRanks> members;
  for (Member& member : members) member.values = random_values(kElements, DType::kF32, rng_);
  const std::vector<std::uint64_t> bounds = {0, 1700, 3300, kElements};
  on_device(members, bounds, 0);
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
    const ButterflySpec spec = spec_of(rank, bounds);
    const std::uint64_t own = (bounds[rank + 1] - bounds[rank]) * sizeof(float);
    std::uint64_t parts = 0, sums = 0;
    const SliceChunks chunks = chunks_of(spec);
    for (std::uint32_t number = 0; number < chunks.total(); ++number) {
      const SliceChunks::Place at = chunks.place(number);
      sums += encoded_bytes(spec.gather, chunks.elements(at), DType::kF32);
      if (at.slice != rank)
        parts += encoded_bytes(spec.scatter[at.slice], chunks.elements(at), DType::kF32);
    }
    const std::uint64_t slices = GetParam().feedback ? 2 : 1;  // values, and the residual
    EXPECT_EQ(there_[rank].bus->to_host, parts + slices * own);
    EXPECT_EQ(there_[rank].bus->to_device, sums + (slices - 1) * own);
  }
}

INSTANTIATE_TEST_SUITE_P(Codecs, DevicePartsTest,
                         testing::Values(Case{"lin8", false, false}, Case{"bf16", false, false},
                                         Case{"h8", false, true}, Case{"int4", true, false},
                                         Case{"dyn8", true, true}, Case{"topk", true, false}),
                         [](const auto& info) {
                           return std::string(info.param.codec) +
                                  (info.param.feedback ? "Feedback" : "") +
                                  (info.param.stochastic ? "Stochastic" : "");
                         });

}  // namespace
}  // namespace swarmline
