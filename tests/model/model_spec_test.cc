// What needs no libtorch: resolving, layouts, initialisation, costs and dropout masks.
#include "engine/model/model_spec.h"

#include <cmath>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/rng.h"
#include "engine/model/dropout.h"

namespace swarmline {
namespace {

RunConfig small_config() {
  RunConfig config;
  config.run.seed = 3;
  config.batch.sequence = 16;
  config.model = {.layers = 4, .d_model = 64, .heads = 4, .vocab = 100};
  return config;
}

StageSpec whole(const ModelSpec& spec) {
  return {StageId(0), 1, 0, spec.shape.layers};
}

const ParameterSlot* find(const ParameterLayout& layout, const std::string& name) {
  for (const ParameterSlot& slot : layout.slots) {
    if (slot.name == name) return &slot;
  }
  return nullptr;
}

TEST(ResolveModel, FillsEveryDefault) {
  RunConfig config = small_config();
  config.model.vocab = 0;
  ModelSpec spec = resolve_model(config, 257).value();
  EXPECT_EQ(spec.shape.vocab, 257U);
  EXPECT_EQ(spec.shape.kv_heads, 4U);
  EXPECT_EQ(spec.shape.d_ff, 256U);
  EXPECT_EQ(spec.sequence, 16U);
  EXPECT_EQ(spec.seed, 3U);
  config.model.activation = ActivationKind::kSwiGlu;
  EXPECT_EQ(resolve_model(config, 257)->shape.d_ff, 192U);  // 8/3 * 64 = 170.7, up to 64
}

TEST(ResolveModel, MistakesNameTheirKey) {
  struct Case {
    void (*change)(RunConfig&);
    const char* key;
  };
  const Case cases[] = {
      {[](RunConfig& c) { c.model.heads = 5; }, "model.d_model = 64 is not a multiple"},
      {[](RunConfig& c) { c.model.heads = 0; }, "model.heads = 0"},
      {[](RunConfig& c) { c.model.kv_heads = 3; }, "model.heads = 4 is not a multiple"},
      {[](RunConfig& c) { c.model.kv_heads = 8; }, "model.kv_heads = 8"},
      {[](RunConfig& c) { c.model.layers = 0; }, "model.layers = 0"},
      {[](RunConfig& c) { c.model.share_layers = 3; }, "model.layers = 4 is not a multiple"},
      {[](RunConfig& c) { c.model.share_layers = 0; }, "model.share_layers = 0"},
      {[](RunConfig& c) { c.model.d_model = 0; }, "model.d_model = 0"},
      {[](RunConfig& c) { c.model.d_model = 1U << 31; }, "model.d_model"},
      {[](RunConfig& c) { c.model.d_ff = 1U << 31; }, "model.d_ff"},
      {[](RunConfig& c) { c.model.vocab = 99; }, "model.vocab = 99"},
      {[](RunConfig& c) { c.model.dropout = 1; }, "model.dropout"},
      {[](RunConfig& c) { c.model.dropout = std::nan(""); }, "model.dropout"},
      {[](RunConfig& c) { c.model.norm_eps = 0; }, "model.norm_eps"},
      {[](RunConfig& c) { c.model.dtype = DType::kF16; }, "model.dtype"},
      {[](RunConfig& c) {
         c.model.boundary = BoundaryKind::kMaxout;
         c.model.boundary_factor = 3;
       },
       "model.boundary_factor = 3"},
      {[](RunConfig& c) {
         c.model.boundary = BoundaryKind::kMaxout;
         c.model.boundary_factor = 4;
         c.model.d_model = 66;
         c.model.heads = 3;
       },
       "model.d_model = 66 is not a multiple of model.boundary_factor"},
      {[](RunConfig& c) {
         c.model.compute = ComputeKind::kFp8;
         c.model.dtype = DType::kF64;
       },
       "model.compute"},
      {[](RunConfig& c) {
         c.model.compute = ComputeKind::kFp8;
         c.model.d_ff = 100;
       },
       "model.d_ff = 100"},
      {[](RunConfig& c) { c.batch.sequence = 0; }, "batch.sequence = 0"},
      {[](RunConfig& c) {
         c.model.positions = PositionKind::kRotary;
         c.model.heads = 64;
       },
       "model.positions"},
  };
  for (const Case& test : cases) {
    RunConfig config = small_config();
    test.change(config);
    const Result<ModelSpec> spec = resolve_model(config, 100);
    ASSERT_FALSE(spec.has_value()) << test.key;
    EXPECT_EQ(spec.error().code, ErrorCode::kUserMistake);
    EXPECT_NE(spec.error().what.find(test.key), std::string::npos) << spec.error().what;
  }
}

TEST(Layout, Gpt2NamesAndShapes) {
  const ModelSpec spec = resolve_model(small_config(), 100).value();
  const ParameterLayout layout = make_layout(spec, whole(spec));
  EXPECT_EQ(layout.slots.size(), 2U + 4 * 16 + 2);
  EXPECT_EQ(find(layout, "embed.tokens.weight")->shape, (std::vector<std::int64_t>{100, 64}));
  EXPECT_EQ(find(layout, "embed.positions.weight")->shape, (std::vector<std::int64_t>{16, 64}));
  EXPECT_EQ(find(layout, "layers.3.mlp.up.weight")->shape, (std::vector<std::int64_t>{256, 64}));
  EXPECT_EQ(find(layout, "layers.3.mlp.down.weight")->shape, (std::vector<std::int64_t>{64, 256}));
  EXPECT_TRUE(find(layout, "layers.0.attention.q.weight")->decay);
  EXPECT_FALSE(find(layout, "layers.0.attention.q.bias")->decay);
  EXPECT_FALSE(find(layout, "layers.0.attention_norm.weight")->decay);
  EXPECT_NE(find(layout, "final_norm.bias"), nullptr);
  EXPECT_EQ(find(layout, "head.weight"), nullptr);
  EXPECT_FALSE(layout.has_tied());
}

TEST(Layout, LlamaNamesAndShapes) {
  RunConfig config = small_config();
  config.model.kv_heads = 2;
  config.model.norm = NormKind::kRmsNorm;
  config.model.activation = ActivationKind::kSwiGlu;
  config.model.positions = PositionKind::kRotary;
  config.model.bias = false;
  config.model.tied_embeddings = false;
  const ModelSpec spec = resolve_model(config, 100).value();
  const ParameterLayout layout = make_layout(spec, whole(spec));
  EXPECT_EQ(layout.slots.size(), 1U + 4 * 9 + 2);
  EXPECT_EQ(find(layout, "layers.1.attention.k.weight")->shape,
            (std::vector<std::int64_t>{32, 64}));
  EXPECT_EQ(find(layout, "layers.1.mlp.gate.weight")->shape, (std::vector<std::int64_t>{192, 64}));
  EXPECT_EQ(find(layout, "head.weight")->shape, (std::vector<std::int64_t>{100, 64}));
  EXPECT_EQ(find(layout, "embed.positions.weight"), nullptr);
}

TEST(Layout, SlotsAreAlignedAndDisjoint) {
  RunConfig config = small_config();
  config.model.d_model = 12;  // gaps after every slot
  config.model.heads = 2;
  config.model.d_ff = 7;
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    config.model.dtype = dtype;
    const ModelSpec spec = resolve_model(config, 100).value();
    const ParameterLayout layout = make_layout(spec, whole(spec));
    std::uint64_t end = 0;
    for (const ParameterSlot& slot : layout.slots) {
      EXPECT_EQ(slot.offset * size_bytes(dtype) % kBufferAlignment, 0U) << slot.name;
      EXPECT_GE(slot.offset, end) << slot.name;
      std::uint64_t elements = 1;
      for (const std::int64_t extent : slot.shape) elements *= static_cast<std::uint64_t>(extent);
      EXPECT_EQ(slot.elements, elements);
      end = slot.offset + slot.elements;
    }
    EXPECT_GE(layout.elements, end);
    EXPECT_EQ(layout.bytes() % kBufferAlignment, 0U);
  }
}

TEST(Layout, TiedEmbeddingIsTheLastSlotOfBothEnds) {
  const ModelSpec spec = resolve_model(small_config(), 100).value();
  const ParameterLayout first = make_layout(spec, {StageId(0), 3, 0, 1});
  const ParameterLayout middle = make_layout(spec, {StageId(1), 3, 1, 3});
  const ParameterLayout last = make_layout(spec, {StageId(2), 3, 3, 4});
  EXPECT_FALSE(middle.has_tied());
  for (const ParameterLayout* layout : {&first, &last}) {
    ASSERT_TRUE(layout->has_tied());
    EXPECT_EQ(layout->slots.back().name, "embed.tokens.weight");
    EXPECT_EQ(layout->slots.back().offset, layout->tied_offset);
  }
  EXPECT_EQ(first.elements - first.tied_offset, last.elements - last.tied_offset);
  EXPECT_EQ(first.slots.front().name, "embed.positions.weight");
}

TEST(Layout, SharedLayersHaveOneBlock) {
  RunConfig config = small_config();
  config.model.share_layers = 2;
  const ModelSpec spec = resolve_model(config, 100).value();
  const ParameterLayout layout = make_layout(spec, {StageId(1), 2, 2, 4});
  EXPECT_NE(find(layout, "layers.1.mlp.up.weight"), nullptr);
  EXPECT_EQ(find(layout, "layers.0.mlp.up.weight"), nullptr);
  EXPECT_EQ(find(layout, "layers.2.mlp.up.weight"), nullptr);
  EXPECT_DEATH(make_layout(spec, {StageId(1), 2, 1, 4}), "share parameters");
}

TEST(Layout, ABoundarysEndsAreInTwoStages) {
  RunConfig config = small_config();
  config.model.boundary = BoundaryKind::kBottleneck;
  config.model.boundary_factor = 4;
  const ModelSpec spec = resolve_model(config, 100).value();
  EXPECT_EQ(spec.hidden_width(), 16U);
  const std::vector<StageSpec> cut = {
      {StageId(0), 3, 0, 1}, {StageId(1), 3, 1, 3}, {StageId(2), 3, 3, 4}};
  const ParameterLayout first = make_layout(spec, cut[0]);
  const ParameterLayout middle = make_layout(spec, cut[1]);
  EXPECT_EQ(find(first, "boundary.1.down.weight")->shape, (std::vector<std::int64_t>{16, 64}));
  EXPECT_EQ(find(first, "boundary.1.norm.weight")->shape, (std::vector<std::int64_t>{64}));
  EXPECT_FALSE(find(first, "boundary.1.norm.weight")->decay);
  EXPECT_EQ(find(first, "boundary.1.up.weight"), nullptr);
  EXPECT_EQ(find(middle, "boundary.1.up.weight")->shape, (std::vector<std::int64_t>{64, 16}));
  EXPECT_NE(find(middle, "boundary.3.down.bias"), nullptr);
  EXPECT_EQ(find(middle, "boundary.1.down.weight"), nullptr);
  // In one piece: the same tensors, each once.
  std::set<std::string> apart, together;
  for (const StageSpec& stage : cut) {
    for (const ParameterSlot& slot : make_layout(spec, stage).slots) apart.insert(slot.name);
  }
  const StageSpec one = whole_model(spec, cut);
  EXPECT_EQ(one.inner_boundaries, (std::vector<std::uint32_t>{1, 3}));
  for (const ParameterSlot& slot : make_layout(spec, one).slots) {
    EXPECT_TRUE(together.insert(slot.name).second) << slot.name;
  }
  EXPECT_EQ(together, apart);

  config.model.boundary = BoundaryKind::kMaxout;
  const ModelSpec maxout = resolve_model(config, 100).value();
  EXPECT_EQ(find(make_layout(maxout, cut[0]), "boundary.1.down.weight"), nullptr);
  EXPECT_NE(find(make_layout(maxout, cut[0]), "boundary.1.norm.weight"), nullptr);
  EXPECT_NE(find(make_layout(maxout, cut[2]), "boundary.3.up.weight"), nullptr);
  config.model.boundary = BoundaryKind::kNone;
  const ModelSpec none = resolve_model(config, 100).value();
  EXPECT_EQ(none.hidden_width(), 64U);
  EXPECT_TRUE(whole_model(none, cut).inner_boundaries.empty());
}

Buffer initialised(const ModelSpec& spec, const ParameterLayout& layout) {
  Buffer arena(layout.bytes());
  std::memset(arena.data(), 0xFF, arena.size());  // what is not written would be NaN
  initialise_parameters(spec, layout, arena.data());
  return arena;
}

TEST(Initialise, DoesNotDependOnTheCut) {
  const ModelSpec spec = resolve_model(small_config(), 100).value();
  const ParameterLayout one = make_layout(spec, whole(spec));
  const Buffer expected = initialised(spec, one);
  for (std::uint16_t s = 0; s < 4; ++s) {
    const ParameterLayout layout = make_layout(spec, {StageId(s), 4, s, s + 1U});
    const Buffer arena = initialised(spec, layout);
    for (const ParameterSlot& slot : layout.slots) {
      const ParameterSlot* const same = find(one, slot.name);
      ASSERT_NE(same, nullptr) << slot.name;
      EXPECT_EQ(std::memcmp(arena.as<float>().data() + slot.offset,
                            expected.as<float>().data() + same->offset, slot.elements * 4),
                0)
          << slot.name;
    }
  }
}

TEST(Initialise, GapsAreZeroNormsOneBiasesZero) {
  RunConfig config = small_config();
  config.model.d_model = 12;
  config.model.heads = 2;
  const ModelSpec spec = resolve_model(config, 100).value();
  const ParameterLayout layout = make_layout(spec, whole(spec));
  const Buffer arena = initialised(spec, layout);
  std::vector<bool> covered(layout.elements);
  for (const ParameterSlot& slot : layout.slots) {
    for (std::uint64_t i = slot.offset; i < slot.offset + slot.elements; ++i) {
      covered[i] = true;
      if (slot.name.ends_with("norm.weight")) EXPECT_EQ(arena.as<float>()[i], 1.0F);
      if (slot.name.ends_with(".bias")) EXPECT_EQ(arena.as<float>()[i], 0.0F);
    }
  }
  for (std::uint64_t i = 0; i < layout.elements; ++i) {
    if (!covered[i]) EXPECT_EQ(arena.as<float>()[i], 0.0F);
  }
}

// Widening what was narrowed leaves what neighbours have in common, and twice is once.
TEST(Initialise, ABoundaryBeginsAsAProjection) {
  RunConfig config = small_config();
  config.model.dtype = DType::kF64;
  config.model.boundary = BoundaryKind::kBottleneck;
  config.model.boundary_factor = 4;
  const ModelSpec spec = resolve_model(config, 100).value();
  const std::vector<StageSpec> cut = {{StageId(0), 2, 0, 2}, {StageId(1), 2, 2, 4}};
  const ParameterLayout layout = make_layout(spec, whole_model(spec, cut));
  const Buffer arena = initialised(spec, layout);
  const double* const down =
      arena.as<double>().data() + find(layout, "boundary.2.down.weight")->offset;
  const double* const up = arena.as<double>().data() + find(layout, "boundary.2.up.weight")->offset;
  for (int row = 0; row < 64; ++row) {
    for (int column = 0; column < 64; ++column) {
      double sum = 0;
      for (int k = 0; k < 16; ++k) sum += up[row * 16 + k] * down[k * 64 + column];
      EXPECT_NEAR(sum, row / 4 == column / 4 ? 0.25 : 0, 1e-15) << row << " " << column;
    }
  }
}

struct Moments {
  double mean, deviation, fourth;
};

Moments moments_of(const Buffer& arena, const ParameterSlot& slot) {
  double sum = 0, squares = 0, fourth = 0;
  for (std::uint64_t i = slot.offset; i < slot.offset + slot.elements; ++i) {
    const double x = arena.as<double>()[i];
    sum += x;
    squares += x * x;
    fourth += x * x * x * x;
  }
  const auto n = static_cast<double>(slot.elements);
  return {sum / n, std::sqrt(squares / n), fourth / n / (squares / n * squares / n)};
}

TEST(Initialise, IsNormalWithTheSetDeviation) {
  RunConfig config = small_config();
  config.model.dtype = DType::kF64;
  config.model.vocab = 2000;
  const ModelSpec spec = resolve_model(config, 100).value();
  const ParameterLayout layout = make_layout(spec, whole(spec));
  const Buffer arena = initialised(spec, layout);
  const Moments embedding = moments_of(arena, *find(layout, "embed.tokens.weight"));  // 128 000
  EXPECT_NEAR(embedding.mean, 0, 0.02 * 4 / std::sqrt(128000.0));
  EXPECT_NEAR(embedding.deviation, 0.02, 0.02 * 0.01);
  EXPECT_NEAR(embedding.fourth, 3, 0.06);
  const Moments residual = moments_of(arena, *find(layout, "layers.2.mlp.down.weight"));
  EXPECT_NEAR(residual.deviation, 0.02 / std::sqrt(8.0), 0.02 / std::sqrt(8.0) * 0.03);
  const Moments o = moments_of(arena, *find(layout, "layers.2.attention.o.weight"));
  EXPECT_NEAR(o.deviation, 0.02 / std::sqrt(8.0), 0.02 / std::sqrt(8.0) * 0.06);
}

// Box-Muller over the C library's functions, which may differ from ours in the last bits only.
TEST(Initialise, AgreesWithTheCLibrary) {
  RunConfig config = small_config();
  config.model.dtype = DType::kF64;
  const ModelSpec spec = resolve_model(config, 100).value();
  const ParameterLayout layout = make_layout(spec, whole(spec));
  const Buffer arena = initialised(spec, layout);
  const ParameterSlot& slot = *find(layout, "embed.tokens.weight");
  const std::uint64_t key = mix(mix(spec.seed, hash_name("init")), hash_name(slot.name));
  const auto unit = [](std::uint32_t high, std::uint32_t low) {
    return std::ldexp(static_cast<double>((std::uint64_t{high} << 32 | low) >> 11), -53);
  };
  for (std::uint32_t block = 0; 2 * block < slot.elements; ++block) {
    const auto w = philox4x32(
        {block, 0, 0, 0}, {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)});
    const double radius = 0.02 * std::sqrt(-2 * std::log1p(-unit(w[0], w[1])));
    const double angle = 2 * M_PI * unit(w[2], w[3]);
    EXPECT_NEAR(arena.as<double>()[slot.offset + 2 * block], radius * std::cos(angle), 1e-16);
    EXPECT_NEAR(arena.as<double>()[slot.offset + 2 * block + 1], radius * std::sin(angle), 1e-16);
  }
}

