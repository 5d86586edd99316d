// Each call to CUDA that libswarmline_cuda.so's host code makes fails once, over a stand-in for
// CUDA: whoever asked is told in CUDA's words, nobody after that is, and asked again the same comes
// out as if nothing had happened. Of a lost device everything is refused.

#include <functional>

#include <gtest/gtest.h>

#include "engine/model/page_lock.h"
#include "engine/optimizer/flat_optimizer.h"
#include "kernels/cuda/device_memory.h"
#include "kernels/digest.h"
#include "tests/compression/cuda_under_test.h"
#include "tests/compression/wire_values.h"
#include "tests/kernels/cuda_stand_in.h"
#include "tests/kernels/device_array.h"
#include "tests/optimizer/cuda_under_test.h"
#include "tests/optimizer/layouts.h"

namespace swarmline {
namespace {

using testing::arena;
using testing::bytes_of;
using testing::CudaFault;
using testing::DeviceBytes;
using testing::FaultKind;

constexpr std::size_t kN = 70'000;  // elements: more than a tile, and not a whole one

DeviceAddress at(DeviceBytes& bytes) {
  return reinterpret_cast<DeviceAddress>(bytes.data());
}

struct Fault {
  cudaError_t error;
  FaultKind kind;
  ErrorCode code;
  std::string words;
};
const Fault kFaults[] = {
    {cudaErrorInvalidValue, FaultKind::kOnce, ErrorCode::kDevice, "an error of the stand-in"},
    {cudaErrorMemoryAllocation, FaultKind::kOnce, ErrorCode::kOutOfMemory, "out of memory"},
    {cudaErrorIllegalAddress, FaultKind::kLost, ErrorCode::kDevice,
     "an illegal memory access was encountered"}};

void expect_told(const Error& error, const Fault& fault) {
  EXPECT_EQ(error.code, fault.code) << error.what;
  EXPECT_NE(error.what.find("CUDA: "), std::string::npos) << error.what;
  EXPECT_NE(error.what.find(": " + fault.words), std::string::npos) << error.what;
}

// `make`: a subject, whose making is tried as well; `work`: something with it, that waits for all
// of it; what it makes is looked at by `look`.
template <typename Subject>
struct Tried {
  std::function<Result<std::unique_ptr<Subject>>()> make;
  std::function<Result<void>(Subject&)> work;
  std::function<void()> look;
};

template <typename Subject>
std::uint64_t calls_of(const Tried<Subject>& tried, bool made_before) {
  std::uint64_t first = testing::cuda_calls();
  auto subject = tried.make();
  EXPECT_TRUE(subject);
  if (made_before) first = testing::cuda_calls();
  EXPECT_TRUE(tried.work(**subject));
  return testing::cuda_calls() - first;
}

template <typename Subject>
void fail_each(const Tried<Subject>& tried) {
  for (const Fault& fault : kFaults) {
    const std::uint64_t making = calls_of(tried, false) - calls_of(tried, true);
    const std::uint64_t calls = calls_of(tried, false);
    EXPECT_GT(calls, making);
    for (std::uint64_t behind = 0; behind < calls; ++behind) {
      SCOPED_TRACE(fault.words + " behind " + std::to_string(behind) + " calls of " +
                   std::to_string(calls));
      const testing::Held before = testing::held();
      {
        Result<std::unique_ptr<Subject>> subject = fail(ErrorCode::kStopped, "not made");
        {
          const CudaFault failing(behind, fault.error, fault.kind);
          subject = tried.make();
          const Result<void> done =
              subject ? tried.work(**subject) : std::unexpected(subject.error());
          ASSERT_TRUE(failing.has_happened());
          ASSERT_FALSE(done) << "nobody was told";
          expect_told(done.error(), fault);
          const bool is_lost = fault.kind == FaultKind::kLost;
          EXPECT_EQ(cudaGetLastError(), is_lost ? fault.error : cudaSuccess) << "left behind";
          if (is_lost && subject) {
            const Result<void> again = tried.work(**subject);
            ASSERT_FALSE(again);
            expect_told(again.error(), fault);
          }
        }
        if (fault.kind == FaultKind::kOnce) {
          if (!subject) subject = tried.make();
          ASSERT_TRUE(subject);
          const Result<void> again = tried.work(**subject);
          ASSERT_TRUE(again) << again.error().what;
          tried.look();
        }
      }
      EXPECT_EQ(testing::held(), before) << "memory was left behind";
    }
  }
}

// ---- The optimizer ------------------------------------------------------------------------------

class CudaOptimizerFaults : public ::testing::TestWithParam<OptimizerKind> {
 protected:
  const OptimizerSection options_ = testing::options_of(GetParam());
  const ParameterLayout layout_ =
      testing::layout_of(std::vector<testing::Tensor>{{"a.weight", 5000}, {"b.bias", 64}});
  const std::vector<float> start_ = arena(layout_, 1, 1.0F), gradient_ = arena(layout_, 2, 0.2F);
  const StepScalars scalars_ = step_scalars(options_, 0, 5, 0, 2.0);
  DeviceBytes parameters_{start_.data(), layout_.bytes()};

