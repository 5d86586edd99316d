// Every float there is through lin8 and dyn8, bit for bit against the plain reference. For one
// absmax: every pattern of a magnitude up to it, of both signs, in blocks pinned to it by their
// first element; and every NaN and infinity, each in a block of its own. What is tested is given as
// functions, so that any instruction set, and the CUDA device functions on a host or a device, run
// through this.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/quantize.h"
#include "tests/kernels/reference_quantizer.h"

namespace swarmline::testing {

// Quantizes n fp32 values (fp32 scales). Returns whether a block was not finite.
struct ExhaustiveSubject {
  std::string name;
  std::function<bool(const kernels::QuantSpec& spec, const float* values, std::size_t n,
                     float* scales, std::uint8_t* codes)>
      quantize;
};

inline constexpr std::array<float, 4> kExhaustiveAbsmax = {1.0F, 0x1p-100F, 0.3F, 3e38F};

class Exhaustive {
 public:
  // Every `stride`-th pattern; 1 for all.
  Exhaustive(const kernels::QuantSpec& spec, std::vector<ExhaustiveSubject> subjects,
             std::uint32_t stride)
      : spec_(spec), reference_(spec), subjects_(std::move(subjects)), stride_(stride) {}

  // Stops at the first difference, which is a test failure that names it.
  void run(float absmax) {
    const auto largest = std::bit_cast<std::uint32_t>(absmax);
    for (std::uint64_t bits = 0; bits <= largest && !::testing::Test::HasFailure();
         bits += stride_) {
      for (std::uint32_t sign : {0U, 0x80000000U}) {
        if (values_.size() % spec_.block == 0) values_.push_back(sign == 0 ? absmax : -absmax);
        values_.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits) | sign));
      }
      if (values_.size() >= kChunk) check();
    }
    check();
  }
  void run_not_finite() {
    for (std::uint64_t bits = kInfinity; bits <= 0x7FFFFFFF && !::testing::Test::HasFailure();
         bits += stride_) {
      for (std::uint32_t sign : {0U, 0x80000000U}) {
        const std::size_t begin = values_.size();
        values_.resize(begin + spec_.block, 0.25F);
        values_[begin + bits % spec_.block] =
            std::bit_cast<float>(static_cast<std::uint32_t>(bits) | sign);
      }
      if (values_.size() >= kChunk) check();
    }
    check();
  }
  std::uint64_t checked() const { return checked_; }

 private:
  static constexpr std::size_t kChunk = std::size_t{1} << 18;
  static constexpr std::uint32_t kInfinity = 0x7F800000;

  void check() {
    const std::size_t n = values_.size();
    const ReferenceCodes expected = reference_.quantize(values_, nullptr);
    std::vector<float> scales(expected.stored.size());
    std::vector<std::uint8_t> codes(n);
    for (const ExhaustiveSubject& subject : subjects_) {
      std::fill(scales.begin(), scales.end(), -1.0F);
      std::fill(codes.begin(), codes.end(), std::uint8_t{0xEE});
      const bool bad = subject.quantize(spec_, values_.data(), n, scales.data(), codes.data());
      EXPECT_EQ(bad, expected.bad) << subject.name;
      for (std::size_t b = 0; b < scales.size(); ++b) {
        ASSERT_EQ(std::bit_cast<std::uint32_t>(scales[b]),
                  std::bit_cast<std::uint32_t>(expected.stored[b]))
            << subject.name << ": scale of the block of " << values_[b * spec_.block];
      }
      if (codes == expected.codes) continue;
      const auto at = static_cast<std::size_t>(
          std::mismatch(codes.begin(), codes.end(), expected.codes.begin()).first - codes.begin());
      FAIL() << subject.name << ": " << std::hexfloat << values_[at] << " with scale "
             << expected.stored[at / spec_.block] << " is coded as " << int{codes[at]}
             << " instead of " << int{expected.codes[at]};
    }
    checked_ += n;
    values_.clear();
  }

  kernels::QuantSpec spec_;
  ReferenceQuantizer reference_;
  std::vector<ExhaustiveSubject> subjects_;
  std::uint32_t stride_;
  std::vector<float> values_;
  std::uint64_t checked_ = 0;
};

}  // namespace swarmline::testing
