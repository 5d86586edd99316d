#include "node/run_data.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "engine/data/sequence_order.h"

namespace swarmline {
namespace {

class DatasetSource final : public MicrobatchSource {
 public:
  DatasetSource(const RunConfig& config, TokenDataset dataset)
      : dataset_(std::move(dataset)),
        order_(dataset_, {.batch = config.batch,
                          .seed = config.run.seed,
                          .eval_sequences_max = eval_sequences(config, dataset_)}) {}

  Result<void> read(const MicrobatchId& id, std::span<std::int32_t> tokens,
                    std::span<std::int32_t> targets) override {
    return order_.read(id, tokens, targets);
  }

 private:
  TokenDataset dataset_;
  MicrobatchOrder order_;  // refers to dataset_
};

}  // namespace

Result<TokenDataset> open_dataset(const RunConfig& config, const std::string& root) {
  return TokenDataset::open({.data = config.data,
                             .sequence = config.batch.sequence,
                             .seed = config.run.seed,
                             .vocab = config.model.vocab,
                             .root = root});
}

std::uint64_t eval_sequences(const RunConfig& config, const TokenDataset& dataset) {
  const std::uint64_t wanted =
      std::min<std::uint64_t>(config.eval.sequences_max, dataset.held_out_sequences());
  return wanted / config.batch.microbatch * config.batch.microbatch;
}

std::unique_ptr<MicrobatchSource> make_dataset_source(const RunConfig& config,
                                                      TokenDataset dataset) {
  return std::make_unique<DatasetSource>(config, std::move(dataset));
}

Result<RunData> open_run_data(const RunConfig& config, bool with_entropy) {
  auto dataset = open_dataset(config);
  if (!dataset) return std::unexpected(std::move(dataset).error());
  auto model = resolve_model(config, dataset->vocab());
  if (!model) return std::unexpected(std::move(model).error());
  DataEntropy entropy;
  if (with_entropy) {
    auto measured = measure_entropy(*dataset);
    if (!measured) return std::unexpected(std::move(measured).error());
    entropy = *measured;
  }
  const std::uint64_t sequences = eval_sequences(config, *dataset);
  return RunData{.dataset = std::move(*dataset),
                 .model = std::move(*model),
                 .eval_sequences = sequences,
                 .entropy = entropy};
}

}  // namespace swarmline
