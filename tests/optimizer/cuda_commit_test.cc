// A stage's commits whose optimizer, gradients and state are a CUDA device's, over a stand-in for
// CUDA: the host's bits, whatever order work is done in, and what crosses the bus, byte by byte:
// what averaging moves, and 40 bytes beside it.

#include <map>
#include <utility>

#include <gtest/gtest.h>

#include "engine/model/page_lock.h"
#include "kernels/digest.h"
#include "pipeline/averaging/device_parts.h"
#include "pipeline/stage/common/arena_model.h"
#include "pipeline/stage/common/parameter_state.h"
#include "sim/cluster/model_wrapper.h"
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
using testing::crossed;
using testing::Crossed;
using testing::DeviceBytes;
using testing::mixed_layout;

// Digests of the average, the parameters and two moments, and the norm: bytes a commit.
constexpr std::uint64_t kBeside = 5 * 8;
constexpr std::byte kNoNumber{0xFF};

DeviceAddress at(DeviceBytes& bytes) {
  return reinterpret_cast<DeviceAddress>(bytes.data());
}

// What engine/model/stage_model.cc keeps in a device's memory by libtorch: versions of the
// parameters, and sums.
class CudaArenas final : public ModelWrapper {
 public:
  CudaArenas() : ModelWrapper(std::make_unique<ArenaModel>(mixed_layout())) {}

  PageLock lock_pages(MutableBytes memory) override {
    EXPECT_TRUE(cuda::lock_pages(memory.data(), memory.size()));
    return {memory.data(), [](void* locked) { cuda::unlock_pages(locked); }};
  }
  bool keeps_sums() const override { return true; }
  void clear_sums(MutableBytes accumulator) override {
    sums_[accumulator.data()] = std::make_unique<DeviceBytes>(accumulator.size());
  }
  DeviceAddress device_sums(MutableBytes accumulator) override {
    return at(*sums_.at(accumulator.data()));
  }
  // As a backward pass adds.
  void compute_sums(MutableBytes accumulator, const std::vector<float>& gradient) {
    auto* const to = device_sums(accumulator);
    testing::queue_kernel(nullptr, {to},
                          [to, gradient] { std::ranges::copy(bytes_of(gradient), to); });
  }
  void exchange_parameters() override {
    ModelWrapper::exchange_parameters();
    std::swap(in_use_, other_);
  }
  void parameters_changed() override {
    in_use_->is_older = false;
    EXPECT_EQ(cudaMemcpy(device_parameters(), parameters().data(), parameters().size(),
                         cudaMemcpyHostToDevice),
              cudaSuccess);
  }
  DeviceAddress device_parameters() override { return at(in_use_->values); }
  void device_parameters_changed() override {
    std::ranges::fill(parameters(), kNoNumber);
    in_use_->is_older = true;
  }
  Result<void> collect_parameters() override {
    if (std::exchange(in_use_->is_older, false))
      EXPECT_EQ(cudaMemcpy(parameters().data(), device_parameters(), parameters().size(),
                           cudaMemcpyDeviceToHost),
                cudaSuccess);
    return {};
  }
  Result<std::unique_ptr<DeviceOptimizer>> make_optimizer(
      const OptimizerSection& options) override {
    return testing::optimizer_under_test(options, layout(), device_parameters());
  }
  Result<std::unique_ptr<DeviceGradients>> make_gradients() override {
    return testing::gradients_under_test();
  }

 private:
  struct Version {
    explicit Version(std::size_t bytes) : values(bytes) {}
    DeviceBytes values;
    bool is_older = false;
  };
  std::unique_ptr<Version> in_use_ = std::make_unique<Version>(mixed_layout().bytes());
  std::unique_ptr<Version> other_ = std::make_unique<Version>(mixed_layout().bytes());
  std::map<const std::byte*, std::unique_ptr<DeviceBytes>> sums_;
};

struct Case {
  OptimizerKind kind;
  MomentsKind moments;
  std::uint32_t delay;
  double share;  // of what is done before it must be
};

class CudaCommit : public ::testing::TestWithParam<Case> {
 protected:
  CudaCommit() : order_(7, GetParam().share) {
    config_.optimizer = testing::options_of(GetParam().kind, GetParam().moments);
    config_.pipeline.delay = GetParam().delay;
    const std::vector<float> start = arena(mixed_layout(), 1, 1.0F);
    for (StageModel* const model : std::initializer_list<StageModel*>{&model_, host_model_.get()}) {
      std::ranges::copy(bytes_of(start), model->parameters().begin());
      model->parameters_changed();
    }
    state_ = std::make_unique<ParameterState>(model_, config_);
    host_ = std::make_unique<ParameterState>(*host_model_, config_);
  }

