// A stage for which there is no memory, at any allocation of a forward or a backward: where it says
// so, nothing has changed, and asked again it does as if nothing had been.
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <gtest/gtest.h>

#include "engine/model/libtorch.h"
#include "tests/model/model_test_util.h"

namespace swarmline::testing {
namespace {

// Libtorch's memory for tensors: fails from the allocation on that it is told, so many times.
class FailingMemory final : public c10::Allocator {
 public:
  static FailingMemory& installed() {
    static auto* const memory = [] {
      auto* const made = new FailingMemory;  // tensors of static objects may outlive main()
      c10::SetCPUAllocator(made, /*priority=*/9);
      return made;
    }();
    return *memory;
  }

  c10::DataPtr allocate(std::size_t size) override {
    if (size > 0 && armed_ && before_ == 0 && failures_ > 0) {
      --failures_;
      ++failed_;
      TORCH_CHECK_WITH(OutOfMemoryError, false, "no room for ", size, " bytes");
    }
    if (size > 0 && armed_ && before_ > 0) --before_;
    void* const memory = c10::alloc_cpu(size);
    return {memory, memory, &c10::free_cpu, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &c10::free_cpu; }
  void copy_data(void* to, const void* from, std::size_t count) const override {
    std::memcpy(to, from, count);
  }

  void fail_after(std::uint64_t allocations, std::uint64_t times) {
    armed_ = true;
    before_ = allocations;
    failures_ = times;
    failed_ = 0;
  }
  // How many failed since.
  std::uint64_t disarm() {
    armed_ = false;
    return failed_;
  }

 private:
  bool armed_ = false;
  std::uint64_t before_ = 0, failures_ = 0, failed_ = 0;
};

struct Case {
  std::uint32_t stage = 1;  // of four
  bool recompute = false, later = false;
};

class OutOfMemory : public ::testing::TestWithParam<Case> {
 protected:
  static constexpr std::uint64_t kAlways = 1U << 30U;

  OutOfMemory() : memory_(FailingMemory::installed()) {
    RunConfig config = tiny_config();
    config.model.dropout = 0.1;
    spec_ = resolved(config);
    batch_ = make_batch(spec_, 2);
    Rng rng(2);
    hidden_ = random_hidden(spec_, 2, rng);
    gradient_ = random_hidden(spec_, 2, rng);
    model_ = make_stage(spec_, stage_of(spec_, GetParam().stage, 4),
                        {.recompute = GetParam().recompute});
    sums_ = Buffer::zeroed(model_->layout().bytes());
  }
  ~OutOfMemory() override { memory_.disarm(); }

  Result<ForwardOutput> forward(AttemptId id) {
    return model_->forward({.id = id,
                            .rows = 2,
                            .tokens = Batch::view(batch_.tokens),
                            .hidden = hidden_.bytes(),
                            .targets = Batch::view(batch_.targets)});
  }
  Result<BackwardOutput> backward(AttemptId id) {
    return model_->backward({.id = id,
                             .output_gradient = gradient_.bytes(),
                             .add_later = GetParam().later,
                             .accumulator = sums_.bytes()});
  }
  // What comes out of one microbatch: output, input gradient, sums.
  std::vector<std::vector<double>> results(const ForwardOutput& out, const BackwardOutput& back) {
    if (GetParam().later) {
      const auto added = model_->add_weight_gradients(id_, sums_.bytes());
      EXPECT_TRUE(added.has_value());
    }
    const auto values = [](const Buffer& buffer) {
      return std::vector<double>{buffer.as<double>().begin(), buffer.as<double>().end()};
    };
    std::vector all{values(out.hidden), {out.loss_sum}, values(back.input_gradient), values(sums_)};
    model_->clear_sums(sums_.bytes());
    return all;
  }
  std::vector<std::vector<double>> undisturbed() {
    const auto out = forward(id_);
    const auto back = backward(id_);
    return results(*out, *back);
  }

  const AttemptId id_ = attempt_of(1, 0);
  FailingMemory& memory_;
  ModelSpec spec_;
  Batch batch_;
  Buffer hidden_, gradient_, sums_;
  std::unique_ptr<StageModel> model_;
};

TEST_P(OutOfMemory, AForwardThatDoesNotFitLeavesNothing) {
  const auto wanted = undisturbed();
  std::uint64_t at = 0;
  for (;; ++at) {
    memory_.fail_after(at, kAlways);
    const auto out = forward(id_);
    if (memory_.disarm() == 0) break;
    ASSERT_FALSE(out.has_value()) << at;
    EXPECT_EQ(out.error().code, ErrorCode::kOutOfMemory) << out.error().what;
    EXPECT_EQ(model_->saved_graphs(), 0U);
    const auto again = forward(id_);
    ASSERT_TRUE(again.has_value()) << again.error().what;
    EXPECT_EQ(results(*again, *backward(id_)), wanted) << at;
  }
  EXPECT_GT(at, 5U);
}

// What the rest of its graph took may be all that it lacks.
TEST_P(OutOfMemory, ABackwardIsTriedAgainFromItsInput) {
  const auto wanted = undisturbed();
  std::uint64_t at = 0, came = 0;
  for (;; ++at) {
    const auto out = forward(id_);
    ASSERT_TRUE(out.has_value()) << out.error().what;
    memory_.fail_after(at, 1);
    const auto back = backward(id_);
    if (memory_.disarm() == 0) break;
    if (back.has_value()) {
      ++came;
      EXPECT_EQ(results(*out, *back), wanted) << at;
    } else {  // a part of it is in the sums
      EXPECT_EQ(back.error().code, ErrorCode::kDevice) << at;
      EXPECT_FALSE(GetParam().later);
      model_->clear_sums(sums_.bytes());
    }
    EXPECT_EQ(model_->saved_graphs(), 0U);
  }
  EXPECT_GT(came, 0U);
  if (GetParam().later) EXPECT_EQ(came, at);
}

TEST_P(OutOfMemory, ABackwardThatDoesNotFitMayBeAskedAgain) {
  const auto wanted = undisturbed();
  std::uint64_t at = 0, waited = 0;
  for (;; ++at) {
    const auto out = forward(id_);
    ASSERT_TRUE(out.has_value()) << out.error().what;
    memory_.fail_after(at, kAlways);
    const auto back = backward(id_);
    if (memory_.disarm() == 0) break;
    ASSERT_FALSE(back.has_value()) << at;
    if (back.error().code == ErrorCode::kOutOfMemory) {
      ++waited;
      const auto again = backward(id_);
      ASSERT_TRUE(again.has_value()) << again.error().what;
      EXPECT_EQ(results(*out, *again), wanted) << at;
    } else {
      EXPECT_EQ(back.error().code, ErrorCode::kDevice) << at;
      model_->clear_sums(sums_.bytes());
    }
    EXPECT_EQ(model_->saved_graphs(), 0U);
  }
  EXPECT_GT(waited, 0U);
}

INSTANTIATE_TEST_SUITE_P(Stages, OutOfMemory,
                         ::testing::Values(Case{.stage = 0}, Case{.stage = 1},
                                           Case{.stage = 1, .later = true},
                                           Case{.stage = 1, .recompute = true}, Case{.stage = 3},
                                           Case{.stage = 3, .later = true}));

}  // namespace
}  // namespace swarmline::testing
