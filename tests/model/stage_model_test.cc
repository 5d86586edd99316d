// What a stage promises its caller: gradients are derivatives of the loss, whatever the shape;
// accumulators, scales, retries, recomputation and bad numbers.
#include "engine/model/stage_model.h"

#include <gtest/gtest.h>

#include "tests/model/model_test_util.h"

namespace swarmline::testing {
namespace {

// Central differences of the loss along random directions in each tensor.
void expect_gradients_are_derivatives(const RunConfig& config) {
  const ModelSpec spec = resolved(config);
  const Batch batch = make_batch(spec, 2);
  Chain chain(spec, {whole_model(spec, even_cut(spec, 2))});
  StageModel& model = chain.stage(0);
  Rng rng(17);
  // Away from the initialisation, where norms and biases are the same everywhere.
  auto parameters =
      std::span(reinterpret_cast<double*>(model.parameters().data()), model.layout().elements);
  for (const ParameterSlot& slot : model.layout().slots) {
    for (std::uint64_t i = 0; i < slot.elements; ++i)
      parameters[slot.offset + i] += 0.1 * rng.normal();
  }
  model.parameters_changed();
  chain.forward(batch, attempt_of(1, 0), 0.5);
  chain.backward(attempt_of(1, 0));
  constexpr double kStep = 1e-5;
  for (const ParameterSlot& slot : model.layout().slots) {
    const std::vector<double> start(
        parameters.begin() + static_cast<std::ptrdiff_t>(slot.offset),
        parameters.begin() + static_cast<std::ptrdiff_t>(slot.offset + slot.elements));
    std::vector<double> direction(slot.elements);
    for (double& x : direction) x = rng.normal();
    const auto loss_at = [&](double t) {
      for (std::uint64_t i = 0; i < slot.elements; ++i) {
        parameters[slot.offset + i] = start[i] + t * direction[i];
      }
      model.parameters_changed();
      // A train forward: the dropout masks of the same microbatch.
      const double loss = chain.forward(batch, attempt_of(1, 0, 9), 1, true);
      model.release(attempt_of(1, 0, 9));
      return loss;
    };
    const double derivative = 0.5 * (loss_at(kStep) - loss_at(-kStep)) / (2 * kStep);
    loss_at(0);
    const std::vector<double> gradient = chain.gradient_of(slot.name);
    double along = 0, norm = 0;
    for (std::uint64_t i = 0; i < slot.elements; ++i) {
      along += gradient[i] * direction[i];
      norm += gradient[i] * gradient[i];
    }
    EXPECT_NEAR(along, derivative, 1e-6 * std::max(1.0, std::sqrt(norm))) << slot.name;
  }
}

TEST(Gradients, Gpt2) {
  expect_gradients_are_derivatives(tiny_config());
}
TEST(Gradients, Gpt2WithGeluTanhAndDropout) {
  RunConfig config = tiny_config();
  config.model.activation = ActivationKind::kGeluTanh;
  config.model.dropout = 0.2;
  expect_gradients_are_derivatives(config);
}
TEST(Gradients, LayerNormWithoutBiasesUntied) {
  RunConfig config = tiny_config();
  config.model.bias = false;
  config.model.tied_embeddings = false;
  expect_gradients_are_derivatives(config);
}
TEST(Gradients, Llama) {
  expect_gradients_are_derivatives(tiny_llama());
}
TEST(Gradients, LlamaTiedWithBiasesAndSharedLayers) {
  RunConfig config = tiny_llama();
  config.model.bias = true;
  config.model.tied_embeddings = true;
  config.model.share_layers = 2;
  expect_gradients_are_derivatives(config);
}
TEST(Gradients, Bottleneck) {
  expect_gradients_are_derivatives(with_boundary(tiny_config(), BoundaryKind::kBottleneck, 2));
  expect_gradients_are_derivatives(with_boundary(tiny_llama(), BoundaryKind::kBottleneck, 4));
}
TEST(Gradients, Maxout) {
  expect_gradients_are_derivatives(with_boundary(tiny_config(), BoundaryKind::kMaxout, 4));
  expect_gradients_are_derivatives(with_boundary(tiny_llama(), BoundaryKind::kMaxout, 2));
}
TEST(Gradients, MaskedDocuments) {
  expect_gradients_are_derivatives(with_documents(tiny_config()));
  RunConfig config = with_documents(tiny_llama());
  config.model.window = 3;
  config.model.window_pattern = "SL";
  config.model.dropout = 0.2;
  expect_gradients_are_derivatives(config);
}
TEST(Gradients, SlotsWithGaps) {
  RunConfig config = tiny_llama();
  config.model.d_model = 12;
  config.model.heads = 2;
  config.model.kv_heads = 1;
  config.model.d_ff = 7;
  config.model.bias = true;
  expect_gradients_are_derivatives(config);
}

class Stage : public ::testing::Test {
 protected:
  Stage() {
    RunConfig config = tiny_config();
    config.model.dropout = 0.1;
    spec_ = resolved(config);
    batch_ = make_batch(spec_, 2);
    Rng rng(2);
    hidden_ = random_hidden(spec_, 2, rng);
    gradient_ = random_hidden(spec_, 2, rng);
  }

