// What every DeviceGradients does: the bits, values and errors of codec.h's functions on the host,
// wherever a tensor begins. Whoever has one joins with a line:
//
//   INSTANTIATE_TEST_SUITE_P(Double, DeviceGradientsSuite, ::testing::Values(&make_double));
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <limits>
#include <memory>
#include <thread>

#include <gtest/gtest.h>

#include "base/byte_ops.h"
#include "base/hash.h"
#include "compression/device_gradients.h"
#include "compression/wire.h"
#include "kernels/kernels.h"
#include "tests/compression/wire_values.h"

namespace swarmline::testing {

// One of them, and memory of its device. Copies are done when they return.
class GradientsDevice {
 public:
  virtual ~GradientsDevice() = default;
  virtual DeviceGradients& gradients() = 0;
  // At a 64-byte boundary; free() is called for each.
  virtual DeviceAddress allocate(std::size_t bytes) = 0;
  virtual void free(DeviceAddress memory) = 0;
  virtual void bring(BytesView bytes, DeviceAddress to) = 0;
  virtual void fetch(DeviceAddress from, MutableBytes bytes) = 0;
};
// An error: there is no such device here, and the tests skip with its sentence.
using MakeGradientsDevice = Result<std::unique_ptr<GradientsDevice>> (*)();

// n elements in the device's memory, the first of which is number `first` of a larger tensor.
class DeviceFloats {
 public:
  DeviceFloats(GradientsDevice& device, const std::vector<float>& values, std::size_t first)
      : device_(device), n_(values.size()), first_(first), memory_(device.allocate(bytes())) {
    std::vector<float> all(first_ + n_ + kBehind, kCanary);
    std::ranges::copy(values, all.begin() + static_cast<std::ptrdiff_t>(first_));
    device_.bring(view(all), memory_);
  }
  DeviceFloats(const DeviceFloats&) = delete;
  DeviceFloats& operator=(const DeviceFloats&) = delete;
  ~DeviceFloats() { device_.free(memory_); }

  DeviceAddress at() const { return memory_ + first_ * sizeof(float); }
  // Fails if something beside them was written.
  std::vector<float> values() const {
    std::vector<float> all(first_ + n_ + kBehind);
    device_.fetch(memory_, writable(all));
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(first_);
    const auto end = begin + static_cast<std::ptrdiff_t>(n_);
    const auto is_canary = [](float value) { return value == kCanary; };
    EXPECT_TRUE(std::all_of(all.begin(), begin, is_canary) &&
                std::all_of(end, all.end(), is_canary))
        << "written beside " << n_ << " elements from " << first_;
    return {begin, end};
  }

 private:
  static constexpr float kCanary = -12345.0F;
  static constexpr std::size_t kBehind = 5;
  std::size_t bytes() const { return (first_ + n_ + kBehind) * sizeof(float); }

  GradientsDevice& device_;
  const std::size_t n_, first_;
  const DeviceAddress memory_;
};

// Around tiles, and chunks of kernels.
inline constexpr std::size_t kGradientSizes[] = {0,    1,    3,      31,     33,     64,     4095,
                                                 4096, 4097, 65'535, 65'536, 65'537, 200'001};
inline constexpr kernels::StochasticKey kGradientKey{.seed = 11, .stream = {5, 6}};

// Which NaN arithmetic made is left open.
inline bool same_values(const std::vector<float>& a, const std::vector<float>& b) {
  return std::ranges::equal(a, b, [](float x, float y) {
    return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y) ||
           (std::isnan(x) && std::isnan(y));
  });
}

class DeviceGradientsSuite : public ::testing::TestWithParam<MakeGradientsDevice> {
 protected:
  void SetUp() override {
    auto made = GetParam()();
    if (!made) GTEST_SKIP() << made.error().what;
    device_ = std::move(*made);
  }
  DeviceGradients& gradients() { return device_->gradients(); }
  std::vector<CodecSpec> encoded_codecs() {
    std::vector<CodecSpec> codecs = all_codecs();
    std::erase_if(codecs, [&](const CodecSpec& codec) { return !gradients().encodes(codec); });
    EXPECT_FALSE(codecs.empty());
    return codecs;
  }