TEST(Initialise, OtherSeedsAndNamesGiveOtherNumbers) {
  RunConfig config = small_config();
  std::set<float> firsts;
  for (std::uint64_t seed : {1U, 2U, 3U}) {
    config.run.seed = seed;
    const ModelSpec spec = resolve_model(config, 100).value();
    const ParameterLayout layout = make_layout(spec, whole(spec));
    const Buffer arena = initialised(spec, layout);
    for (const ParameterSlot& slot : layout.slots) {
      if (slot.decay) firsts.insert(arena.as<float>()[slot.offset]);
    }
  }
  EXPECT_EQ(firsts.size(), 3U * (2 + 4 * 6));
}

TEST(Costs, FollowTheShape) {
  RunConfig config = small_config();
  config.model.d_model = 512;
  config.batch.sequence = 128;
  const ModelSpec spec = resolve_model(config, 100).value();
  const ModelCosts costs = model_costs(spec);
  ASSERT_EQ(costs.layer_flops.size(), 4U);
  // Six FLOPs per weight and token, and something for attention and passes over memory.
  const double weights = 12.0 * 512 * 512;
  EXPECT_GT(costs.layer_flops[0], 6 * weights * 128);
  EXPECT_LT(costs.layer_flops[0], 6 * weights * 128 * 1.2);
  EXPECT_GT(costs.head_flops, 6.0 * 512 * 100 * 128);
  EXPECT_LT(costs.embedding_flops, costs.layer_flops[0] / 50);

  config.model.vocab = 50257;
  EXPECT_GT(model_costs(resolve_model(config, 100).value()).head_flops, costs.head_flops * 300);
  config.batch.sequence = 1024;  // attention is quadratic
  EXPECT_GT(model_costs(resolve_model(config, 100).value()).layer_flops[0],
            costs.layer_flops[0] * 8);
}

