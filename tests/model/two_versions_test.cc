// A model that holds two versions of its parameters computes on each as one that holds it alone.
#include <gtest/gtest.h>

#include "base/byte_ops.h"
#include "tests/model/model_test_util.h"

namespace swarmline::testing {
namespace {

constexpr std::uint32_t kRows = 2;

Buffer random_values(std::uint64_t elements, std::uint64_t seed) {
  Rng rng(seed);
  Buffer buffer(elements * sizeof(double));
  for (double& x : buffer.as<double>()) x = rng.normal();
  return buffer;
}

void write_parameters(StageModel& model, std::uint64_t version) {
  const Buffer values = random_values(model.layout().elements, version);
  copy_bytes(values.bytes(), model.parameters());
  model.parameters_changed();
}

class TwoVersions : public ::testing::TestWithParam<bool> {
 protected:
  std::unique_ptr<StageModel> make() const {
    return make_stage(spec_, stage_of(spec_, 1, 4), {.recompute = GetParam()});
  }
  void forward(StageModel& model, std::uint32_t index) const {
    ASSERT_TRUE(
        model.forward({.id = attempt_of(3, index), .rows = kRows, .hidden = hidden_.bytes()}));
  }
  // The weight gradients, or what is left of them for later.
  void backward(StageModel& model, std::uint32_t index, Buffer& sums, bool later = false) const {
    ASSERT_TRUE(model.backward({.id = attempt_of(3, index),
                                .output_gradient = gradient_.bytes(),
                                .add_later = later,
                                .accumulator = sums.bytes()}));
  }
  Buffer alone(std::uint64_t version, std::uint32_t index) const {
    const auto model = make();
    write_parameters(*model, version);
    Buffer sums = Buffer::zeroed(model->layout().bytes());
    forward(*model, index);
    backward(*model, index, sums);
    return sums;
  }

  const ModelSpec spec_ = resolved(tiny_config());
  const std::uint64_t elements_ = std::uint64_t{kRows} * spec_.sequence * spec_.shape.d_model;
  const Buffer hidden_ = random_values(elements_, 1), gradient_ = random_values(elements_, 2);
};

TEST_P(TwoVersions, EachGraphIsOfTheVersionThatItWasComputedOn) {
  const auto model = make();
  write_parameters(*model, 10);
  forward(*model, 0);
  model->exchange_parameters();
  write_parameters(*model, 11);
  forward(*model, 1);
  Buffer older = Buffer::zeroed(model->layout().bytes());
  Buffer newer = Buffer::zeroed(model->layout().bytes());
  model->exchange_parameters();
  backward(*model, 0, older, /*later=*/true);
  model->exchange_parameters();
  backward(*model, 1, newer);
  ASSERT_TRUE(model->add_weight_gradients(attempt_of(3, 0), older.bytes()));
  EXPECT_TRUE(same_bytes(older.bytes(), alone(10, 0).bytes()));
  EXPECT_TRUE(same_bytes(newer.bytes(), alone(11, 1).bytes()));
  EXPECT_FALSE(same_bytes(older.bytes(), alone(11, 0).bytes()));
}

TEST_P(TwoVersions, ExchangingCopiesNothing) {
  const auto model = make();
  write_parameters(*model, 10);
  const std::byte* const first = model->parameters().data();
  const std::byte* const second = model->other_parameters().data();
  model->exchange_parameters();
  EXPECT_EQ(model->parameters().data(), second);
  EXPECT_EQ(model->other_parameters().data(), first);
  const Buffer values = random_values(model->layout().elements, 10);
  EXPECT_TRUE(same_bytes(model->other_parameters(), values.bytes()));
}

INSTANTIATE_TEST_SUITE_P(, TwoVersions, ::testing::Bool(), [](const auto& which) {
  return std::string(which.param ? "Recomputed" : "Kept");
});

}  // namespace
}  // namespace swarmline::testing