  void expect_encodes(const CodecSpec& codec, const std::vector<float>& values, std::size_t first,
                      const kernels::StochasticKey* key = nullptr) {
    SCOPED_TRACE(to_string(codec) + " of " + std::to_string(values.size()));
    const DeviceFloats in(*device_, values, first);
    const auto leaving = gradients().begin_encode(codec, in.at(), values.size(), {}, key);
    ASSERT_TRUE(leaving) << leaving.error().what;
    const auto wire = (*leaving)->wait();
    ASSERT_TRUE(wire) << wire.error().what;
    const Buffer wanted = encode_values(codec, values, key);
    ASSERT_TRUE(same_bytes(wire->bytes(), wanted.bytes()));
    EXPECT_TRUE(same_bits(in.values(), values));
  }

  struct FeedbackCase {
    CodecSpec codec;
    std::vector<float> values, current;
    bool in_place = false;
    bool nan = false;  // a sum may be NaN, of which the payload is left open
    const kernels::StochasticKey* key = nullptr;
  };
  void expect_feeds_back(const FeedbackCase& c) {
    const std::size_t n = c.values.size();
    SCOPED_TRACE(to_string(c.codec) + " of " + std::to_string(n) + (c.in_place ? " in place" : ""));
    std::vector<float> wanted_next(n);
    const Buffer wanted =
        encode_with_feedback(c.codec, view(c.values), DType::kF32,
                             {.current = view(c.current), .next = writable(wanted_next)}, c.key);
    const DeviceFloats values(*device_, c.values, n % 4), current(*device_, c.current, n % 3);
    const DeviceFloats other(*device_, std::vector<float>(n, 7.0F), n % 5);
    const DeviceFloats& next = c.in_place ? current : other;
    const auto leaving = gradients().begin_encode(
        c.codec, values.at(), n, {.current = current.at(), .next = next.at()}, c.key);
    ASSERT_TRUE(leaving) << leaving.error().what;
    const auto wire = (*leaving)->wait();
    ASSERT_TRUE(wire) << wire.error().what;
    if (c.nan) {
      EXPECT_EQ(read_wire_header(wire->bytes())->non_finite,
                read_wire_header(wanted.bytes())->non_finite);
      EXPECT_TRUE(same_values(decode_values<float>(wire->bytes(), n),
                              decode_values<float>(wanted.bytes(), n)));
    } else {
      ASSERT_TRUE(same_bytes(wire->bytes(), wanted.bytes()));
    }
    EXPECT_TRUE(same_bits(next.values(), wanted_next));
    EXPECT_TRUE(same_bits(values.values(), c.values));
    if (!c.in_place) EXPECT_TRUE(same_bits(current.values(), c.current));
  }

  void expect_decodes(const CodecSpec& codec, const std::vector<float>& values, std::size_t first) {
    SCOPED_TRACE(to_string(codec) + " of " + std::to_string(values.size()));
    const Buffer wire = encode_values(codec, values);
    const DeviceFloats out(*device_, std::vector<float>(values.size(), 7.0F), first);
    const auto decoded = gradients().decode(wire.bytes(), out.at(), values.size());
    ASSERT_TRUE(decoded) << decoded.error().what;
    ASSERT_TRUE(same_bits(out.values(), decode_values<float>(wire.bytes(), values.size())));
  }
  // In the host's words.
  void expect_refused(const Buffer& wire, std::size_t n) {
    std::vector<float> out(n);
    const auto wanted = decode(wire.bytes(), DType::kF32, writable(out));
    const DeviceFloats on_device(*device_, out, 0);
    const auto refused = gradients().decode(wire.bytes(), on_device.at(), n);
    ASSERT_FALSE(wanted);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, wanted.error().code);
    EXPECT_EQ(refused.error().what, wanted.error().what);
  }

  std::unique_ptr<GradientsDevice> device_;
};

TEST_P(DeviceGradientsSuite, EncodesAsTheHost) {
  for (const CodecSpec& codec : encoded_codecs())
    for (const std::size_t n : kGradientSizes)
      ASSERT_NO_FATAL_FAILURE(expect_encodes(codec, samples<float>(n, 3), n % 4));
}