TEST(Costs, OfABoundary) {
  RunConfig config = small_config();
  const ModelCosts without = model_costs(resolve_model(config, 100).value());
  EXPECT_EQ(without.sending_flops, 0);
  EXPECT_EQ(without.receiving_flops, 0);
  config.model.boundary = BoundaryKind::kBottleneck;
  const ModelCosts costs = model_costs(resolve_model(config, 100).value());
  EXPECT_EQ(costs.receiving_flops, 6.0 * 64 * 32 * 16);  // six FLOPs per weight and token
  EXPECT_GT(costs.sending_flops, costs.receiving_flops);
  config.model.boundary_factor = 4;
  EXPECT_LT(model_costs(resolve_model(config, 100).value()).sending_flops, costs.sending_flops);
  config.model.boundary = BoundaryKind::kMaxout;
  EXPECT_LT(model_costs(resolve_model(config, 100).value()).sending_flops, costs.sending_flops);
}

TEST(Retained, GrowsWithRowsAndLayersAndShrinksWithRecompute) {
  const ModelSpec spec = resolve_model(small_config(), 100).value();
  const StageSpec middle{StageId(1), 3, 1, 3};
  const StageSpec one{StageId(1), 3, 1, 2};
  const std::uint64_t bytes = retained_bytes(spec, middle, 2, false);
  EXPECT_EQ(retained_bytes(spec, middle, 4, false), 2 * bytes);
  EXPECT_GT(bytes, retained_bytes(spec, one, 2, false));
  EXPECT_EQ(retained_bytes(spec, middle, 2, true), 2U * 16 * 64 * 4);            // the stage input
  EXPECT_EQ(retained_bytes(spec, {StageId(0), 3, 0, 1}, 2, true), 2U * 16 * 4);  // tokens
}

