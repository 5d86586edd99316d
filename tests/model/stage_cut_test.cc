// One model, however it is cut: losses, hidden states and gradients are the same.

#include <gtest/gtest.h>

#include "tests/model/model_test_util.h"

namespace swarmline::testing {
namespace {

struct CutCase {
  const char* name;
  RunConfig config;
};

CutCase with(const char* name, RunConfig config, double dropout, std::uint32_t share, bool tied) {
  config.model.dropout = dropout;
  config.model.share_layers = share;
  config.model.tied_embeddings = tied;
  return {name, config};
}

class StageCut : public ::testing::TestWithParam<CutCase> {};

TEST_P(StageCut, TwoAndFourStagesEqualOne) {
  const ModelSpec spec = resolved(GetParam().config);
  const Batch batch = make_batch(spec, 3);
  const AttemptId id = attempt_of(7, 2);
  const double bound = spec.shape.dtype == DType::kF64 ? 1e-14 : 1e-6;
  Chain whole(spec, 1);
  const double loss = whole.forward(batch, id, 0.25);
  whole.backward(id);
  for (std::uint32_t stages : {2U, 4U}) {
    if (stages > spec.shape.layers / spec.shape.share_layers) continue;
    Chain cut(spec, stages);
    EXPECT_EQ(cut.forward(batch, id, 0.25), loss) << stages;  // bit-equal on one thread
    cut.backward(id);
    ASSERT_EQ(cut.names(), whole.names());
    for (const std::string& name : whole.names()) {
      const std::vector<double> expected = whole.gradient_of(name);
      const std::vector<double> actual = cut.gradient_of(name);
      // A tied embedding is summed in another order.
      if (spec.shape.tied_embeddings && name == "embed.tokens.weight") {
        EXPECT_LT(relative_difference(actual, expected), bound) << name;
      } else {
        EXPECT_EQ(actual, expected) << name << " with " << stages << " stages";
      }
      // Softmax ignores what is the same for all keys: a key bias has no gradient.
      if (name.ends_with("attention.k.bias")) continue;
      EXPECT_GT(relative_difference(expected, std::vector<double>(expected.size())), 0) << name;
    }
  }
}

TEST(StageWithoutLayers, IsAStageToo) {
  for (const bool recompute : {false, true}) {
    const ModelSpec spec = resolved(tiny_config());
    const Batch batch = make_batch(spec, 2);
    Chain whole(spec, 1);
    const double loss = whole.forward(batch, attempt_of(1, 0));
    whole.backward(attempt_of(1, 0));
    const std::vector<StageSpec> cut = {
        {StageId(0), 3, 0, 0}, {StageId(1), 3, 0, 4}, {StageId(2), 3, 4, 4}};
    Chain ends(spec, cut, {.recompute = recompute});
    EXPECT_EQ(ends.forward(batch, attempt_of(1, 0)), loss);
    ends.backward(attempt_of(1, 0));
    for (const std::string& name : whole.names()) {
      EXPECT_LT(relative_difference(ends.gradient_of(name), whole.gradient_of(name)), 1e-13)
          << name;
    }
  }
}

// A boundary's two halves in two stages are the boundary inside one stage.
class Boundary : public ::testing::TestWithParam<CutCase> {};

TEST_P(Boundary, StagesEqualTheModelInOnePiece) {
  const ModelSpec spec = resolved(GetParam().config);
  const Batch batch = make_batch(spec, 3);
  const AttemptId id = attempt_of(7, 2);
  for (const std::uint32_t stages : {2U, 4U}) {
    if (stages > spec.shape.layers / spec.shape.share_layers) continue;
    for (const bool recompute : {false, true}) {
      const std::vector<StageSpec> cut = even_cut(spec, stages);
      Chain whole(spec, {whole_model(spec, cut)});
      Chain apart(spec, cut, {.recompute = recompute});
      EXPECT_EQ(apart.forward(batch, id, 0.25), whole.forward(batch, id, 0.25));
      whole.backward(id);
      apart.backward(id);
      ASSERT_EQ(apart.names(), whole.names());
      for (const std::string& name : whole.names()) {
        const std::vector<double> expected = whole.gradient_of(name);
        // A tied embedding is summed in another order.
        EXPECT_LT(relative_difference(apart.gradient_of(name), expected), 1e-13) << name;
        if (name.ends_with("attention.k.bias")) continue;
        EXPECT_GT(relative_difference(expected, std::vector<double>(expected.size())), 0) << name;
      }
    }
  }
}

TEST_P(Boundary, NarrowsWhatTravels) {
  const ModelSpec spec = resolved(GetParam().config);
  const std::size_t bytes =
      std::size_t{2} * spec.sequence * spec.hidden_width() * size_bytes(spec.shape.stream_dtype());
  ASSERT_EQ(spec.hidden_width(), spec.shape.d_model / spec.shape.boundary_factor);
  const Batch batch = make_batch(spec, 2);
  const std::vector<StageSpec> cut = even_cut(spec, 2);
  auto first = make_stage(spec, cut[0]);
  auto last = make_stage(spec, cut[1]);
  const AttemptId id = attempt_of(0, 0);
  const auto hidden = first->forward({.id = id,
                                      .rows = 2,
                                      .tokens = Batch::view(batch.tokens),
                                      .targets = Batch::view(batch.targets)});
  ASSERT_TRUE(hidden);
  EXPECT_EQ(hidden->hidden.size(), bytes);
  ASSERT_TRUE(last->forward({.id = id,
                             .rows = 2,
                             .hidden = hidden->hidden.bytes(),
                             .targets = Batch::view(batch.targets)}));
  Buffer sums = Buffer::zeroed(last->layout().bytes());
  const auto gradient = last->backward({.id = id, .accumulator = sums.bytes()});
  ASSERT_TRUE(gradient);
  EXPECT_EQ(gradient->input_gradient.size(), bytes);
}

CutCase boundary(const char* name, RunConfig config, BoundaryKind kind, std::uint32_t factor) {
  return {name, with_boundary(std::move(config), kind, factor)};
}
RunConfig shared_with_dropout() {
  RunConfig config = tiny_config();
  config.model.share_layers = 2;
  config.model.dropout = 0.2;
  return config;
}

RunConfig in_fp32(RunConfig config) {
  config.model.dtype = DType::kF32;
  return config;
}

RunConfig in_fp8(RunConfig config) {
  config.model.compute = ComputeKind::kFp8;
  return in_fp32(config);
}

RunConfig in_bf16_stream(RunConfig config) {
  config.model.stream = StreamKind::kBF16;
  return in_fp32(config);
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, Boundary,
    ::testing::Values(
        boundary("bottleneck_2", tiny_config(), BoundaryKind::kBottleneck, 2),
        boundary("bottleneck_4_llama", tiny_llama(), BoundaryKind::kBottleneck, 4),
        boundary("bottleneck_2_shared", shared_with_dropout(), BoundaryKind::kBottleneck, 2),
        boundary("maxout_2_llama", tiny_llama(), BoundaryKind::kMaxout, 2),
        boundary("maxout_4", tiny_config(), BoundaryKind::kMaxout, 4),
        boundary("bottleneck_2_bf16_stream", in_bf16_stream(tiny_llama()),
                 BoundaryKind::kBottleneck, 2),
        boundary("maxout_2_bf16_stream", in_bf16_stream(tiny_llama()), BoundaryKind::kMaxout, 2),
        boundary("bottleneck_2_documents", with_documents(tiny_llama()), BoundaryKind::kBottleneck,
                 2)),
    [](const auto& info) { return info.param.name; });

RunConfig odd_sizes() {
  RunConfig config = tiny_llama();  // slots with gaps: q, k, v and gate, up cannot be one product
  config.model.d_model = 12;
  config.model.heads = 2;
  config.model.kv_heads = 1;
  config.model.d_ff = 7;
  config.model.bias = true;
  return config;
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, StageCut,
    ::testing::Values(with("gpt2", tiny_config(), 0, 1, true),
                      with("gpt2_untied_dropout", tiny_config(), 0.3, 1, false),
                      with("gpt2_tied_dropout_fp32", in_fp32(tiny_config()), 0.1, 1, true),
                      with("llama", tiny_llama(), 0, 1, false),
                      with("llama_tied_dropout", tiny_llama(), 0.2, 1, true),
                      with("shared_layers", tiny_config(), 0.2, 2, true),
                      with("fp8_dropout", in_fp8(tiny_config()), 0.1, 1, true),
                      with("fp8_llama", in_fp8(tiny_llama()), 0, 1, false),
                      with("bf16_stream_dropout", in_bf16_stream(tiny_config()), 0.1, 1, true),
                      with("bf16_stream_llama", in_bf16_stream(tiny_llama()), 0, 1, false),
                      with("bf16_stream_fp8", in_bf16_stream(in_fp8(tiny_llama())), 0.1, 2, false),
                      with("odd_sizes", odd_sizes(), 0, 1, false),
                      with("documents", with_documents(tiny_config()), 0.2, 1, true),
                      with("documents_fp32", in_fp32(with_documents(tiny_llama())), 0, 1, false)),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace swarmline::testing