TEST_P(DeviceGradientsSuite, ATensorMayBeginAnywhere) {
  for (const CodecSpec& codec : encoded_codecs())
    for (std::size_t first = 0; first < 8; ++first)
      ASSERT_NO_FATAL_FAILURE(expect_encodes(codec, samples<float>(4097 + first, first), first));
  for (const CodecSpec& codec : all_codecs())
    for (std::size_t first = 0; first < 8; ++first)
      ASSERT_NO_FATAL_FAILURE(expect_decodes(codec, samples<float>(4097 + first, first), first));
}

TEST_P(DeviceGradientsSuite, RoundsStochasticallyAsTheHost) {
  for (const CodecSpec& codec : encoded_codecs())
    for (const std::size_t n : {1UL, 4097UL, 65'537UL, 200'001UL})
      ASSERT_NO_FATAL_FAILURE(expect_encodes(codec, samples<float>(n, 4), n % 4, &kGradientKey));
}

TEST_P(DeviceGradientsSuite, CarriesWhatIsNotFinite) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const CodecSpec& codec : encoded_codecs()) {
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), kInf, -kInf, 3e38F}) {
      for (const std::size_t at : {0UL, 65'535UL, 65'536UL, 70'000UL}) {
        std::vector<float> values = samples<float>(70'001, 5);
        values[at] = bad;
        ASSERT_NO_FATAL_FAILURE(expect_encodes(codec, values, 0));
        ASSERT_NO_FATAL_FAILURE(expect_decodes(codec, values, 1));
      }
    }
  }
}

TEST_P(DeviceGradientsSuite, KeepsWhatWasLostAsTheHost) {
  for (const CodecSpec& codec : encoded_codecs()) {
    for (const std::size_t n : kGradientSizes) {
      for (const bool in_place : {false, true}) {
        const auto* const key = n % 2 == 0 ? &kGradientKey : nullptr;
        ASSERT_NO_FATAL_FAILURE(expect_feeds_back({.codec = codec,
                                                   .values = samples<float>(n, 6),
                                                   .current = samples<float>(n, 7),
                                                   .in_place = in_place,
                                                   .key = key}));
      }
    }
  }
}

