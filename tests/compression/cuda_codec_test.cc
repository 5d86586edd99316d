// DeviceCodec on CUDA has the bits, values and errors of encode() and decode(): on a GPU, without
// which it skips with the reason; and over a stand-in for CUDA, on the host.

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "base/byte_ops.h"
#include "base/hash.h"
#include "compression/wire.h"
#include "kernels/kernels.h"
#include "tests/compression/cuda_under_test.h"
#include "tests/compression/wire_values.h"
#include "tests/kernels/device_array.h"

namespace swarmline {
namespace {

using testing::all_codecs;
using testing::DeviceBytes;

constexpr kernels::StochasticKey kKey{.seed = 11, .stream = {5}};

class CudaCodec : public testing::CudaTest {
 protected:
  void SetUp() override {
    testing::CudaTest::SetUp();
    if (IsSkipped()) return;
    auto made = testing::codec_under_test();
    ASSERT_TRUE(made) << made.error().what;
    codec_ = std::move(*made);
  }

  static DeviceValues values_in(DeviceBytes& bytes, std::size_t n, DType dtype = DType::kF32) {
    return {.at = reinterpret_cast<DeviceAddress>(bytes.data()), .elements = n, .dtype = dtype};
  }
  // Encodes and decodes on both sides.
  void expect_host_bits(const CodecSpec& spec, const std::vector<float>& values,
                        const kernels::StochasticKey* key = nullptr) {
    SCOPED_TRACE(to_string(spec) + " of " + std::to_string(values.size()));
    DeviceBytes in(values.data(), values.size() * sizeof(float));
    const Buffer wanted = testing::encode_values(spec, values, key);
    const auto wire = codec_->encode(spec, values_in(in, values.size()), key);
    ASSERT_TRUE(wire) << wire.error().what;
    ASSERT_TRUE(same_bytes(wire->bytes(), wanted.bytes()));
    std::vector<float> out(values.size());
    const auto decoded = decode(*wire, out);
    ASSERT_TRUE(decoded) << decoded.error().what;
    EXPECT_TRUE(testing::same_bits(out, testing::decode_values<float>(wanted.bytes(), out.size())));
  }
  Result<void> decode(const Buffer& wire, std::vector<float>& out) {
    DeviceBytes on_device(out.size() * sizeof(float));
    SWARMLINE_TRY(codec_->decode(wire.bytes(), values_in(on_device, out.size())));
    on_device.copy_to(out.data());
    return {};
  }
  // That both sides refuse `wire` in the same words.
  void expect_refused(const Buffer& wire, std::size_t n) {
    std::vector<float> out(n);
    const auto wanted = swarmline::decode(wire.bytes(), DType::kF32, testing::writable(out));
    const auto refused = decode(wire, out);
    ASSERT_FALSE(wanted);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, wanted.error().code);
    EXPECT_EQ(refused.error().what, wanted.error().what);
  }

  std::unique_ptr<DeviceCodec> codec_;
};

std::vector<std::size_t> sizes() {
  std::vector<std::size_t> all = {0,    1,    31,     32,     33,     63,      64,       65,
                                  4095, 4096, 65'535, 65'536, 65'537, 200'001, 1'000'003};
  std::erase_if(all, [](std::size_t n) { return n > testing::largest_under_test(); });
  return all;
}

TEST_F(CudaCodec, HasTheHostsBitsAtEverySize) {
  for (const CodecSpec& spec : all_codecs())
    for (const std::size_t n : sizes())
      ASSERT_NO_FATAL_FAILURE(expect_host_bits(spec, testing::samples<float>(n, 3)));
}

TEST_F(CudaCodec, RoundsStochasticallyAsTheHost) {
  for (const CodecSpec& spec : all_codecs())
    for (const std::size_t n : {1UL, 4096UL, 65'537UL, testing::largest_under_test()})
      ASSERT_NO_FATAL_FAILURE(expect_host_bits(spec, testing::samples<float>(n, 4), &kKey));
}

TEST_F(CudaCodec, CarriesWhatIsNotFinite) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const CodecSpec& spec : all_codecs()) {
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), kInf, -kInf, 3e38F}) {
      for (const std::size_t at : {0UL, 65'535UL, 65'536UL, 131'071UL}) {
        std::vector<float> values = testing::samples<float>(131'072, 5);
        values[at] = bad;
        ASSERT_NO_FATAL_FAILURE(expect_host_bits(spec, values));
      }
    }
  }
}