  Tried<DeviceOptimizer> tried(
      std::function<Result<void>(DeviceOptimizer&)> work, std::function<void()> look = [] {}) {
    const auto make = [this] {
      return testing::optimizer_under_test(options_, layout_, at(parameters_));
    };
    return {make, std::move(work), std::move(look)};
  }
};

// A commit as pipeline/stage/common/parameter_state.cc makes it.
TEST_P(CudaOptimizerFaults, ACommitIsToldOfAndMadeAgain) {
  FlatOptimizer host(options_, layout_);
  Buffer wanted = Buffer::copy_of(bytes_of(start_));
  ASSERT_TRUE(host.step(scalars_, bytes_of(gradient_), wanted.bytes()));
  Buffer got(wanted.size());
  std::uint64_t digest = 0, moment = 0;
  double squares = 0;
  const auto work = [&](DeviceOptimizer& there) -> Result<void> {
    const auto reduced = there.arena(DeviceArena::kReduced);
    if (!reduced) return std::unexpected(reduced.error());
    SWARMLINE_TRY(there.bring(*reduced, bytes_of(gradient_)));
    const auto said = there.digest_memory(*reduced, layout_.bytes());
    if (!said) return std::unexpected(said.error());
    digest = *said;
    const auto sum = there.sum_of_squares(*reduced, layout_.elements);
    if (!sum) return std::unexpected(sum.error());
    squares = *sum;
    // Whatever came of a step that failed.
    SWARMLINE_TRY(there.bring(at(parameters_), bytes_of(start_)));
    for (const Moment each : {Moment::kFirst, Moment::kSecond}) {
      const auto size = make_state_layout(options_, layout_);
      const Buffer zeros =
          Buffer::zeroed(each == Moment::kFirst ? size.first_bytes : size.second_bytes);
      SWARMLINE_TRY(there.write_state(each, 0, zeros.bytes()));
    }
    SWARMLINE_TRY(there.step(scalars_, *reduced, at(parameters_)));
    const auto state = there.digest_state(Moment::kSecond);
    if (!state) return std::unexpected(state.error());
    moment = *state;
    return there.fetch(got.bytes(), at(parameters_));
  };
  fail_each(tried(work, [&] {
    EXPECT_TRUE(std::ranges::equal(got.bytes(), wanted.bytes()));
    EXPECT_EQ(digest, kernels::digest(bytes_of(gradient_)));
    EXPECT_EQ(squares, sum_of_squares(bytes_of(gradient_), DType::kF32));
    EXPECT_EQ(moment, kernels::digest(*host.moment(Moment::kSecond)));
  }));
}

TEST_P(CudaOptimizerFaults, AnArenaIsZerosWhateverFailedBefore) {
  std::vector<std::byte> got(layout_.bytes());
  const auto work = [&](DeviceOptimizer& there) -> Result<void> {
    const auto island = there.arena(DeviceArena::kIsland);
    if (!island) return std::unexpected(island.error());
    const auto reduced = there.arena(DeviceArena::kReduced);
    if (!reduced) return std::unexpected(reduced.error());
    SWARMLINE_TRY(there.copy(*reduced, *island, layout_.bytes()));
    SWARMLINE_TRY(there.fetch(got, *reduced));
    return there.read_state(Moment::kFirst, 0, MutableBytes(got).first(8));
  };
  fail_each(tried(work, [&] { EXPECT_EQ(got, std::vector<std::byte>(layout_.bytes())); }));
}

// Whoever builds the stage says what to do (seat_memory_test).
TEST_P(CudaOptimizerFaults, WithoutRoomItSaysWhatItWanted) {
  const testing::Held before = testing::held();
  const testing::CudaRoom room(layout_.bytes());
  const auto refused = testing::optimizer_under_test(options_, layout_, at(parameters_));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kOutOfMemory);
  EXPECT_TRUE(refused.error().what.starts_with("optimizer on CUDA: CUDA: making room for "))
      << refused.error().what;
  EXPECT_TRUE(refused.error().what.ends_with(" bytes: out of memory")) << refused.error().what;
  EXPECT_EQ(testing::held(), before);
}

// Whoever keeps memory is asked for it first.
TEST_P(CudaOptimizerFaults, WhatIsKeptIsGivenBackFirst) {
  static std::unique_ptr<DeviceBytes> kept;
  kept = std::make_unique<DeviceBytes>(16 * layout_.bytes());
  const testing::CudaRoom room(layout_.bytes());
  kernels::cuda::set_on_full([] { kept.reset(); });
  const auto made = testing::optimizer_under_test(options_, layout_, at(parameters_));
  kernels::cuda::set_on_full(nullptr);
  EXPECT_TRUE(made) << made.error().what;
  EXPECT_EQ(kept, nullptr);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "left behind";
}

INSTANTIATE_TEST_SUITE_P(Kinds, CudaOptimizerFaults,
                         ::testing::Values(OptimizerKind::kAdamW, OptimizerKind::kLamb),
                         [](const auto& info) {
                           return info.param == OptimizerKind::kAdamW ? "AdamW" : "Lamb";
                         });

// ---- What crosses encoded -----------------------------------------------------------------------

class CudaWireFaults : public ::testing::TestWithParam<const char*> {
 protected:
  const CodecSpec codec_ = *parse_codec(GetParam());
  const std::vector<float> values_ = testing::samples<float>(kN, 3);
  DeviceBytes in_{values_.data(), 4 * kN}, out_{4 * kN};
  std::vector<float> fetched(DeviceBytes& bytes) {
    std::vector<float> here(kN);
    bytes.copy_to(here.data());
    return here;
  }
  void expect_wire(const Buffer& wire) {
    EXPECT_TRUE(std::ranges::equal(wire.bytes(), testing::encode_values(codec_, values_).bytes()));
    EXPECT_EQ(fetched(out_), testing::decode_values<float>(wire.bytes(), kN));
  }
};

TEST_P(CudaWireFaults, APassIsToldOfAndMadeAgain) {
  DeviceBytes number(sizeof(double)), tokens(4 * kN);
  const double seven = 7;
  ASSERT_EQ(cudaMemcpy(number.data(), &seven, sizeof seven, cudaMemcpyHostToDevice), cudaSuccess);
  Buffer wire;
  double got = 0;
  const auto work = [&](DeviceCodec& codec) -> Result<void> {
    got = 0;
    SWARMLINE_TRY(codec.bring(testing::view(values_), at(tokens)));
    auto leaving = codec.begin_encode(codec_, {at(in_), kN}, nullptr,
                                      reinterpret_cast<const double*>(number.data()));
    if (!leaving) return std::unexpected(leaving.error());
    SWARMLINE_TRY((*leaving)->made());
    auto here = (*leaving)->wait();
    if (!here) return std::unexpected(here.error());
    wire = std::move(*here);
    got = (*leaving)->number();
    return codec.decode(wire.bytes(), {at(out_), kN});
  };
  fail_each<DeviceCodec>({&testing::codec_under_test, work, [&] {
                            expect_wire(wire);
                            EXPECT_EQ(got, 7);
                            EXPECT_EQ(fetched(tokens), values_);
                          }});
}

TEST_P(CudaWireFaults, AMeasurementIsToldOfAndMadeAgain) {
  CodecMeasurement made;
  const auto work = [&](DeviceCodec& codec) -> Result<void> {
    const auto measured = codec.measure(codec_, {at(in_), kN});
    if (!measured) return std::unexpected(measured.error());
    made = *measured;
    return {};
  };
  fail_each<DeviceCodec>(
      {&testing::codec_under_test, work, [&] { EXPECT_GT(made.error.squared_norm, 0); }});
}

TEST_P(CudaWireFaults, GradientsAreToldOfAndMadeAgain) {
  DeviceBytes lost(4 * kN), next(4 * kN), sum(4 * kN);
  Buffer wire;
  const auto work = [&](DeviceGradients& gradients) -> Result<void> {
    SWARMLINE_TRY(gradients.add(at(in_), at(in_), at(sum), kN));
    for (const DeviceGradients::Feedback& feedback :
         {DeviceGradients::Feedback{at(lost), at(next)}, DeviceGradients::Feedback{}}) {
      auto leaving = gradients.begin_encode(codec_, at(in_), kN, feedback, nullptr);
      if (!leaving) return std::unexpected(leaving.error());
      auto here = (*leaving)->wait();
      if (!here) return std::unexpected(here.error());
      wire = std::move(*here);
    }
    return gradients.decode(wire.bytes(), at(out_), kN);
  };
  fail_each<DeviceGradients>({&testing::gradients_under_test, work, [&] {
                                expect_wire(wire);
                                std::vector<float> twice = values_;
                                for (float& value : twice) value += value;
                                EXPECT_EQ(fetched(sum), twice);
                              }});
}

INSTANTIATE_TEST_SUITE_P(Codecs, CudaWireFaults, ::testing::Values("lin8", "bf16"),
                         [](const auto& info) { return std::string(info.param); });

// ---- The device as a whole ----------------------------------------------------------------------

namespace device = kernels::cuda;

std::string said(const char* words) {
  return words == nullptr ? "nothing" : words;
}

// An error that was one call's, whoever's it was, is not the device's.
TEST(CudaDevice, OnlyALostOneHasAFault) {
  EXPECT_EQ(said(device::device_fault()), "nothing");
  {
    const CudaFault once(0, cudaErrorInvalidValue, FaultKind::kOnce);
    EXPECT_EQ(said(device::device_fault()), "nothing");
    EXPECT_TRUE(once.has_happened());
    EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "left behind";
  }
  {
    const CudaFault once(0, cudaErrorInvalidValue, FaultKind::kOnce);
    EXPECT_NE(cudaSetDevice(0), cudaSuccess);
    EXPECT_EQ(said(device::device_fault()), "nothing");
    EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "left behind";
  }
  // Of a kernel, which nobody has waited for.
  const CudaFault lost(0, cudaErrorIllegalAddress, FaultKind::kLost);
  EXPECT_EQ(testing::queue_kernel(nullptr, {}, [] {}), cudaSuccess);
  EXPECT_EQ(said(device::device_fault()), "an illegal memory access was encountered");
  EXPECT_EQ(said(device::device_fault()), "an illegal memory access was encountered");
  EXPECT_EQ(said(device::choose_device(0)), "an illegal memory access was encountered");
}

// A transfer between devices may wait for another process, whose end the fabric alone awaits.
TEST(CudaDevice, IsJudgedWhileATransferIsStuck) {
  cudaStream_t fabric = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&fabric, cudaStreamNonBlocking), cudaSuccess);
  bool computed = false, transferred = false;
  EXPECT_EQ(testing::queue_kernel(fabric, {}, [&] { transferred = true; }), cudaSuccess);
  EXPECT_EQ(testing::queue_kernel(nullptr, {}, [&] { computed = true; }), cudaSuccess);
  EXPECT_EQ(said(device::device_fault()), "nothing");
  EXPECT_TRUE(computed);
  EXPECT_FALSE(transferred) << "waited for";
  EXPECT_EQ(cudaStreamSynchronize(fabric), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(fabric), cudaSuccess);
}

