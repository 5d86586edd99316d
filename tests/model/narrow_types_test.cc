// What a model in narrower numbers is: near the one in wider ones, and not the same.
#include <algorithm>
#include <cmath>
#include <span>

#include <gtest/gtest.h>

#include "tests/model/model_test_util.h"

namespace swarmline::testing {
namespace {

// fp8 products change loss and gradients by about what rounding to 4 bits does, and no more.
TEST(Fp8, IsNearNative) {
  for (RunConfig config : {tiny_config(), tiny_llama()}) {
    config.model.dtype = DType::kF32;
    const ModelSpec native = resolved(config);
    config.model.compute = ComputeKind::kFp8;
    const ModelSpec fp8 = resolved(config);
    const Batch batch = make_batch(native, 4);
    Chain exact(native, 1);
    Chain rounded(fp8, 1);
    const double loss = exact.forward(batch, attempt_of(1, 0));
    const double other = rounded.forward(batch, attempt_of(1, 0));
    EXPECT_NE(loss, other);
    EXPECT_NEAR(other / loss, 1, 0.02);
    exact.backward(attempt_of(1, 0));
    rounded.backward(attempt_of(1, 0));
    for (const char* name : {"layers.0.mlp.down.weight", "layers.3.attention.o.weight"}) {
      const std::vector<double> expected = exact.gradient_of(name);
      const std::vector<double> actual = rounded.gradient_of(name);
      double difference = 0, norm = 0;
      for (std::size_t i = 0; i < expected.size(); ++i) {
        difference += (actual[i] - expected[i]) * (actual[i] - expected[i]);
        norm += expected[i] * expected[i];
      }
      EXPECT_LT(std::sqrt(difference / norm), 0.25) << name;
      EXPECT_GT(std::sqrt(difference / norm), 0.005) << name;
    }
  }
}

// What crosses is two bytes an element; loss and gradients are as far away as 8 bits of mantissa
// take them, and not where fp32 has them.
TEST(Bf16Stream, IsNearFp32AndHalfAsLarge) {
  for (RunConfig config : {tiny_config(), tiny_llama()}) {
    config.model.dtype = DType::kF32;
    const ModelSpec wide = resolved(config);
    config.model.stream = StreamKind::kBF16;
    const ModelSpec narrow = resolved(config);
    const Batch batch = make_batch(wide, 4);
    Chain exact(wide, 2);
    Chain rounded(narrow, 2);
    EXPECT_EQ(rounded.stage(0).layout().dtype, DType::kF32);
    const double loss = exact.forward(batch, attempt_of(1, 0));
    const double other = rounded.forward(batch, attempt_of(1, 0));
    EXPECT_NE(loss, other);
    EXPECT_NEAR(other / loss, 1, 0.002);
    exact.backward(attempt_of(1, 0));
    rounded.backward(attempt_of(1, 0));
    for (const char* name :
         {"embed.tokens.weight", "layers.0.mlp.down.weight", "layers.3.attention.o.weight"}) {
      const double apart = relative_difference(rounded.gradient_of(name), exact.gradient_of(name));
      EXPECT_LT(apart, 0.05) << name;
      EXPECT_GT(apart, 1e-4) << name;
    }
    const AttemptId id = attempt_of(2, 0);
    const auto hidden =
        rounded.stage(0).forward({.id = id, .rows = 4, .tokens = Batch::view(batch.tokens)});
    ASSERT_TRUE(hidden);
    const std::size_t bytes = std::size_t{4} * narrow.sequence * narrow.shape.d_model * 2;
    EXPECT_EQ(hidden->hidden.size(), bytes);
    ASSERT_TRUE(rounded.stage(1).forward({.id = id,
                                          .rows = 4,
                                          .hidden = hidden->hidden.bytes(),
                                          .targets = Batch::view(batch.targets)}));
    const auto gradient =
        rounded.stage(1).backward({.id = id, .accumulator = rounded.gradient(1).bytes()});
    ASSERT_TRUE(gradient);
    EXPECT_EQ(gradient->input_gradient.size(), bytes);
  }
}

TEST(Bf16Stream, NeedsFp32Parameters) {
  RunConfig config = tiny_config();
  config.model.stream = StreamKind::kBF16;
  const auto spec = resolve_model(config, config.model.vocab, 3);
  ASSERT_FALSE(spec);
  EXPECT_EQ(spec.error().code, ErrorCode::kUserMistake);
}

TEST(Fp8, FollowsTheParameters) {
  RunConfig config = tiny_config();
  config.model.dtype = DType::kF32;
  config.model.compute = ComputeKind::kFp8;
  const ModelSpec spec = resolved(config);
  const Batch batch = make_batch(spec, 2);
  Chain chain(spec, 1);
  const double before = chain.forward(batch, attempt_of(1, 0), 1, /*train=*/false);
  std::span<float> parameters(reinterpret_cast<float*>(chain.stage(0).parameters().data()),
                              chain.stage(0).layout().elements);
  const std::vector<float> saved(parameters.begin(), parameters.end());
  for (const ParameterSlot& slot : chain.stage(0).layout().slots) {
    if (!slot.name.ends_with("mlp.up.weight")) continue;
    for (std::uint64_t i = 0; i < slot.elements; ++i) parameters[slot.offset + i] *= -1;
  }
  chain.stage(0).parameters_changed();
  EXPECT_NE(chain.forward(batch, attempt_of(1, 0), 1, false), before);
  std::ranges::copy(saved, parameters.begin());
  chain.stage(0).parameters_changed();
  EXPECT_EQ(chain.forward(batch, attempt_of(1, 0), 1, false), before);
}

}  // namespace
}  // namespace swarmline::testing