TEST_P(DeviceGradientsSuite, KeepsNothingThatIsNotFinite) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kHuge = 3e38F;
  const std::pair<float, float> pairs[] = {
      {kNan, 1}, {1, kNan}, {kInf, -1}, {2, -kInf}, {kInf, -kInf}, {kHuge, kHuge}, {-kHuge, 1e38F}};
  for (const CodecSpec& codec : encoded_codecs()) {
    for (const auto& [value, current] : pairs) {
      for (const std::size_t at : {0UL, 65'536UL, 70'000UL}) {
        FeedbackCase c{.codec = codec,
                       .values = samples<float>(70'001, 8),
                       .current = samples<float>(70'001, 9),
                       .in_place = at == 0,
                       .nan = std::isnan(value + current)};
        c.values[at] = value;
        c.current[at] = current;
        ASSERT_NO_FATAL_FAILURE(expect_feeds_back(c));
      }
    }
  }
}

// As an averaging does it: what was lost in a step goes into the next one.
TEST_P(DeviceGradientsSuite, FeedsBackStepAfterStep) {
  constexpr std::size_t kN = 100'003;
  for (const CodecSpec& codec : encoded_codecs()) {
    SCOPED_TRACE(to_string(codec));
    std::vector<float> kept(kN);
    const DeviceFloats residual(*device_, kept, 2);
    for (std::uint64_t step = 0; step < 4; ++step) {
      const std::vector<float> values = samples<float>(kN, 20 + step);
      const Buffer wanted =
          encode_with_feedback(codec, view(values), DType::kF32,
                               {.current = view(kept), .next = writable(kept)}, nullptr);
      const DeviceFloats in(*device_, values, 1);
      const auto leaving = gradients().begin_encode(
          codec, in.at(), kN, {.current = residual.at(), .next = residual.at()}, nullptr);
      ASSERT_TRUE(leaving) << leaving.error().what;
      const auto wire = (*leaving)->wait();
      ASSERT_TRUE(wire) << wire.error().what;
      ASSERT_TRUE(same_bytes(wire->bytes(), wanted.bytes())) << step;
    }
    EXPECT_TRUE(same_bits(residual.values(), kept));
  }
}

TEST_P(DeviceGradientsSuite, DecodesAsTheHost) {
  for (const CodecSpec& codec : all_codecs())
    for (const std::size_t n : kGradientSizes)
      ASSERT_NO_FATAL_FAILURE(expect_decodes(codec, samples<float>(n, 10), n % 4));
}

// Small and large ones, after each other: nothing of an earlier one is left over.
TEST_P(DeviceGradientsSuite, ATensorLeavesNoTrace) {
  std::vector<float> bad = samples<float>(200'000, 11);
  bad.back() = std::numeric_limits<float>::quiet_NaN();
  for (const CodecSpec& codec : encoded_codecs()) {
    ASSERT_NO_FATAL_FAILURE(expect_encodes(codec, bad, 0));
    ASSERT_NO_FATAL_FAILURE(expect_decodes(codec, bad, 0));
    ASSERT_NO_FATAL_FAILURE(expect_encodes(codec, samples<float>(100, 12), 0));
    ASSERT_NO_FATAL_FAILURE(expect_decodes(codec, samples<float>(100, 12), 0));
  }
}

TEST_P(DeviceGradientsSuite, RefusesCorruptWires) {
  for (const CodecSpec& codec : all_codecs()) {
    SCOPED_TRACE(to_string(codec));
    const std::size_t n = 2 * kWireTileElements + 131;
    const std::vector<float> values = samples<float>(n, 13);
    const Buffer good = encode_values(codec, values);
    for (const std::size_t at : {0UL, 6UL, 24UL, 60UL, 64UL, good.size() / 2, good.size() - 1}) {
      Buffer wire = Buffer::copy_of(good.bytes());
      wire.data()[at] ^= std::byte{4};
      ASSERT_NO_FATAL_FAILURE(expect_refused(wire, n));
    }
    for (const std::size_t bytes : {good.size() - 64, 63UL})
      ASSERT_NO_FATAL_FAILURE(expect_refused(Buffer::copy_of(good.bytes().first(bytes)), n));
    for (const std::size_t other : {n - 1, n + 1, 0UL})
      ASSERT_NO_FATAL_FAILURE(expect_refused(good, other));
    ASSERT_NO_FATAL_FAILURE(expect_decodes(codec, values, 0));
  }
}

TEST_P(DeviceGradientsSuite, RefusesNonFiniteValuesWithoutTheirFlag) {
  for (const CodecSpec& codec : all_codecs()) {
    std::vector<float> values = samples<float>(70'000, 14);
    values[66'000] = std::numeric_limits<float>::quiet_NaN();
    Buffer wire = encode_values(codec, values);
    wire.data()[9] = std::byte{0};
    const std::uint64_t hash = xxh3(wire.bytes().first(56));
    std::memcpy(wire.data() + 56, &hash, sizeof hash);
    ASSERT_NO_FATAL_FAILURE(expect_refused(wire, values.size()));
  }
}

// Under a checksum that holds: what a hostile peer may send.
TEST_P(DeviceGradientsSuite, RefusesPositionsThatDoNotCheck) {
  constexpr std::size_t kN = kWireTileElements + 1000;
  const CodecSpec codec = *parse_codec("topk");
  const Buffer good = encode_values(codec, samples<float>(kN, 15));
  const auto header = read_wire_header(good.bytes());
  const auto expect_refused_with = [&](const Tile& tile, std::size_t k, std::uint16_t position) {
    Buffer wire = Buffer::copy_of(good.bytes());
    std::memcpy(wire.data() + tile.at + 2 * k, &position, sizeof position);
    seal_tile(codec, tile.shape, wire.data() + tile.at);
    expect_refused(wire, kN);
  };
  for (Tile tile; next_tile(*header, tile);) {
    std::uint16_t first = 0;
    std::memcpy(&first, good.data() + tile.at, sizeof first);
    ASSERT_NO_FATAL_FAILURE(expect_refused_with(tile, 1, first));
    ASSERT_NO_FATAL_FAILURE(expect_refused_with(tile, 1, 0));
  }
  const Tile last =
      tile_from(codec, kN, DType::kF32, kWireTileElements,
                kWireHeaderBytes + tile_shape(codec, kWireTileElements, DType::kF32).total_bytes());
  ASSERT_NO_FATAL_FAILURE(expect_refused_with(last, kept_of_tile(codec, 1000) - 1, 1000));
}

TEST_P(DeviceGradientsSuite, AddsAsTheHost) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const std::size_t n : kGradientSizes) {
    std::vector<float> a = samples<float>(n, 16), b = samples<float>(n, 17), sum(n);
    for (std::size_t i = 0; i < n; i += 37) a[i] = i % 2 == 0 ? kInf : -kInf;
    for (std::size_t i = 0; i < n; i += 74) b[i] = -kInf;
    for (std::size_t i = 5; i < n; i += 91) b[i] = 3.4e38F;
    kernels::add(a.data(), b.data(), sum.data(), n);
    for (std::size_t at = 0; at < 64; at += n < 5000 ? 1 : 7) {
      SCOPED_TRACE(std::to_string(n) + " at " + std::to_string(at));
      const DeviceFloats x(*device_, a, at % 4), y(*device_, b, at / 4 % 4);
      const DeviceFloats other(*device_, std::vector<float>(n), at / 16);
      ASSERT_TRUE(gradients().add(x.at(), y.at(), other.at(), n));
      ASSERT_TRUE(same_values(other.values(), sum));
      ASSERT_TRUE(same_bits(x.values(), a));
      ASSERT_TRUE(same_bits(y.values(), b));
      const DeviceFloats& in_place = at % 2 == 0 ? x : y;
      ASSERT_TRUE(gradients().add(x.at(), y.at(), in_place.at(), n));
      ASSERT_TRUE(same_values(in_place.values(), sum));
    }
  }
}

// As many as may be on their way, waited for in either order, or dropped.
TEST_P(DeviceGradientsSuite, PartsLeaveAhead) {
  const CodecSpec codec = encoded_codecs().front();
  std::vector<std::vector<float>> values;
  std::vector<std::unique_ptr<DeviceFloats>> parts;
  for (std::size_t i = 0; i < kLeavingParts; ++i) {
    values.push_back(samples<float>(10'000 + i, 30 + i));
    parts.push_back(std::make_unique<DeviceFloats>(*device_, values[i], i));
  }
  for (int round = 0; round < 6; ++round) {
    std::vector<std::unique_ptr<LeavingWire>> leaving;
    for (std::size_t i = 0; i < kLeavingParts; ++i) {
      auto begun = gradients().begin_encode(codec, parts[i]->at(), values[i].size(), {}, nullptr);
      ASSERT_TRUE(begun) << begun.error().what;
      leaving.push_back(std::move(*begun));
    }
    if (round % 3 == 2) continue;  // dropped
    for (std::size_t k = 0; k < kLeavingParts; ++k) {
      const std::size_t i = round % 3 == 0 ? k : kLeavingParts - 1 - k;
      const auto wire = leaving[i]->wait();
      ASSERT_TRUE(wire) << wire.error().what;
      EXPECT_TRUE(same_bytes(wire->bytes(), encode_values(codec, values[i]).bytes()));
    }
  }
}

TEST_P(DeviceGradientsSuite, AFurtherPartWaitsForAnEarlierOne) {
  const CodecSpec codec = encoded_codecs().front();
  const std::vector<float> values = samples<float>(1000, 18);
  const DeviceFloats in(*device_, values, 0);
  const auto begin = [&] { return gradients().begin_encode(codec, in.at(), 1000, {}, nullptr); };
  std::vector<std::unique_ptr<LeavingWire>> leaving;
  for (std::size_t i = 0; i < kLeavingParts; ++i) leaving.push_back(std::move(*begin()));
  std::atomic<bool> waited = false;
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    waited = true;
    EXPECT_TRUE(leaving.front()->wait());
  });
  const auto further = begin();
  EXPECT_TRUE(waited);
  other.join();
  ASSERT_TRUE(further) << further.error().what;
  EXPECT_TRUE((*further)->wait());
}

}  // namespace swarmline::testing
