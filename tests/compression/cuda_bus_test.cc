// What crosses the bus in a stage's jobs, counted by the stand-in for CUDA: wire buffers as they
// travel, and at most 64 bytes beside them. Jobs do what engine/model/stage_model.cc and
// tensor_pass.h do.

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <thread>

#include <gtest/gtest.h>

#include "base/byte_ops.h"
#include "base/rng.h"
#include "compression/wire.h"
#include "kernels/kernels.h"
#include "kernels/tensor_lanes.h"
#include "tests/compression/cuda_under_test.h"
#include "tests/compression/wire_values.h"
#include "tests/kernels/cuda_stand_in.h"
#include "tests/kernels/device_array.h"

namespace swarmline {
namespace {

using testing::crossed;
using testing::Crossed;
using testing::DeviceBytes;

constexpr std::uint64_t kBesideMax = 64;  // bytes a job
constexpr std::uint64_t kFlag = 4, kNumber = 8;
constexpr kernels::StochasticKey kKey{.seed = 11, .stream = {5}};

std::vector<std::byte> elements(std::size_t n, DType dtype, std::uint64_t seed) {
  const std::vector<float> wide = testing::samples<float>(n, seed);
  std::vector<std::byte> bytes(n * size_bytes(dtype));
  if (dtype == DType::kBF16)
    kernels::fp32_to_bf16(wide.data(), reinterpret_cast<std::uint16_t*>(bytes.data()), n);
  else
    std::ranges::copy(testing::view(wide), bytes.begin());
  return bytes;
}

// A tensor of the model, in the device's memory.
class DeviceTensor {
 public:
  DeviceTensor(std::size_t n, DType dtype) : n_(n), dtype_(dtype), bytes_(n * size_bytes(dtype)) {}
  DeviceTensor(BytesView values, DType dtype)
      : n_(values.size() / size_bytes(dtype)),
        dtype_(dtype),
        bytes_(values.data(), values.size()) {}
  DeviceValues values() {
    return {.at = reinterpret_cast<DeviceAddress>(bytes_.data()), .elements = n_, .dtype = dtype_};
  }
  std::vector<std::byte> on_host() {
    std::vector<std::byte> values(n_ * size_bytes(dtype_));
    bytes_.copy_to(values.data());
    return values;
  }

 private:
  const std::size_t n_;
  const DType dtype_;
  DeviceBytes bytes_;
};

// A number that a pass computes, in a place that is another's right behind it.
class PassNumber {
 public:
  explicit PassNumber(double value) { set(value); }
  const double* at() { return reinterpret_cast<const double*>(place_.data()); }
  void set(double value) {
    auto* const to = reinterpret_cast<double*>(place_.data());
    EXPECT_EQ(testing::queue_kernel(nullptr, {to}, [to, value] { *to = value; }), cudaSuccess);
  }

