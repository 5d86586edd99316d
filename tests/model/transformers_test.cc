// GPT-2, Llama and Qwen3 as Hugging Face transformers computes them, from fixtures; attention
// against its formula.
#include <gtest/gtest.h>

#include "engine/model/stage_network.h"
#include "tests/model/model_fixture.h"
#include "tests/model/model_test_util.h"

namespace swarmline::testing {
namespace {

using Tensors = std::map<std::string, at::Tensor>;

struct Reference {
  const char* file;
  RunConfig config;
  double bound;  // relative; transformers computes Llama's norms and angles in float32
};

Reference gpt2() {
  RunConfig config = tiny_config();
  config.batch.sequence = 9;
  config.model = {.layers = 2, .d_model = 24, .heads = 4, .vocab = 61};
  config.model.activation = ActivationKind::kGeluTanh;
  config.model.dtype = DType::kF64;
  return {"gpt2", config, 1e-12};
}

Reference llama() {
  RunConfig config = tiny_llama();
  config.batch.sequence = 9;
  config.model.layers = 2;
  config.model.d_model = 24;
  config.model.vocab = 61;
  config.model.d_ff = 40;
  config.model.norm_eps = 1e-6;
  return {"llama", config, 2e-6};
}

// With norms of queries and keys, heads of their own width, and a window in the first layer.
Reference qwen3() {
  RunConfig config = llama().config;
  config.model.qk_norm = true;
  config.model.head_dim = 10;
  config.model.window = 4;
  config.model.window_pattern = "SL";
  return {"qwen3", config, 2e-6};
}

class Transformers : public ::testing::TestWithParam<Reference> {
 protected:
  Transformers()
      : spec_(resolved(GetParam().config)),
        fixture_(read_model_fixture(std::string(SWARMLINE_SOURCE_DIR "/tests/fixtures/model/") +
                                    GetParam().file + ".bin")) {}

  void fill(const ParameterLayout& layout, double* arena) const {
    std::size_t filled = 0;
    for (const ParameterSlot& slot : layout.slots) {
      const at::Tensor value = fixture_.at("parameter:" + slot.name).to(at::kDouble);
      ASSERT_EQ(value.sizes().vec(), slot.shape) << slot.name;
      std::memcpy(arena + slot.offset, value.const_data_ptr(), slot.elements * sizeof(double));
      ++filled;
    }
    std::size_t parameters = 0;
    for (const auto& [name, value] : fixture_) parameters += name.starts_with("parameter:") ? 1 : 0;
    EXPECT_EQ(filled, parameters);
  }
  static double difference(const at::Tensor& actual, const at::Tensor& expected) {
    return ((actual - expected).abs().max() / expected.abs().max()).item<double>();
  }

