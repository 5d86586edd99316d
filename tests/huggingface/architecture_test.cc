// Which models fit which architecture of transformers, and what is said of the others.
#include "engine/huggingface/architecture.h"

#include <functional>

#include <gtest/gtest.h>

#include "engine/huggingface/hf_config.h"

namespace swarmline {
namespace {

ModelSpec spec_of(const std::function<void(ModelSection&)>& change, bool llama) {
  RunConfig config;
  config.batch.sequence = 16;
  ModelSection& model = config.model;
  model.layers = 4;
  model.d_model = 32;
  model.vocab = 50;
  model.activation = ActivationKind::kGeluTanh;
  if (llama) {
    model.norm = NormKind::kRmsNorm;
    model.positions = PositionKind::kRotary;
    model.activation = ActivationKind::kSwiGlu;
    model.bias = false;
  }
  change(model);
  auto spec = resolve_model(config, 50);
  EXPECT_TRUE(spec) << spec.error().what;
  return spec.value();
}

TEST(Architecture, EachKindOfModelHasOne) {
  const auto none = [](ModelSection&) {};
  const auto with = [](auto member, auto value) {
    return [=](ModelSection& model) { model.*member = value; };
  };
  EXPECT_EQ(architecture_of(spec_of(none, false)), HfArchitecture::kGpt2);
  EXPECT_EQ(architecture_of(spec_of(with(&ModelSection::bias, false), false)),
            HfArchitecture::kGpt2);
  EXPECT_EQ(architecture_of(spec_of(none, true)), HfArchitecture::kLlama);
  EXPECT_EQ(architecture_of(spec_of(with(&ModelSection::bias, true), true)),
            HfArchitecture::kLlama);
  EXPECT_EQ(architecture_of(spec_of(with(&ModelSection::share_layers, 2U), true)),
            HfArchitecture::kLlama);
  EXPECT_EQ(architecture_of(spec_of(with(&ModelSection::window, 8U), true)),
            HfArchitecture::kMistral);
  EXPECT_EQ(architecture_of(spec_of(with(&ModelSection::qk_norm, true), true)),
            HfArchitecture::kQwen3);
}

struct Misfit {
  bool llama;
  std::function<void(ModelSection&)> change;
  const char* key;
};

TEST(Architecture, TheSentenceNamesTheKeyThatDoesNotFit) {
  const Misfit misfits[] = {
      {false, [](auto& m) { m.positions = PositionKind::kRotary; }, "model.positions"},
      {false, [](auto& m) { m.activation = ActivationKind::kSwiGlu; }, "model.activation"},
      {false, [](auto& m) { m.kv_heads = 2; }, "model.kv_heads"},
      {false, [](auto& m) { m.head_dim = 16; }, "model.head_dim"},
      {false, [](auto& m) { m.qk_norm = true; }, "model.qk_norm"},
      {false, [](auto& m) { m.window = 4; }, "model.window"},
      {false, [](auto& m) { m.boundary = BoundaryKind::kMaxout; }, "model.boundary"},
      {true, [](auto& m) { m.positions = PositionKind::kLearned; }, "model.positions"},
      {true, [](auto& m) { m.activation = ActivationKind::kGelu; }, "model.activation"},
      {true, [](auto& m) { m.qk_norm = m.bias = true; }, "model.bias"},
      {true,
       [](auto& m) {
         m.window = 4;
         m.window_pattern = "SL";
       },
       "model.window_pattern"},
  };
  for (const Misfit& misfit : misfits) {
    const auto found = architecture_of(spec_of(misfit.change, misfit.llama));
    ASSERT_FALSE(found) << misfit.key;
    EXPECT_EQ(found.error().code, ErrorCode::kUserMistake);
    EXPECT_TRUE(found.error().what.starts_with(std::string(misfit.key) + " = "))
        << found.error().what;
  }
}

// What is written is read as the same model.
TEST(HfConfig, ComesBackAsItWas) {
  const auto change = [](int kind) {
    return [kind](ModelSection& m) {
      m.dropout = 0.25;
      m.norm_eps = 3e-6;
      if (kind == 1) m.activation = ActivationKind::kGelu;
      if (kind == 1) m.tied_embeddings = false;
      if (kind < 2) return;
      m.dropout = 0;
      m.kv_heads = 2;
      m.rope_theta = 123456;
      m.qk_norm = kind == 4;
      m.bias = kind == 3;
      if (kind == 4) m.head_dim = 24;
      if (kind >= 4) m.window = 5;
      if (kind == 4) m.window_pattern = "SLLS";
    };
  };
  for (int kind = 0; kind < 6; ++kind) {
    const ModelSpec spec = spec_of(change(kind), kind >= 2);
    const auto architecture = architecture_of(spec);
    ASSERT_TRUE(architecture) << architecture.error().what;
    const HfConfig config{.architecture = *architecture,
                          .model = spec,
                          .dtype = kind == 2 ? DType::kBF16 : DType::kF32,
                          .end_token = kind == 3 ? std::optional(7U) : std::nullopt};
    const auto read = parse_hf_config(to_config_json(config), "config.json");
    ASSERT_TRUE(read) << read.error().what;
    EXPECT_EQ(read->architecture, *architecture);
    EXPECT_EQ(read->model.shape, spec.shape) << to_config_json(config);
    EXPECT_EQ(read->model.sequence, spec.sequence);
    EXPECT_EQ(read->dtype, config.dtype);
    EXPECT_EQ(read->end_token, config.end_token);
  }
}

TEST(HfConfig, WhatNoModelHereHasIsRefusedByItsKey) {
  const std::pair<const char*, const char*> refused[] = {
      {R"({"model_type": "bert"})", "\"model_type\" is \"bert\""},
      {R"({"model_type": "gpt2", "activation_function": "relu"})", "\"activation_function\""},
      {R"({"model_type": "gpt2", "scale_attn_weights": false})", "\"scale_attn_weights\""},
      {R"({"model_type": "llama", "vocab_size": 9, "max_position_embeddings": 8, "hidden_size": 8,
           "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8,
           "rope_scaling": {"rope_type": "llama3", "factor": 8}})",
       "\"rope_scaling\""},
      {R"({"model_type": "llama", "vocab_size": 9})", "\"max_position_embeddings\" is not there"},
      {R"({"model_type": "llama", "vocab_size": 9, "max_position_embeddings": 8, "hidden_size": 9,
           "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8,
           "head_dim": 3})",
       "odd"},
      {R"([1])", "no JSON object"},
      {R"({"model_type")", "config.json"},
  };
  for (const auto& [text, expected] : refused) {
    const auto read = parse_hf_config(text, "config.json");
    ASSERT_FALSE(read) << text;
    EXPECT_NE(read.error().what.find(expected), std::string::npos) << read.error().what;
  }
}

}  // namespace
}  // namespace swarmline
