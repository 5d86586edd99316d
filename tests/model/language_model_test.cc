// Saved models of transformers, read and sampled here: the same logits, the same greedy text; with
// keys and values kept, or with all of the text read again.
#include "engine/model/language_model.h"

#include <gtest/gtest.h>

#include "engine/huggingface/model_source.h"
#include "engine/model/sampling.h"
#include "engine/model/stage_network.h"
#include "tests/huggingface/hf_fixtures.h"
#include "tests/model/model_fixture.h"
#include "tests/model/model_test_util.h"

namespace swarmline::testing {
namespace {

// Of the largest logit: what sums in another order may differ by in fp32, a few hundred of them.
constexpr double kNoise = 2e-5;

std::unique_ptr<LanguageModel> open_language_model(const ModelSource& source) {
  auto model = make_language_model(source.model(), source.boundaries(),
                                   [&](const ParameterSlot& slot, MutableBytes out) {
                                     source.read(slot.name, source.model().shape.dtype, out);
                                   },
                                   {});
  EXPECT_TRUE(model) << model.error().what;
  return std::move(*model);
}

std::vector<float> read(LanguageModel& model, std::span<const std::int32_t> tokens) {
  auto logits = model.read(tokens);
  EXPECT_TRUE(logits) << logits.error().what;
  return std::move(*logits);
}

class SavedByTransformers : public ::testing::TestWithParam<const char*> {
 protected:
  SavedByTransformers() : expected_(read_model_fixture(hf_fixture(GetParam()) + "/expected.bin")) {
    auto source = ModelSource::open("hf:" + hf_fixture(GetParam()));
    EXPECT_TRUE(source) << source.error().what;
    model_ = open_language_model(*source);
    logits_ = expected_.at("logits");
    peak_ = logits_.abs().max().item<double>();
  }
  std::vector<std::int32_t> row(const char* name, std::int64_t number) const {
    const at::Tensor values = expected_.at(name)[number].contiguous();
    const auto* const data = static_cast<const std::int32_t*>(values.const_data_ptr());
    return {data, data + values.numel()};
  }
  double difference(const std::vector<float>& actual, std::int64_t row, std::int64_t place) const {
    const at::Tensor there = logits_[row][place];
    return (at::tensor(actual) - there).abs().max().item<double>() / peak_;
  }

  std::map<std::string, at::Tensor> expected_;
  std::unique_ptr<LanguageModel> model_;
  at::Tensor logits_;
  double peak_ = 0;
};

TEST_P(SavedByTransformers, HasTheSameLogitsWhateverIsReadAtOnce) {
  for (std::int64_t number : {0, 1}) {
    const std::vector<std::int32_t> tokens = row("tokens", number);
    for (const std::size_t step : {1U, 3U, 13U}) {
      model_->restart();
      for (std::size_t at = 0; at < tokens.size(); at += step) {
        const std::size_t count = std::min<std::size_t>(step, tokens.size() - at);
        const auto logits = read(*model_, std::span(tokens).subspan(at, count));
        EXPECT_LT(difference(logits, number, static_cast<std::int64_t>(at + count - 1)), kNoise)
            << "tokens " << at << " to " << at + count;
      }
      EXPECT_EQ(model_->length(), tokens.size());
    }
  }
}

TEST_P(SavedByTransformers, GoesOnGreedilyWithTheSameTokens) {
  for (std::int64_t number : {0, 1}) {
    model_->restart();
    std::vector<std::int32_t> next = row("tokens", number), made;
    const std::vector<std::int32_t> theirs = row("greedy", number);
    while (made.size() < theirs.size()) {
      const auto logits = read(*model_, next);
      next = {pick_token({.temperature = 0}, logits, made.size())};
      made.push_back(next.front());
    }
    EXPECT_EQ(made, theirs);
  }
}

TEST_P(SavedByTransformers, LogProbabilitiesAreThoseOfTheLogits) {
  const std::vector<std::int32_t> tokens = row("tokens", 0);
  std::vector<bool> greedy;
  const auto parts = model_->log_probabilities(tokens, &greedy);
  ASSERT_TRUE(parts) << parts.error().what;
  ASSERT_EQ(parts->size(), tokens.size() - 1);
  const at::Tensor all = at::log_softmax(logits_[0].to(at::kDouble), 1);
  for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
    const auto place = static_cast<std::int64_t>(i);
    EXPECT_NEAR((*parts)[i], all[place][tokens[i + 1]].item<double>(), kNoise * peak_);
    EXPECT_EQ(greedy[i], all[place].argmax().item<std::int64_t>() == tokens[i + 1]);
  }
  EXPECT_EQ(model_->length(), 0U);
}

TEST_P(SavedByTransformers, AForeignTokenIsTheUsersMistake) {
  const std::vector<std::int32_t> tokens = {3, 67};
  const auto logits = model_->read(tokens);
  ASSERT_FALSE(logits);
  EXPECT_EQ(logits.error().code, ErrorCode::kUserMistake);
}

INSTANTIATE_TEST_SUITE_P(Fixtures, SavedByTransformers, ::testing::ValuesIn(kHfFixtures),
                         [](const auto& info) { return std::string(info.param); });

// Every switch at once, in double: one token at a time against the whole text at once, over windows
// and beyond one block of queries.
TEST(KeyValueCache, OneTokenAtATimeIsTheWholeTextAtOnce) {
  for (const char* pattern : {"S", "L", "SL"}) {
    for (const bool qk_norm : {false, true}) {
      RunConfig config = tiny_llama();
      config.batch.sequence = 150;
      config.model.layers = 2;
      config.model.window = 9;
      config.model.window_pattern = pattern;
      config.model.qk_norm = qk_norm;
      config.model.head_dim = 12;
      const ModelSpec spec = resolved(config);
      const StageSpec stage = stage_of(spec, 0, 1);
      const ParameterLayout layout = make_layout(spec, stage);
      const at::Tensor arena = at::zeros({static_cast<std::int64_t>(layout.elements)}, at::kDouble);
      initialise_parameters(spec, layout, static_cast<std::byte*>(arena.mutable_data_ptr()));
      StageNetwork network(spec, stage, layout, {arena, arena});
      const Batch batch = make_batch(spec, 1);
      const at::Tensor tokens = at::tensor(batch.tokens, at::kInt);
      at::NoGradGuard no_graph;
      const at::Tensor whole = network.logits(network.blocks(network.embed(tokens), std::nullopt));
      KeyValueCache cache = network.make_cache();
      std::vector<at::Tensor> parts;
      for (const std::int64_t count : {1, 140, 1, 1, 7})
        parts.push_back(
            network.logits(network.go_on(tokens.narrow(0, cache.length, count), cache)));
      EXPECT_LT((at::cat(parts) - whole).abs().max().item<double>(), 1e-11) << pattern;
    }
  }
}

}  // namespace
}  // namespace swarmline::testing