 private:
  DeviceBytes place_{sizeof(double)};
};

struct Job {
  CodecSpec codec;
  DType dtype = DType::kF32;
  std::size_t n = 0;
};

std::vector<CodecSpec> link_codecs() {
  std::vector<CodecSpec> codecs = testing::all_codecs();
  std::erase_if(codecs, [](const CodecSpec& c) { return c.kind == CodecKind::kTopK; });
  return codecs;
}

class CudaBus : public ::testing::Test {
 protected:
  void expect_beside(const Crossed& moved, const Crossed& wires) {
    EXPECT_LE(moved.to_device + moved.to_host, wires.to_device + wires.to_host + kBesideMax);
    EXPECT_LE(moved.to_device, wires.to_device);  // what is beside goes to the host
  }
  const std::unique_ptr<DeviceCodec> codec_ = std::move(*testing::codec_under_test());
};

// Forward, and backward: a wire buffer in, one out, and whether all is finite, or the loss.
TEST_F(CudaBus, APassMovesItsWiresANumberAndAFlag) {
  for (const CodecSpec& codec : link_codecs()) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const std::size_t n : {0UL, 1UL, 65'535UL, 65'537UL, 140'000UL}) {
        SCOPED_TRACE(to_string(codec) + " of " + std::to_string(n));
        const auto came = elements(n, dtype, 3), made = elements(n, dtype, 4);
        const Buffer wire_in = encode(codec, came, dtype, nullptr);
        const Buffer wanted = encode(codec, made, dtype, &kKey);
        DeviceTensor in(n, dtype), out(made, dtype);
        PassNumber number(2.5);
        const Crossed before = crossed();
        ASSERT_TRUE(codec_->decode(wire_in.bytes(), in.values()));
        auto leaving = codec_->begin_encode(codec, out.values(), &kKey, number.at());
        ASSERT_TRUE(leaving) << leaving.error().what;
        number.set(-1);
        const auto wire = (*leaving)->wait();
        ASSERT_TRUE(wire) << wire.error().what;
        const Crossed moved = crossed() - before;

        EXPECT_EQ((*leaving)->number(), 2.5);
        EXPECT_TRUE(same_bytes(wire->bytes(), wanted.bytes()));
        expect_beside(moved, {wire_in.size(), wire->size()});
        EXPECT_EQ(moved, (Crossed{wire_in.size(), wire->size() + kNumber + kFlag}));
      }
    }
  }
}

// Of the last stage forward: the loss alone leaves. Of the first one: tokens come as they are.
TEST_F(CudaBus, TokensComeAsTheyAreAndANumberLeavesAlone) {
  const auto tokens = elements(4097, DType::kF32, 5), targets = elements(4097, DType::kF32, 6);
  DeviceTensor in(4097, DType::kF32), aim(4097, DType::kF32);
  PassNumber loss(7.25);
  const Crossed before = crossed();
  ASSERT_TRUE(codec_->bring(tokens, in.values().at));
  ASSERT_TRUE(codec_->bring(targets, aim.values().at));
  ASSERT_TRUE(codec_->bring({}, in.values().at));
  const auto leaving = codec_->begin_number(loss.at());
  ASSERT_TRUE(leaving);
  loss.set(-1);
  const auto wire = (*leaving)->wait();
  ASSERT_TRUE(wire);
  EXPECT_TRUE(wire->empty());
  EXPECT_EQ((*leaving)->number(), 7.25);
  EXPECT_EQ(crossed() - before, (Crossed{tokens.size() + targets.size(), kNumber}));
  EXPECT_EQ(in.on_host(), tokens);
  EXPECT_EQ(aim.on_host(), targets);
}

// It tells when all that was queued is done; nothing crosses.
TEST_F(CudaBus, AWeightGradientJobMovesNothing) {
  // Places are made the first time, and that waits.
  for (std::size_t i = 0; i < kernels::LeavingTensors::kLeaving; ++i)
    ASSERT_TRUE((*codec_->begin_number(nullptr))->wait());
  bool done = false;
  const Crossed before = crossed();
  ASSERT_EQ(testing::queue_kernel(nullptr, {}, [&] { done = true; }), cudaSuccess);
  const auto end = codec_->begin_number(nullptr);
  ASSERT_TRUE(end);
  EXPECT_FALSE(done);
  ASSERT_TRUE((*end)->wait());
  EXPECT_TRUE(done);
  EXPECT_EQ((*end)->number(), 0);
  EXPECT_EQ(crossed() - before, Crossed{});
}

// Every checksum is before anything else: of a damaged wire buffer nothing crosses.
TEST_F(CudaBus, NothingOfADamagedWireCrosses) {
  for (const CodecSpec& codec : link_codecs()) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      SCOPED_TRACE(to_string(codec));
      const std::size_t n = 2 * kWireTileElements + 131;
      const Buffer good = encode(codec, elements(n, dtype, 8), dtype);
      const auto canary = elements(n, dtype, 9);
      DeviceTensor out(canary, dtype);
      for (const std::size_t at : {0UL, 24UL, 60UL, 64UL, good.size() / 2, good.size() - 1}) {
        Buffer wire = Buffer::copy_of(good.bytes());
        wire.data()[at] ^= std::byte{4};
        const Crossed before = crossed();
        const auto refused = codec_->decode(wire.bytes(), out.values());
        ASSERT_FALSE(refused) << at;
        EXPECT_EQ(refused.error().code, ErrorCode::kCorrupt);
        EXPECT_EQ(crossed() - before, Crossed{});
      }
      EXPECT_EQ(out.on_host(), canary);
    }
  }
}