  StageSpec middle() const { return stage_of(spec_, 1, 4); }
  ForwardInput forward_input(AttemptId id) const {
    return {.id = id, .rows = 2, .hidden = hidden_.bytes()};
  }
  // Forward and backward of the middle stage into `sums`.
  Buffer run(StageModel& model, AttemptId id, Buffer& sums, double scale = 1) {
    EXPECT_TRUE(model.forward(forward_input(id)).has_value());
    return backward(model, {.id = id, .scale = scale, .accumulator = sums.bytes()});
  }
  Buffer backward(StageModel& model, BackwardInput input) {
    input.output_gradient = gradient_.bytes();
    auto output = model.backward(input);
    if (!output) ADD_FAILURE() << output.error().what;
    return std::move(output->input_gradient);
  }

  ModelSpec spec_;
  Batch batch_;
  Buffer hidden_;
  Buffer gradient_;
};

std::vector<double> values(const Buffer& buffer) {
  return {buffer.as<double>().begin(), buffer.as<double>().end()};
}

TEST_F(Stage, RecomputeChangesNoBit) {
  for (const std::uint32_t stage : {0U, 1U, 3U}) {
    const StageSpec spec = stage_of(spec_, stage, 4);
    std::vector<std::vector<double>> sums, inputs;
    for (const bool recompute : {false, true}) {
      auto model = make_stage(spec_, spec, {.recompute = recompute});
      ForwardInput input = forward_input(attempt_of(4, 1));
      input.tokens = Batch::view(batch_.tokens);
      input.targets = Batch::view(batch_.targets);
      ASSERT_TRUE(model->forward(input).has_value());
      Buffer sum = Buffer::zeroed(model->layout().bytes());
      inputs.push_back(values(backward(*model, {.id = input.id, .accumulator = sum.bytes()})));
      sums.push_back(values(sum));
    }
    EXPECT_EQ(sums[0], sums[1]) << stage;
    EXPECT_EQ(inputs[0], inputs[1]) << stage;
    EXPECT_GT(relative_difference(sums[0], std::vector<double>(sums[0].size())), 0);
  }
}

TEST_F(Stage, AnotherAttemptOfAMicrobatchIsTheSameContribution) {
  auto model = make_stage(spec_, middle());
  auto other = make_stage(spec_, middle());
  Buffer a = Buffer::zeroed(model->layout().bytes());
  Buffer b = Buffer::zeroed(model->layout().bytes());
  Buffer c = Buffer::zeroed(model->layout().bytes());
  const Buffer first = run(*model, attempt_of(4, 1, 0), a);
  const Buffer second = run(*other, attempt_of(4, 1, 77), b);
  EXPECT_EQ(values(a), values(b));
  EXPECT_EQ(values(first), values(second));
  run(*model, attempt_of(4, 2, 0), c);  // another microbatch: other masks
  EXPECT_NE(values(a), values(c));
}

TEST_F(Stage, ThreadsDoNotChangeTheMask) {
  auto one = make_stage(spec_, middle());
  const auto alone = values(one->forward(forward_input(attempt_of(1, 1)))->hidden);
  auto two = make_stage(spec_, middle(), {.threads = 2});
  const auto together = values(two->forward(forward_input(attempt_of(1, 1)))->hidden);
  set_compute_threads(1);
  EXPECT_LT(relative_difference(together, alone), 1e-13);
}

TEST_F(Stage, AddsToWhateverTheAccumulatorHolds) {
  auto model = make_stage(spec_, middle());
  Buffer first = Buffer::zeroed(model->layout().bytes());
  Buffer second = Buffer::zeroed(model->layout().bytes());
  Buffer expected_first = Buffer::zeroed(model->layout().bytes());
  Buffer expected_second = Buffer::zeroed(model->layout().bytes());
  for (std::uint32_t i = 0; i < 4; ++i) {  // alternating: two open steps
    run(*model, attempt_of(1 + i % 2, i), i % 2 == 0 ? first : second);
  }
  for (std::uint32_t i : {0U, 2U}) run(*model, attempt_of(1, i), expected_first);
  for (std::uint32_t i : {1U, 3U}) run(*model, attempt_of(2, i), expected_second);
  EXPECT_EQ(values(first), values(expected_first));
  EXPECT_EQ(values(second), values(expected_second));
  EXPECT_NE(values(first), values(second));
}

TEST_F(Stage, ScaleMinusOneTakesAContributionBack) {
  auto model = make_stage(spec_, middle());
  Buffer sum = Buffer::zeroed(model->layout().bytes());
  const Buffer once = run(*model, attempt_of(1, 0), sum);
  const std::vector<double> before = values(sum);
  run(*model, attempt_of(1, 1), sum);
  const Buffer back = run(*model, attempt_of(1, 1, 5), sum, -1);
  EXPECT_LT(relative_difference(values(sum), before), 1e-14);
  Buffer half = Buffer::zeroed(model->layout().bytes());
  const Buffer scaled = run(*model, attempt_of(1, 0), half, 0.5);
  EXPECT_EQ(values(scaled), values(once));  // the input gradient is not scaled
  for (double& x : half.as<double>()) x *= 2;
  EXPECT_EQ(values(half), before);
}

TEST_F(Stage, InputGradientAloneTouchesNoAccumulator) {
  auto model = make_stage(spec_, middle());
  Buffer sum = Buffer::zeroed(model->layout().bytes());
  const Buffer expected = run(*model, attempt_of(1, 0), sum);
  ASSERT_TRUE(model->forward(forward_input(attempt_of(1, 0, 1))).has_value());
  const Buffer alone = backward(*model, {.id = attempt_of(1, 0, 1), .weight_gradients = false});
  EXPECT_EQ(values(alone), values(expected));

  auto first = make_stage(spec_, stage_of(spec_, 0, 4));
  ForwardInput tokens{.id = attempt_of(1, 0), .rows = 2, .tokens = Batch::view(batch_.tokens)};
  ASSERT_TRUE(first->forward(tokens).has_value());
  auto nothing = first->backward(
      {.id = tokens.id, .output_gradient = gradient_.bytes(), .weight_gradients = false});
  ASSERT_TRUE(nothing.has_value());
  EXPECT_TRUE(nothing->input_gradient.empty());
  EXPECT_EQ(first->saved_graphs(), 0U);
}

TEST_F(Stage, AKeptGraphRunsBackwardAgain) {
  for (const bool recompute : {false, true}) {
    auto model = make_stage(spec_, middle(), {.recompute = recompute});
    Buffer sum = Buffer::zeroed(model->layout().bytes());
    const AttemptId id = attempt_of(1, 0);
    ASSERT_TRUE(model->forward(forward_input(id)).has_value());
    const Buffer first =
        backward(*model, {.id = id, .weight_gradients = false, .keep_graph = true});
    EXPECT_EQ(model->saved_graphs(), 1U);
    const Buffer second =
        backward(*model, {.id = id, .keep_graph = true, .accumulator = sum.bytes()});
    EXPECT_EQ(values(first), values(second));
    backward(*model, {.id = id, .scale = -1, .accumulator = sum.bytes()});
    EXPECT_EQ(model->saved_graphs(), 0U);
    const std::vector<double> zeros(values(sum).size());
    for (const double x : values(sum)) EXPECT_NEAR(x, 0, 1e-12);
  }
}

// Bit for bit what a backward adds at once, of a middle stage and of one with a head, while another
// microbatch is computed between the two halves.
TEST_F(Stage, WeightGradientsThatAreAddedLaterAreTheSame) {
  for (const RunConfig& config : {tiny_config(), tiny_llama()}) {
    const ModelSpec spec = resolved(config);
    for (const std::uint32_t stage : {1U, 3U}) {
      std::vector<std::vector<double>> sums, inputs;
      for (const bool later : {false, true}) {
        auto model = make_stage(spec, stage_of(spec, stage, 4));
        Buffer sum = Buffer::zeroed(model->layout().bytes());
        const std::vector<double> nothing = values(sum);
        for (std::uint32_t i = 0; i < 2; ++i) {
          ForwardInput input = forward_input(attempt_of(1, i));
          input.targets = Batch::view(batch_.targets);
          ASSERT_TRUE(model->forward(input).has_value());
          inputs.push_back(values(
              backward(*model, {.id = input.id, .add_later = later, .accumulator = sum.bytes()})));
        }
        if (later) {
          EXPECT_EQ(values(sum), nothing);
          EXPECT_EQ(model->saved_graphs(), 2U);
          for (std::uint32_t i = 0; i < 2; ++i)
            ASSERT_TRUE(model->add_weight_gradients(attempt_of(1, i), sum.bytes()).has_value());
        }
        EXPECT_EQ(model->saved_graphs(), 0U);
        EXPECT_NE(values(sum), nothing);
        sums.push_back(values(sum));
      }
      EXPECT_EQ(sums[0], sums[1]) << stage;
      EXPECT_EQ(inputs[0], inputs[2]) << stage;
      EXPECT_EQ(inputs[1], inputs[3]) << stage;
    }
  }
}

TEST_F(Stage, WeightGradientsThatWaitAreAddedOnceOrReleased) {
  auto model = make_stage(spec_, middle());
  Buffer sum = Buffer::zeroed(model->layout().bytes());
  const auto wait = [&](const AttemptId& id) {
    ASSERT_TRUE(model->forward(forward_input(id)).has_value());
    backward(*model, {.id = id, .add_later = true, .accumulator = sum.bytes()});
  };
  wait(attempt_of(1, 0));
  wait(attempt_of(1, 1));
  EXPECT_EQ(model->saved_graphs(), 2U);
  model->release(attempt_of(1, 1));
  ASSERT_TRUE(model->add_weight_gradients(attempt_of(1, 0), sum.bytes()).has_value());
  EXPECT_EQ(model->saved_graphs(), 0U);
  for (const std::uint32_t index : {0U, 1U}) {
    const auto none = model->add_weight_gradients(attempt_of(1, index), sum.bytes());
    ASSERT_FALSE(none.has_value());
    EXPECT_EQ(none.error().code, ErrorCode::kNotFound);
  }
}

TEST_F(Stage, ReleaseDropsAndUnknownAttemptsAreSaid) {
  auto model = make_stage(spec_, middle());
  ASSERT_TRUE(model->forward(forward_input(attempt_of(1, 0))).has_value());
  ASSERT_TRUE(model->forward(forward_input(attempt_of(1, 1))).has_value());
  EXPECT_EQ(model->saved_graphs(), 2U);
  model->release(attempt_of(1, 0));
  model->release(attempt_of(8, 8));
  EXPECT_EQ(model->saved_graphs(), 1U);
  const auto gone = model->backward(
      {.id = attempt_of(1, 0), .output_gradient = gradient_.bytes(), .weight_gradients = false});
  ASSERT_FALSE(gone.has_value());
  EXPECT_EQ(gone.error().code, ErrorCode::kNotFound);
}

TEST_F(Stage, EvaluationKeepsNothingAndDropsNothing) {
  auto model = make_stage(spec_, middle());
  ForwardInput input = forward_input(attempt_of(1, 0));
  input.train = false;
  const auto quiet = values(model->forward(input)->hidden);
  EXPECT_EQ(model->saved_graphs(), 0U);
  input.id = attempt_of(2, 3);
  EXPECT_EQ(values(model->forward(input)->hidden), quiet);
  input.train = true;
  EXPECT_NE(values(model->forward(input)->hidden), quiet);
}

TEST_F(Stage, WrittenParametersAreUsed) {
  auto model = make_stage(spec_, middle());
  ForwardInput input = forward_input(attempt_of(1, 0));
  input.train = false;
  const auto before = values(model->forward(input)->hidden);
  std::memset(model->parameters().data(), 0, model->parameters().size());
  model->parameters_changed();
  // Without weights a block adds nothing to the residual stream.
  EXPECT_EQ(values(model->forward(input)->hidden), values(hidden_));
  EXPECT_NE(before, values(hidden_));
}

TEST_F(Stage, NegativeTargetsAreNotCounted) {
  Chain chain(spec_, 1);
  Batch half = batch_;
  Batch other = batch_;
  for (std::size_t i = 0; i < half.targets.size(); ++i) {
    (i % 3 == 0 ? half : other).targets[i] = i % 2 == 0 ? -1 : -100;
  }
  const double all = chain.forward(batch_, attempt_of(1, 0), 1, false);
  const double sum = chain.forward(half, attempt_of(1, 0), 1, false) +
                     chain.forward(other, attempt_of(1, 0), 1, false);
  EXPECT_NEAR(sum, all, 1e-12 * all);
  Batch none = batch_;
  std::fill(none.targets.begin(), none.targets.end(), -1);
  EXPECT_EQ(chain.forward(none, attempt_of(1, 1)), 0);
  chain.backward(attempt_of(1, 1));
  for (const double x : values(chain.gradient(0))) ASSERT_EQ(x, 0);
}

TEST_F(Stage, BadNumbersAreFlaggedNotHidden) {
  auto model = make_stage(spec_, middle());
  for (const double poison : {std::nan(""), double{INFINITY}}) {
    hidden_.as<double>()[100] = poison;
    const auto output = model->forward(forward_input(attempt_of(1, 0)));
    ASSERT_TRUE(output.has_value());
    EXPECT_FALSE(output->finite);
    model->release(attempt_of(1, 0));
  }
  hidden_.as<double>()[100] = 0;
  ASSERT_TRUE(model->forward(forward_input(attempt_of(1, 0))).has_value());
  gradient_.as<double>()[7] = INFINITY;
  Buffer sum = Buffer::zeroed(model->layout().bytes());
  const auto output = model->backward(
      {.id = attempt_of(1, 0), .output_gradient = gradient_.bytes(), .accumulator = sum.bytes()});
  ASSERT_TRUE(output.has_value());
  EXPECT_FALSE(output->finite);

  auto last = make_stage(spec_, stage_of(spec_, 3, 4));
  hidden_.as<double>()[0] = std::nan("");
  ForwardInput input = forward_input(attempt_of(1, 0));
  input.targets = Batch::view(batch_.targets);
  EXPECT_FALSE(last->forward(input)->finite);
}

TEST_F(Stage, ATokenOutsideTheVocabularyIsAnErrorNotACrash) {
  auto first = make_stage(spec_, stage_of(spec_, 0, 4));
  batch_.tokens[3] = static_cast<std::int32_t>(spec_.shape.vocab);
  const auto output =
      first->forward({.id = attempt_of(1, 0), .rows = 2, .tokens = Batch::view(batch_.tokens)});
  ASSERT_FALSE(output.has_value());
  EXPECT_EQ(output.error().code, ErrorCode::kDevice);
  EXPECT_EQ(first->saved_graphs(), 0U);
}

TEST_F(Stage, DevicesThatAreNotThere) {
  for (const char* device : {"tpu", "cuda:x", "cuda:", ""}) {
    const auto model = make_stage_model(spec_, middle(), {.device = device});
    ASSERT_FALSE(model.has_value()) << device;
    EXPECT_EQ(model.error().code, ErrorCode::kUserMistake);
    EXPECT_NE(model.error().what.find("expected"), std::string::npos);
  }
  const auto absent = make_stage_model(spec_, middle(), {.device = "cuda:99"});
  ASSERT_FALSE(absent.has_value());
  EXPECT_EQ(absent.error().code, ErrorCode::kUserMistake);
  EXPECT_NE(absent.error().what.find("CUDA"), std::string::npos);
}

}  // namespace
}  // namespace swarmline::testing