  static std::vector<float> gradient(std::uint64_t step) {
    return arena(mixed_layout(), 20 + step, 0.2F);
  }
  StepScalars scalars(std::uint64_t step) const {
    return step_scalars(config_.optimizer, step, 5, step, 2.0);
  }
  // The host's, of that average: what it says, and its digest behind the step.
  std::pair<ReducedSummary, std::uint64_t> on_host(std::uint64_t step, BytesView average) {
    std::ranges::copy(average, host_->reduced().begin());
    const auto said = host_->take_reduced(0, average.size());
    EXPECT_TRUE(said);
    EXPECT_TRUE(host_->use(Version{step}));
    EXPECT_TRUE(host_->apply(scalars(step), false));
    return {*said, *host_->digest()};
  }
  // On the device, whose average `bring` brings: beside `moves` kBeside crosses.
  void commit(std::uint64_t step, BytesView average, const ParameterState::Bring& bring,
              const Crossed& moves) {
    SCOPED_TRACE(step);
    ASSERT_TRUE(state_->use(Version{step}));
    const Crossed before = crossed();
    const auto said = state_->take_reduced(0, average.size(), bring);
    ASSERT_TRUE(said) << said.error().what;
    const auto applied = state_->apply(scalars(step), false);
    ASSERT_TRUE(applied) << applied.error().what;
    const auto digest = state_->digest();
    ASSERT_TRUE(digest) << digest.error().what;
    const Crossed moved = crossed() - before;

    const auto [wanted, wanted_digest] = on_host(step, average);
    EXPECT_EQ(said->digest, wanted.digest);
    EXPECT_EQ(said->sum_of_squares, wanted.sum_of_squares);
    EXPECT_EQ(*digest, wanted_digest);
    EXPECT_EQ(moved, (Crossed{moves.to_device, moves.to_host + kBeside}));
  }
  void expect_same_state() {
    const auto saved = state_->save(), wanted = host_->save();
    ASSERT_TRUE(saved && wanted);
    EXPECT_TRUE(std::ranges::equal(saved->bytes(), wanted->bytes()));
  }

  const testing::CudaOrder order_;
  RunConfig config_;
  CudaArenas model_;
  const std::unique_ptr<ArenaModel> host_model_ = std::make_unique<ArenaModel>(mixed_layout());
  std::unique_ptr<ParameterState> state_, host_;
};

// Four bytes an element in, and nothing else.
TEST_P(CudaCommit, AnAverageWithoutACodecComesAsItIs) {
  for (std::uint64_t step = 0; step < 4; ++step) {
    const std::vector<float> average = gradient(step);
    std::ranges::copy(bytes_of(average), state_->reduced().begin());
    commit(step, bytes_of(average), {}, {.to_device = 4 * average.size()});
  }
  expect_same_state();
}

// Of a member alone: nothing in, and out what mates may ask for.
TEST_P(CudaCommit, AnAverageOfOneStaysThere) {
  for (std::uint64_t step = 0; step < 3; ++step) {
    const std::vector<float> sums = gradient(step);
    state_->begin(step);
    model_.compute_sums(state_->accumulator(step), sums);
    const std::uint64_t bytes = 4 * sums.size();
    const auto bring = [&](DeviceAddress there) -> Result<void> {
      const auto from = state_->sums_there(step);
      if (!from) return std::unexpected(from.error());
      SWARMLINE_TRY(state_->device()->copy(there, *from, bytes));
      return state_->device()->fetch(state_->reduced(), there);
    };
    commit(step, bytes_of(sums), bring, {.to_host = bytes});
    EXPECT_TRUE(std::ranges::equal(state_->reduced(), bytes_of(sums)));
  }
  expect_same_state();
}

// Sums that others have adopted are added where they are.
TEST_P(CudaCommit, AdoptedSumsAreAddedThere) {
  const std::vector<float> own = gradient(0), others = gradient(1);
  std::vector<float> sums(own.size());
  for (std::size_t i = 0; i < own.size(); ++i) sums[i] = own[i] + others[i];
  state_->begin(0);
  model_.compute_sums(state_->accumulator(0), own);
  state_->adopt_sums(0, SharedBytes(Buffer::copy_of(bytes_of(others))));
  const std::uint64_t bytes = 4 * sums.size();
  const auto bring = [&](DeviceAddress there) -> Result<void> {
    const auto from = state_->sums_there(0);
    if (!from) return std::unexpected(from.error());
    return state_->device()->copy(there, *from, bytes);
  };
  commit(0, bytes_of(sums), bring, {.to_device = bytes});
  expect_same_state();
}