// The mask by definition, one Philox call an element.
template <typename T>
T masked_element(const DropoutMask& mask, std::size_t e, T x) {
  const std::uint64_t block = e / 4;
  const auto words =
      philox4x32({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32),
                  mask.layer, static_cast<std::uint32_t>(mask.site)},
                 mask.key);
  const bool dropped = words[e % 4] < mask.probability * 4294967296.0;
  return dropped ? T{0} : x * static_cast<T>(1 / (1 - mask.probability));
}

TEST(Dropout, FollowsItsDefinitionAtEverySize) {
  const MicrobatchId id{{PhaseKind::kTrain, 12}, 5};
  for (const std::size_t n : {1U, 3U, 31U, 32U, 33U, 4097U}) {
    for (const double p : {0.0, 0.1, 0.5, 0.999}) {
      const DropoutMask mask{dropout_key(9, id), 3, DropoutSite::kMlp, p};
      std::vector<float> in(n), out(n);
      for (std::size_t i = 0; i < n; ++i) in[i] = static_cast<float>(i) + 0.5F;
      apply_dropout(mask, 0, n, in.data(), out.data());
      std::vector<double> wide(in.begin(), in.end());
      apply_dropout(mask, 0, n, wide.data(), wide.data());  // in place
      for (std::size_t i = 0; i < n; ++i) {
        ASSERT_EQ(out[i], masked_element(mask, i, in[i])) << i;
        ASSERT_EQ(wide[i], masked_element<double>(mask, i, in[i])) << i;
      }
    }
  }
}