// How much of what is queued is done before it must be: nothing, or some of it.
class CudaBusOrder : public ::testing::TestWithParam<double> {};

// Passes one after another, each waited for later, on any thread, or dropped.
TEST_P(CudaBusOrder, PassesCrossWhole) {
  const CodecSpec codecs[] = {*parse_codec("lin8"), *parse_codec("bf16"), *parse_codec("none"),
                              *parse_codec("int4")};
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    const testing::CudaOrder order(seed, GetParam());
    const auto codec = std::move(*testing::codec_under_test());
    Rng rng(seed + 1000);
    struct Awaited {
      std::unique_ptr<LeavingWire> leaving;
      Buffer wanted;
      double number;
    };
    std::deque<Awaited> awaited;
    const auto end_one = [&] {
      Awaited first = std::move(awaited.front());
      awaited.pop_front();
      if (rng.below(8) == 0) return;  // dropped
      std::thread([&] {
        if (first.number < 12) ASSERT_TRUE(first.leaving->made());
        const auto wire = first.leaving->wait();
        ASSERT_TRUE(wire) << wire.error().what;
        EXPECT_TRUE(same_bytes(wire->bytes(), first.wanted.bytes()));
        EXPECT_EQ(first.leaving->number(), first.number);
      }).join();
    };
    // Of a stage: it reads what came and writes what goes.
    DeviceTensor in(20'000, DType::kF32), out(20'000, DType::kF32), tokens(20'000, DType::kF32);
    PassNumber number(0);
    for (std::uint64_t pass = 0; pass < 24; ++pass) {
      const CodecSpec& spec = codecs[rng.below(4)];
      const DType dtype = rng.below(2) == 0 ? DType::kF32 : DType::kBF16;
      const std::size_t n = rng.below(20'000);
      const auto came = elements(n, dtype, 2 * pass);
      const Buffer wire = encode(spec, came, dtype);
      const auto with = [&](DeviceTensor& tensor) {
        return DeviceValues{.at = tensor.values().at, .elements = n, .dtype = dtype};
      };
      const auto ids = elements(n, DType::kF32, 2 * pass + 1);
      ASSERT_TRUE(codec->bring(ids, tokens.values().at));
      ASSERT_TRUE(codec->decode(wire.bytes(), with(in)));
      const std::size_t bytes = came.size();
      const auto value = static_cast<double>(pass);
      number.set(value);
      ASSERT_EQ(testing::queue_kernel(nullptr, {in.values().at, out.values().at},
                                      [from = in.values().at, to = out.values().at, bytes,
                                       at = tokens.values().at, ids] {
                                        EXPECT_TRUE(std::equal(ids.begin(), ids.end(), at));
                                        std::copy_n(from, bytes, to);
                                      }),
                cudaSuccess);
      std::vector<std::byte> values(bytes);
      ASSERT_TRUE(decode(wire.bytes(), dtype, values));
      if (awaited.size() == 3) end_one();
      auto leaving = codec->begin_encode(spec, with(out), nullptr, number.at());
      ASSERT_TRUE(leaving) << leaving.error().what;
      number.set(-1);
      awaited.push_back({std::move(*leaving), encode(spec, values, dtype), value});
      while (!awaited.empty() && rng.below(2) == 0) end_one();
    }
    while (!awaited.empty()) end_one();
  }
}

INSTANTIATE_TEST_SUITE_P(LateAndEarly, CudaBusOrder, ::testing::Values(0.0, 0.3, 0.7));

}  // namespace
}  // namespace swarmline
