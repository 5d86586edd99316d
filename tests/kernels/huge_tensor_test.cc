// More elements than 31 bits count: indices of blocks, scales and codes are 64 bits wide. The
// tensor is bf16 and repeats itself, so that 4.3 GB of it are one megabyte mapped again and again;
// it is decoded tile by tile.
#include <cstdint>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/quantize.h"
#include "tests/kernels/samples.h"

namespace swarmline::testing {
namespace {

using kernels::FloatKind;
using kernels::QuantFormat;
using kernels::QuantSpec;
using kernels::ScaleKind;

constexpr std::size_t kPeriod = std::size_t{1} << 19;  // elements; 1 MiB
constexpr std::size_t kPeriods = 4097;
constexpr std::size_t kElements = kPeriod * kPeriods;  // 2^31 + 2^19
static_assert(kElements > std::size_t{1} << 31);

// `bytes` of one file, kPeriods times over.
class Repeated {
 public:
  explicit Repeated(const std::vector<std::uint16_t>& period) {
    const std::size_t bytes = period.size() * sizeof(std::uint16_t);
    const int file = memfd_create("period", 0);
    EXPECT_EQ(write(file, period.data(), bytes), static_cast<ssize_t>(bytes));
    size_ = bytes * kPeriods;
    base_ = mmap(nullptr, size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    for (std::size_t i = 0; base_ != MAP_FAILED && i < kPeriods; ++i) {
      void* at = static_cast<char*>(base_) + i * bytes;
      if (mmap(at, bytes, PROT_READ, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED) failed_ = true;
    }
    close(file);
  }
  Repeated(const Repeated&) = delete;
  Repeated& operator=(const Repeated&) = delete;
  ~Repeated() {
    if (base_ != MAP_FAILED) munmap(base_, size_);
  }
  const void* data() const { return base_ == MAP_FAILED || failed_ ? nullptr : base_; }

 private:
  void* base_ = MAP_FAILED;
  std::size_t size_ = 0;
  bool failed_ = false;
};

class HugeTensor : public ::testing::TestWithParam<QuantFormat> {};

TEST_P(HugeTensor, CodesAndScalesRepeatAsTheTensorDoes) {
  std::uint32_t block = 32;
  while (!kernels::is_valid({GetParam(), block, ScaleKind::kF32})) block *= 2;
  const QuantSpec spec{GetParam(), block, ScaleKind::kBf16};
  std::vector<std::uint16_t> period(kPeriod);
  const std::vector<float> values = samples<float>(kPeriod, 9);
  for (std::size_t i = 0; i < kPeriod; ++i) {
    period[i] = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(values[i]) >> 16);
  }
  const Repeated tensor(period);
  ASSERT_NE(tensor.data(), nullptr);

  const std::size_t code_bytes = kernels::code_bytes(spec, kPeriod);
  const std::size_t scale_bytes = kernels::quant_blocks(spec, kPeriod) * 2;
  std::vector<std::uint8_t> codes(kernels::code_bytes(spec, kElements));
  std::vector<std::uint8_t> scales(kernels::quant_blocks(spec, kElements) * 2);
  ASSERT_EQ(codes.size(), code_bytes * kPeriods);
  EXPECT_FALSE(kernels::quantize(spec, FloatKind::kBf16, tensor.data(), kElements, nullptr,
                                 scales.data(), codes.data()));
  std::vector<std::uint8_t> own_codes(code_bytes), own_scales(scale_bytes);
  kernels::quantize(spec, FloatKind::kBf16, period.data(), kPeriod, nullptr, own_scales.data(),
                    own_codes.data());
  for (std::size_t i = 0; i < kPeriods; ++i) {
    ASSERT_TRUE(std::equal(own_codes.begin(), own_codes.end(), &codes[i * code_bytes])) << i;
    ASSERT_TRUE(std::equal(own_scales.begin(), own_scales.end(), &scales[i * scale_bytes])) << i;
  }

  constexpr std::size_t kTile = 65536;
  std::vector<std::uint16_t> expected(kPeriod), tile(kTile);
  kernels::dequantize(spec, own_scales.data(), own_codes.data(), kPeriod, FloatKind::kBf16,
                      expected.data());
  for (std::size_t begin = 0; begin < kElements; begin += kTile) {
    EXPECT_FALSE(kernels::dequantize(spec, &scales[kernels::quant_blocks(spec, begin) * 2],
                                     &codes[kernels::code_bytes(spec, begin)], kTile,
                                     FloatKind::kBf16, tile.data()));
    ASSERT_TRUE(std::equal(tile.begin(), tile.end(), &expected[begin % kPeriod])) << begin;
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, HugeTensor,
                         ::testing::Values(QuantFormat::kLin8, QuantFormat::kDyn8, QuantFormat::kH8,
                                           QuantFormat::kE4M3, QuantFormat::kInt4));

}  // namespace
}  // namespace swarmline::testing