TEST(Dropout, PartsEqualTheWhole) {
  const DropoutMask mask{{1, 2}, 0, DropoutSite::kEmbedding, 0.3};
  const std::vector<float> in(1000, 1.0F);
  std::vector<float> whole_result(1000), parts(1000);
  apply_dropout(mask, 0, 1000, in.data(), whole_result.data());
  apply_dropout(mask, 0, 640, in.data(), parts.data());
  apply_dropout(mask, 640, 360, in.data() + 640, parts.data() + 640);
  EXPECT_EQ(parts, whole_result);
}

TEST(Dropout, EveryPartOfTheKeyMatters) {
  const std::vector<float> in(4096, 1.0F);
  std::set<std::uint64_t> masks;
  const auto add = [&](std::uint64_t seed, std::uint64_t step, std::uint32_t index,
                       std::uint32_t layer, DropoutSite site) {
    std::vector<float> out(in.size());
    const MicrobatchId id{{PhaseKind::kTrain, step}, index};
    apply_dropout({dropout_key(seed, id), layer, site, 0.5}, 0, in.size(), in.data(), out.data());
    masks.insert(xxh3(std::as_bytes(std::span(out))));
    double kept = 0;
    for (const float x : out) kept += x > 0 ? 1 : 0;
    EXPECT_NEAR(kept / 4096, 0.5, 0.04);
  };
  add(1, 1, 1, 1, DropoutSite::kAttention);
  add(2, 1, 1, 1, DropoutSite::kAttention);
  add(1, 2, 1, 1, DropoutSite::kAttention);
  add(1, 1, 2, 1, DropoutSite::kAttention);
  add(1, 1, 1, 2, DropoutSite::kAttention);
  add(1, 1, 1, 1, DropoutSite::kMlp);
  EXPECT_EQ(masks.size(), 6U);
}

}  // namespace
}  // namespace swarmline
