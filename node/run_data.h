// A run's data as its processes need it: opened once from the config, served as microbatches.
//   Errors: kUserMistake with the file or key; kIo.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/config/run_config.h"
#include "engine/data/data_entropy.h"
#include "engine/data/data_manifest.h"
#include "engine/data/data_pieces.h"
#include "engine/data/token_dataset.h"
#include "engine/model/model_spec.h"
#include "pipeline/source/microbatch_source.h"

namespace swarmline {

// `root`: nothing that does not lie below it is read; empty: anything is.
// `paths`: these files, whatever the config names. `fetched`: these, and none of this machine.
Result<TokenDataset> open_dataset(const RunConfig& config, const std::string& root = {},
                                  std::vector<DataPath> paths = {}, FetchedFiles fetched = {});

// Held-out sequences of one evaluation: at most [eval] sequences_max, whole microbatches.
std::uint64_t eval_sequences(const RunConfig& config, const TokenDataset& dataset);

// Microbatches of the dataset's seeded order; evaluations read the held-out split.
// `fetched`: what its pieces are called, where they are fetched; null: all are here.
std::unique_ptr<MicrobatchSource> make_dataset_source(
    const RunConfig& config, TokenDataset dataset,
    std::shared_ptr<const DataPieces> fetched = nullptr);

// Everything about the data that a run has to know before it starts.
struct RunData {
  TokenDataset dataset;
  ModelSpec model;
  std::uint64_t eval_sequences = 0;
  DataEntropy entropy;
  // What peers compare theirs with; null until list_data() has read all of it.
  std::shared_ptr<const DataManifest> manifest = nullptr;
};
// `with_entropy`: reads up to kEntropySampleBytesMax of each split.
Result<RunData> open_run_data(const RunConfig& config, bool with_entropy);
// A file or glob of the config that nothing on this machine matches; empty: all are here.
Result<std::string> missing_data(const RunConfig& config);
// `hashes`: the folder where those of large files are remembered.
Result<void> list_data(RunData& data, const std::string& hashes);

}  // namespace swarmline