// Parts go out and sums come in encoded, the own slice's values as they are, and a flag a sum.
TEST_P(CudaCommit, AnAverageWithACodecMovesItsWires) {
  constexpr std::uint64_t kFlag = 4;
  const CodecSpec codec = *parse_codec("lin8");
  const std::uint64_t n = mixed_layout().elements;
  const ButterflySpec spec{.rank = 0,
                           .ranks = 2,
                           .elements = n,
                           .bounds = {0, n / 2, n},
                           .scatter = {codec, codec},
                           .gather = codec};
  const SliceChunks chunks = chunks_of(spec);
  for (std::uint64_t step = 0; step < 3; ++step) {
    const std::vector<float> sums = gradient(step), reduced = gradient(step + 40);
    state_->begin(step);
    model_.compute_sums(state_->accumulator(step), sums);
    const DeviceSide device{*state_->gradients(), *state_->device()};

    Crossed before = crossed();
    const auto from = state_->sums_there(step);
    ASSERT_TRUE(from);
    const auto parts = take_parts(device, spec, *from, {}, {.values = state_->accumulator(step)});
    ASSERT_TRUE(parts) << parts.error().what;
    Crossed moves{.to_host = 4 * (n / 2)};
    std::vector<SharedBytes> wires(chunks.total());
    std::vector<float> average(n);
    Crossed sums_move;
    for (std::uint32_t number = 0; number < chunks.total(); ++number) {
      const SliceChunks::Place place = chunks.place(number);
      const std::size_t first = chunks.first(place), size = chunks.elements(place);
      const auto part = bytes_of(sums).subspan(4 * first, 4 * size);
      if (place.slice != spec.rank) {
        const Buffer wanted = encode(codec, part, DType::kF32);
        EXPECT_TRUE(std::ranges::equal((*parts)[number].view(), wanted.bytes())) << number;
        moves.to_host += wanted.size();
      }
      Buffer wire = encode(codec, bytes_of(reduced).subspan(4 * first, 4 * size), DType::kF32);
      ASSERT_TRUE(
          decode(wire.bytes(), DType::kF32, bytes_of(average).subspan(4 * first, 4 * size)));
      sums_move.to_device += wire.size();
      sums_move.to_host += kFlag;
      wires[number] = SharedBytes(std::move(wire));
    }
    EXPECT_EQ(crossed() - before, moves);
    EXPECT_TRUE(std::ranges::equal(state_->accumulator(step).first(4 * (n / 2)),
                                   bytes_of(sums).first(4 * (n / 2))));
    commit(
        step, bytes_of(average),
        [&](DeviceAddress there) { return bring_sums(device, spec, wires, there); }, sums_move);
  }
  expect_same_state();
}

// What mates are given is what the device has, and it goes on from what they gave.
TEST_P(CudaCommit, AStateGoesThereAndBack) {
  const auto average = gradient(0);
  std::ranges::copy(bytes_of(average), state_->reduced().begin());
  commit(0, bytes_of(average), {}, {.to_device = 4 * average.size()});
  const auto saved = state_->save();
  ASSERT_TRUE(saved);
  CudaArenas model;
  ParameterState other(model, config_);
  ASSERT_TRUE(other.load(Version{1}, saved->bytes()));
  EXPECT_EQ(*other.digest(), *state_->digest());
  for (ParameterState* const state : {state_.get(), &other}) {
    const auto next = gradient(1);
    ASSERT_TRUE(state->use(Version{1}));
    std::ranges::copy(bytes_of(next), state->reduced().begin());
    ASSERT_TRUE(state->take_reduced(0, 4 * next.size()));
    ASSERT_TRUE(state->apply(scalars(1), false));
  }
  EXPECT_EQ(*other.digest(), *state_->digest());
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const double share : {0.0, 0.4})
    for (const std::uint32_t delay : {0U, 1U})
      for (const MomentsKind moments : {MomentsKind::kF32, MomentsKind::k8Bit})
        all.push_back({OptimizerKind::kAdamW, moments, delay, share});
  all.push_back({OptimizerKind::kLamb, MomentsKind::kF32, 0, 0});
  all.push_back({OptimizerKind::kLamb, MomentsKind::k8Bit, 1, 0.4});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Kinds, CudaCommit, ::testing::ValuesIn(cases()), [](const auto& info) {
  const Case& of = info.param;
  return std::string(of.kind == OptimizerKind::kAdamW ? "AdamW" : "Lamb") +
         (of.moments == MomentsKind::k8Bit ? "8bit" : "fp32") + "Delay" + std::to_string(of.delay) +
         (of.share > 0 ? "Drawn" : "Late");
});

}  // namespace
}  // namespace swarmline