  const ModelSpec spec_;
  const Tensors fixture_;
};

TEST_P(Transformers, Logits) {
  const StageSpec stage = stage_of(spec_, 0, 1);
  const ParameterLayout layout = make_layout(spec_, stage);
  const at::Tensor arena = at::zeros({static_cast<std::int64_t>(layout.elements)}, at::kDouble);
  fill(layout, arena.data_ptr<double>());
  StageNetwork network(spec_, stage, layout, {arena, arena});
  const at::Tensor tokens = fixture_.at("tokens").flatten();
  at::NoGradGuard no_graph;
  const at::Tensor logits = network.logits(network.blocks(network.embed(tokens), std::nullopt));
  const at::Tensor& expected = fixture_.at("logits");
  EXPECT_LT(difference(logits.view_as(expected), expected), GetParam().bound);
}

TEST_P(Transformers, LossAndGradients) {
  Chain chain(spec_, 1);
  StageModel& model = chain.stage(0);
  fill(model.layout(), reinterpret_cast<double*>(model.parameters().data()));
  model.parameters_changed();
  const auto ints = [&](const char* name) {
    const at::Tensor& tensor = fixture_.at(name);
    const auto* const data = static_cast<const std::int32_t*>(tensor.const_data_ptr());
    return std::vector<std::int32_t>(data, data + tensor.numel());
  };
  const Batch batch{2, ints("tokens"), ints("targets")};
  const double loss = chain.forward(batch, attempt_of(1, 0));
  const double expected_loss = fixture_.at("loss").item<double>();
  EXPECT_NEAR(loss, expected_loss, GetParam().bound * expected_loss);
  chain.backward(attempt_of(1, 0));
  int compared = 0;
  for (const auto& [name, expected] : fixture_) {
    if (!name.starts_with("gradient:")) continue;
    const std::vector<double> actual = chain.gradient_of(name.substr(9));
    EXPECT_LT(difference(at::tensor(actual, at::kDouble).view_as(expected), expected),
              GetParam().bound)
        << name;
    ++compared;
  }
  EXPECT_GE(compared, 9);
}

INSTANTIATE_TEST_SUITE_P(Shapes, Transformers, ::testing::Values(gpt2(), llama(), qwen3()),
                         [](const auto& info) { return info.param.file; });

// What a CUDA device does, on the CPU: products in bf16, everything else in fp32.
TEST(Bf16Products, StayNearFp32) {
  for (RunConfig config : {tiny_config(), tiny_llama()}) {
    config.model.dtype = DType::kF32;
    config.model.dropout = 0.1;
    const ModelSpec spec = resolved(config);
    const StageSpec stage = stage_of(spec, 0, 1);
    const ParameterLayout layout = make_layout(spec, stage);
    const auto elements = static_cast<std::int64_t>(layout.elements);
    const at::Tensor values = at::zeros({elements}, at::kFloat);
    initialise_parameters(spec, layout, static_cast<std::byte*>(values.mutable_data_ptr()));
    const Batch batch = make_batch(spec, 2);
    const at::Tensor tokens = at::tensor(batch.tokens, at::kInt);
    const at::Tensor targets = at::tensor(batch.targets, at::kInt);
    std::vector<at::Tensor> losses, sums;
    for (const at::Tensor& compute : {values, values.to(at::kBFloat16)}) {
      StageNetwork network(spec, stage, layout, {values, compute});
      const at::Tensor input = network.embed(tokens).requires_grad_(true);
      const PhiloxKey key = dropout_key(spec.seed, attempt_of(1, 0).microbatch);
      const at::Tensor loss =
          cross_entropy_sum(network.logits(network.blocks(input, key)), targets);
      sums.push_back(at::zeros({elements}, at::kFloat));
      network.sink().open(sums.back(), 1);
      const at::Tensor dx = torch::autograd::grad({loss}, {input})[0];
      network.embed_backward(tokens, dx);
      losses.push_back(loss.detach());
    }
    EXPECT_NEAR(losses[1].item<double>(), losses[0].item<double>(),
                0.01 * losses[0].item<double>());
    EXPECT_LT(((sums[1] - sums[0]).norm() / sums[0].norm()).item<double>(), 0.05);
    EXPECT_FALSE(sums[1].equal(sums[0]));
  }
}

// Attention head by head and position by position, from the definition, for grouped heads with
// rotation by complex numbers. All other parts of the block are made the identity.
TEST(Attention, GroupedHeadsWithRotaryPositionsFollowTheFormula) {
  RunConfig config = tiny_llama();
  config.model.layers = 1;
  config.model.rope_theta = 50;
  const ModelSpec spec = resolved(config);
  const StageSpec stage{StageId(1), 3, 0, 1};
  const ParameterLayout layout = make_layout(spec, stage);
  const at::Tensor arena = at::zeros({static_cast<std::int64_t>(layout.elements)}, at::kDouble);
  initialise_parameters(spec, layout, static_cast<std::byte*>(arena.mutable_data_ptr()));
  const auto slot = [&](const std::string& name) {
    for (const ParameterSlot& s : layout.slots) {
      if (s.name == name) {
        return arena
            .narrow(0, static_cast<std::int64_t>(s.offset), static_cast<std::int64_t>(s.elements))
            .view(s.shape);
      }
    }
    throw std::runtime_error(name);
  };
  slot("layers.0.mlp.down.weight").zero_();
  slot("layers.0.attention.o.weight").copy_(at::eye(32, at::kDouble));
  StageNetwork network(spec, stage, layout, {arena, arena});
  at::NoGradGuard no_graph;
  at::manual_seed(3);
  const at::Tensor x = at::randn({2 * 6, 32}, at::kDouble);
  const at::Tensor mixed = (network.blocks(x, std::nullopt) - x).view({2, 6, 4, 8});

  const at::Tensor normal = x / at::sqrt(at::mean(x * x, 1, true) + spec.shape.norm_eps);
  const auto project = [&](const char* part, int heads) {
    return at::mm(normal, slot(std::string("layers.0.attention.") + part + ".weight").t())
        .view({2, 6, heads, 8});
  };
  const at::Tensor q = project("q", 4), k = project("k", 2), v = project("v", 2);
  const auto turned = [&](const at::Tensor& head, int position) {
    at::Tensor out = at::empty({8}, at::kDouble);
    for (int i = 0; i < 4; ++i) {
      const double angle = position * std::pow(50.0, -i / 4.0);
      const c10::complex<double> z(head[i].item<double>(), head[i + 4].item<double>());
      const c10::complex<double> w = z * c10::complex<double>(std::cos(angle), std::sin(angle));
      out[i] = w.real();
      out[i + 4] = w.imag();
    }
    return out;
  };
  for (int row = 0; row < 2; ++row) {
    for (int head = 0; head < 4; ++head) {
      for (int t = 0; t < 6; ++t) {
        at::Tensor sum = at::zeros({8}, at::kDouble);
        double total = 0;
        for (int s = 0; s <= t; ++s) {  // causal
          const double score =
              at::dot(turned(q[row][t][head], t), turned(k[row][s][head / 2], s)).item<double>() /
              std::sqrt(8.0);
          sum += std::exp(score) * v[row][s][head / 2];
          total += std::exp(score);
        }
        EXPECT_LT((mixed[row][t][head] - sum / total).abs().max().item<double>(), 1e-12);
      }
    }
  }
}

}  // namespace
}  // namespace swarmline::testing