// One codec object through small and large tensors: nothing of an earlier one is left over.
TEST_F(CudaCodec, ATensorLeavesNoTrace) {
  std::vector<float> bad = testing::samples<float>(300'000, 6);
  bad.back() = std::numeric_limits<float>::quiet_NaN();
  for (const CodecSpec& spec : all_codecs()) {
    ASSERT_NO_FATAL_FAILURE(expect_host_bits(spec, bad));
    ASSERT_NO_FATAL_FAILURE(expect_host_bits(spec, testing::samples<float>(100, 7)));
  }
}

TEST_F(CudaCodec, RefusesCorruptWires) {
  for (const CodecSpec& spec : all_codecs()) {
    SCOPED_TRACE(to_string(spec));
    const std::size_t n = 2 * kWireTileElements + 131;
    const Buffer good = testing::encode_values(spec, testing::samples<float>(n, 8));
    const auto flipped = [&](std::size_t at) {
      Buffer wire = Buffer::copy_of(good.bytes());
      wire.data()[at] ^= std::byte{4};
      return wire;
    };
    for (const std::size_t at : {0UL, 6UL, 24UL, 60UL, 64UL, good.size() / 2, good.size() - 1})
      expect_refused(flipped(at), n);
    expect_refused(Buffer::copy_of(good.bytes().first(good.size() - 64)), n);
    expect_refused(Buffer::copy_of(good.bytes().first(63)), n);
    expect_refused(good, n - 1);
    expect_refused(good, n + 1);
    expect_refused(good, 0);
  }
}

TEST_F(CudaCodec, RefusesNonFiniteValuesWithoutTheirFlag) {
  for (const CodecSpec& spec : all_codecs()) {
    std::vector<float> values = testing::samples<float>(70'000, 9);
    values[66'000] = std::numeric_limits<float>::quiet_NaN();
    Buffer wire = testing::encode_values(spec, values);
    wire.data()[9] = std::byte{0};
    const std::uint64_t hash = xxh3(wire.bytes().first(56));
    std::memcpy(wire.data() + 56, &hash, sizeof hash);
    expect_refused(wire, values.size());
  }
}

// The sums are those of the host but for their order, what is not finite included.
void expect_near(double on_device, double on_host) {
  ASSERT_EQ(std::fpclassify(on_device), std::fpclassify(on_host)) << on_device << " " << on_host;
  if (std::isfinite(on_host)) EXPECT_NEAR(on_device, on_host, 1e-9 * on_host);
}

TEST_F(CudaCodec, MeasuresAsTheHost) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (const CodecSpec& spec : all_codecs()) {
    for (const std::size_t n : sizes()) {
      for (const float last : {1.0F, 3e38F, kInf, -kInf, kNan}) {
        SCOPED_TRACE(to_string(spec) + " of " + std::to_string(n) + ", last " +
                     std::to_string(last));
        std::vector<float> values = testing::samples<float>(n, 10);
        if (n > 0) values.back() = last;
        const kernels::StochasticKey* key = n % 2 == 0 ? &kKey : nullptr;
        DeviceBytes in(values.data(), n * sizeof(float));
        const auto measured = codec_->measure(spec, values_in(in, n), key);
        ASSERT_TRUE(measured) << measured.error().what;
        const Buffer wire = testing::encode_values(spec, values, key);
        const auto error = measure_error(wire.bytes(), testing::view(values), DType::kF32);
        expect_near(measured->error.squared_error, error->squared_error);
        expect_near(measured->error.squared_norm, error->squared_norm);
        ASSERT_TRUE(measured->time);
        EXPECT_GT(*measured->time, Duration{});
      }
    }
  }
}

// Straight from bf16 and into it, as the host does: the same wire buffer, source type and values.
TEST_F(CudaCodec, HasTheHostsBitsOfBf16) {
  for (const CodecSpec& spec : all_codecs()) {
    for (const std::size_t n : sizes()) {
      for (const bool stochastic : {false, true}) {
        const kernels::StochasticKey* const key = stochastic ? &kKey : nullptr;
        SCOPED_TRACE(to_string(spec) + " of " + std::to_string(n));
        const std::vector<float> wide = testing::samples<float>(n, 12);
        std::vector<std::uint16_t> values(n), out(n), expected(n);
        kernels::fp32_to_bf16(wide.data(), values.data(), n);
        const BytesView bytes = std::as_bytes(std::span(values));
        DeviceBytes in(values.data(), bytes.size()), back(bytes.size());
        const Buffer wanted = encode(spec, bytes, DType::kBF16, key);
        const auto wire = codec_->encode(spec, values_in(in, n, DType::kBF16), key);
        ASSERT_TRUE(wire) << wire.error().what;
        ASSERT_TRUE(same_bytes(wire->bytes(), wanted.bytes()));
        const auto decoded = codec_->decode(wire->bytes(), values_in(back, n, DType::kBF16));
        ASSERT_TRUE(decoded) << decoded.error().what;
        back.copy_to(out.data());
        ASSERT_TRUE(swarmline::decode(wanted.bytes(), DType::kBF16,
                                      std::as_writable_bytes(std::span(expected))));
        EXPECT_EQ(out, expected);
        const auto measured = codec_->measure(spec, values_in(in, n, DType::kBF16), key);
        ASSERT_TRUE(measured) << measured.error().what;
        const auto error = measure_error(wanted.bytes(), bytes, DType::kBF16);
        expect_near(measured->error.squared_error, error->squared_error);
        expect_near(measured->error.squared_norm, error->squared_norm);
      }
    }
  }
}

}  // namespace
}  // namespace swarmline