TEST(CudaDevice, ALaunchIsAskedOnce) {
  EXPECT_EQ(said(device::launch_error()), "nothing");
  const CudaFault once(0, cudaErrorInvalidValue, FaultKind::kOnce);
  EXPECT_NE(cudaSetDevice(0), cudaSuccess);
  EXPECT_EQ(said(device::launch_error()), "an error of the stand-in");
  EXPECT_EQ(said(device::launch_error()), "nothing");
}

// That threads sleep while they wait is not needed.
TEST(CudaDevice, IsChosenWhateverItsFlags) {
  for (const std::uint64_t behind : {0U, 1U}) {
    const CudaFault once(behind, cudaErrorInvalidValue, FaultKind::kOnce);
    EXPECT_EQ(said(device::choose_device(0)), behind == 0 ? "an error of the stand-in" : "nothing");
    EXPECT_TRUE(once.has_happened());
    EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "left behind";
  }
}

TEST(CudaDevice, MemoryThatCouldNotBeClearedIsGivenBack) {
  const testing::Held before = testing::held();
  device::DeviceMemory memory;
  const CudaFault once(1, cudaErrorInvalidValue, FaultKind::kOnce);
  EXPECT_FALSE(memory.allocate(1000));
  EXPECT_TRUE(once.has_happened());
  EXPECT_EQ(testing::held(), before);
  EXPECT_EQ(memory.size(), 0U);
  EXPECT_TRUE(memory.allocate(1000));
}

// Memory whose pages can't be locked is copied all the same; room that nobody knows is none.
TEST(CudaDevice, WhatItDoesWithoutLeavesNothingBehind) {
  std::vector<std::byte> memory(4096);
  {
    const CudaFault once(0, cudaErrorMemoryAllocation, FaultKind::kOnce);
    EXPECT_FALSE(cuda::lock_pages(memory.data(), memory.size()));
    EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "left behind";
  }
  for (const std::uint64_t behind : {0U, 1U}) {
    const CudaFault once(behind, cudaErrorInvalidValue, FaultKind::kOnce);
    EXPECT_EQ(cuda::free_memory(0), 0U);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "left behind";
  }
  const testing::CudaRoom room(12345);
  EXPECT_EQ(cuda::free_memory(0), 12345U);
}

}  // namespace
}  // namespace swarmline
