#include "node/run_data.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/units.h"
#include "engine/data/sequence_order.h"
#include "engine/store/files.h"

namespace swarmline {
namespace {

constexpr std::uint64_t kWorthALine = 1 * kGiB;  // it takes a second

class DatasetSource final : public MicrobatchSource {
 public:
  DatasetSource(const RunConfig& config, TokenDataset dataset,
                std::shared_ptr<const DataPieces> fetched)
      : dataset_(std::move(dataset)),
        fetched_(std::move(fetched)),
        order_(dataset_, {.batch = config.batch,
                          .seed = config.run.seed,
                          .eval_sequences_max = eval_sequences(config, dataset_),
                          .from_step = config.data.from_step,
                          .from_sequence = config.data.from_sequence}) {}

  Result<void> read(const MicrobatchId& id, std::span<std::int32_t> tokens,
                    std::span<std::int32_t> targets) override {
    return order_.read(id, tokens, targets);
  }

  std::vector<std::uint32_t> pieces_of(const MicrobatchId& id) const override {
    std::vector<std::uint32_t> pieces;
    if (!fetched_ || id.index >= order_.microbatches(id.phase.kind)) return pieces;
    for (std::uint32_t row = 0; row < order_.rows(id); ++row)
      for (const ByteRange& range : dataset_.ranges(order_.sequence(id, row)))
        fetched_->list(range, pieces);
    return pieces;
  }

 private:
  TokenDataset dataset_;
  std::shared_ptr<const DataPieces> fetched_;  // null: all of it is here
  MicrobatchOrder order_;                      // refers to dataset_
};

}  // namespace

Result<TokenDataset> open_dataset(const RunConfig& config, const std::string& root,
                                  std::vector<DataPath> paths, FetchedFiles fetched) {
  return TokenDataset::open({.data = config.data,
                             .sequence = config.batch.sequence,
                             .seed = config.run.seed,
                             .vocab = config.model.vocab,
                             .root = root,
                             .paths = std::move(paths),
                             .fetched = std::move(fetched)});
}

std::uint64_t eval_sequences(const RunConfig& config, const TokenDataset& dataset) {
  const std::uint64_t wanted =
      std::min<std::uint64_t>(config.eval.sequences_max, dataset.held_out_sequences());
  return wanted / config.batch.microbatch * config.batch.microbatch;
}

std::unique_ptr<MicrobatchSource> make_dataset_source(const RunConfig& config, TokenDataset dataset,
                                                      std::shared_ptr<const DataPieces> fetched) {
  return std::make_unique<DatasetSource>(config, std::move(dataset), std::move(fetched));
}

Result<RunData> open_run_data(const RunConfig& config, bool with_entropy) {
  auto dataset = open_dataset(config);
  if (!dataset) return std::unexpected(std::move(dataset).error());
  auto model = resolve_model(config, dataset->vocab(), dataset->separator());
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

Result<std::string> missing_data(const RunConfig& config) {
  std::vector<std::string> patterns = config.data.files;
  patterns.insert(patterns.end(), config.data.validation.begin(), config.data.validation.end());
  for (const std::string& pattern : patterns) {
    const auto paths = glob_files(pattern, kDataFilesMax);
    if (!paths) return std::unexpected(paths.error());
    if (paths->empty() && !is_folder(pattern)) return pattern;
  }
  return std::string();
}

Result<void> list_data(RunData& data, const std::string& hashes) {
  if (data.dataset.file_bytes() > kWorthALine)
    log(LogLevel::kInfo, "reading {} bytes of data for their SHA-256; it is remembered in {}",
        data.dataset.file_bytes(), hashes.empty() ? "no place" : hashes);
  auto manifest = manifest_of(data.dataset, FileHashes(hashes));
  if (!manifest) return std::unexpected(std::move(manifest).error());
  data.manifest = std::make_shared<DataManifest>(std::move(*manifest));
  return {};
}

}  // namespace swarmline
