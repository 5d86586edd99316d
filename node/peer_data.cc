#include "node/peer_data.h"

#include <utility>

#include "base/log.h"
#include "node/run_data.h"

namespace swarmline {

namespace {

std::string root_of(const PeerConfig& machine) {
  if (!machine.data_root.empty()) return machine.data_root;
  return machine.data.empty() ? "." : machine.data;
}

}  // namespace

PeerData::PeerData(const PeerConfig& machine, const std::string& hashes)
    : place_{.folder = machine.data, .root = root_of(machine)}, hashes_(hashes) {}

HeldData PeerData::compare(const DataManifest& manifest) {
  std::uint64_t bytes = 0;
  for (const DataFile& file : manifest.files) bytes += file.used;
  log(LogLevel::kInfo, "comparing the run's data with this machine's: {} files, {} bytes",
      manifest.files.size(), bytes);
  held_ = compare_data(manifest, place_, hashes_);
  return held_;
}

Result<std::unique_ptr<MicrobatchSource>> PeerData::open(const RunConfig& config) const {
  if (!held_.lacks.empty()) return fail(ErrorCode::kUserMistake, held_.lacks);
  auto dataset = open_dataset(config, place_.root, held_.paths);
  if (!dataset) return std::unexpected(std::move(dataset).error());
  return make_dataset_source(config, std::move(*dataset));
}

}  // namespace swarmline
