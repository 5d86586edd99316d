// A model that masks documents: each is computed as if it were alone, however a microbatch packs
// them, with windows, grouped heads and every type that it is computed in.
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/model/stage_network.h"
#include "tests/model/model_test_util.h"

namespace swarmline::testing {
namespace {

constexpr std::int32_t kSeparator = 0;

// Logits and the loss of each token, of a whole model without dropout.
struct Computed {
  at::Tensor logits, losses;
};

class Network {
 public:
  explicit Network(const ModelSpec& spec) : spec_(spec) {
    initialise_parameters(spec_, layout_, static_cast<std::byte*>(values_.mutable_data_ptr()));
    if (!arenas_.compute.is_same(arenas_.values)) arenas_.compute.copy_(arenas_.values);
  }
  Computed compute(const std::vector<std::int32_t>& tokens,
                   const std::vector<std::int32_t>& targets, std::int64_t together) {
    at::NoGradGuard no_graph;
    const auto spans = document_spans(targets, spec_.sequence, kSeparator, together);
    const DocumentMasks masks = network_.masks_of(spans);
    const bool masked = spec_.mask_documents && !spans.empty();
    const at::Tensor logits = network_.logits(network_.blocks(
        network_.embed(at::tensor(tokens, at::kInt)), std::nullopt, masked ? &masks : nullptr));
    const at::Tensor next = at::tensor(targets, at::kLong).unsqueeze(1);
    return {logits, -at::log_softmax(logits, 1).gather(1, next).squeeze(1)};
  }

 private:
  const ModelSpec spec_;
  const StageSpec stage_ = stage_of(spec_, 0, 1);
  const ParameterLayout layout_ = make_layout(spec_, stage_);
  const at::Tensor values_ =
      at::zeros({static_cast<std::int64_t>(layout_.elements)},
                at::TensorOptions(spec_.shape.dtype == DType::kF64 ? at::kDouble : at::kFloat));
  const Arenas arenas_ = arenas_over(spec_, values_);
  StageNetwork network_{spec_, stage_, layout_, arenas_};
};

struct MaskCase {
  std::string name;
  RunConfig config;
};

MaskCase of_type(std::string name, RunConfig config, DType dtype,
                 Precision precision = Precision::kAuto) {
  config.model.dtype = dtype;
  config.model.precision = precision;
  config.model.layers = 2;
  config.data.mask_documents = true;
  return {std::move(name), std::move(config)};
}

std::vector<MaskCase> mask_cases() {
  RunConfig windows = tiny_llama();
  windows.model.window = 3;
  windows.model.window_pattern = "SL";
  return {of_type("Learned", tiny_config(), DType::kF32),
          of_type("Grouped", tiny_llama(), DType::kF32),
          of_type("GroupedFloat64", tiny_llama(), DType::kF64),
          of_type("GroupedBfloat16", tiny_llama(), DType::kF32, Precision::kBF16),
          of_type("Windows", windows, DType::kF32),
          of_type("WindowsFloat64", windows, DType::kF64)};
}

// One sequence of documents of these lengths: the first without its separator, each other behind
// it; and the token that follows them.
std::vector<std::int32_t> stream_of(const std::vector<std::size_t>& lengths) {
  Rng rng(3);
  std::vector<std::int32_t> tokens;
  for (const std::size_t length : lengths) {
    for (std::size_t i = 0; i < length; ++i)
      tokens.push_back(i == 0 && !tokens.empty() ? kSeparator
                                                 : 1 + static_cast<std::int32_t>(rng.below(28)));
  }
  tokens.push_back(kSeparator);
  return tokens;
}

class DocumentMask : public ::testing::TestWithParam<MaskCase> {
 protected:
  // What a sequence of the first `stream.size()` - 1 tokens is computed to.
  static Computed compute(RunConfig config, const std::vector<std::int32_t>& stream, bool mask,
                          std::int64_t together) {
    config.batch.sequence = static_cast<std::uint32_t>(stream.size() - 1);
    config.data.mask_documents = mask;
    Network network(*resolve_model(config, config.model.vocab, kSeparator));
    return network.compute({stream.begin(), stream.end() - 1}, {stream.begin() + 1, stream.end()},
                           together);
  }
};

TEST_P(DocumentMask, OtherDocumentsChangeNoBit) {
  const std::vector<std::int32_t> before = stream_of({11, 9, 4});
  std::vector<std::int32_t> after = before;
  for (std::size_t i = 0; i < 11; ++i) after[i] = 1 + after[i] % 28;
  for (const std::int64_t together : {1, 128}) {
    const Computed one = compute(GetParam().config, before, true, together),
                   other = compute(GetParam().config, after, true, together);
    EXPECT_FALSE(one.logits.narrow(0, 0, 11).equal(other.logits.narrow(0, 0, 11)));
    EXPECT_TRUE(one.logits.narrow(0, 11, 13).equal(other.logits.narrow(0, 11, 13)));
    EXPECT_TRUE(one.losses.narrow(0, 11, 13).equal(other.losses.narrow(0, 11, 13)));
  }
  const auto without = [&](const std::vector<std::int32_t>& stream) {
    return compute(GetParam().config, stream, false, 1).logits.narrow(0, 11, 1);
  };
  EXPECT_FALSE(without(before).equal(without(after))) << "without the mask it is seen";
}

TEST_P(DocumentMask, EachIsAsIfItWereAlone) {
  if (GetParam().config.model.positions == PositionKind::kLearned)
    GTEST_SKIP()
        << "with learned positions a document further back differs from the same one alone";
  const bool narrow = GetParam().config.model.precision == Precision::kBF16;
  const double noise = narrow ? 0.05 : GetParam().config.model.dtype == DType::kF64 ? 1e-12 : 1e-5;
  // Longer than one block of queries of a window, and spans that are joined and not.
  const std::vector<std::size_t> lengths = {150, 7, 1, 30, 140, 12};
  const std::vector<std::int32_t> stream = stream_of(lengths);
  for (const std::int64_t together : {1, 25, 1000}) {
    const Computed packed = compute(GetParam().config, stream, true, together);
    std::ptrdiff_t begin = 0;
    for (const std::size_t length : lengths) {
      const auto size = static_cast<std::ptrdiff_t>(length);
      const std::vector<std::int32_t> document(stream.begin() + begin,
                                               stream.begin() + begin + size + 1);
      const Computed alone = compute(GetParam().config, document, false, 1);
      const at::Tensor there = packed.losses.narrow(0, begin, size);
      EXPECT_LT((there - alone.losses).abs().max().item<double>(), noise)
          << "document of " << length << ", together " << together;
      begin += size;
    }
  }
}

TEST_P(DocumentMask, RowsWithoutSeparatorsAreAsWithoutMask) {
  const std::vector<std::int32_t> stream = stream_of({40});
  EXPECT_TRUE(compute(GetParam().config, stream, true, 128)
                  .logits.equal(compute(GetParam().config, stream, false, 128).logits));
}

INSTANTIATE_TEST_SUITE_P(Models, DocumentMask, ::testing::ValuesIn(mask_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace swarmline::testing
