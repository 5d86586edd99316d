#include "node/peer_data.h"

#include <utility>

#include <fmt/format.h>

#include "base/log.h"
#include "engine/store/files.h"
#include "node/cache_folder.h"
#include "node/run_data.h"

namespace swarmline {

namespace {

std::string root_of(const PeerConfig& machine) {
  if (!machine.data_root.empty()) return machine.data_root;
  return machine.data.empty() ? "." : machine.data;
}

}  // namespace

std::string pieces_folder(const PeerConfig& machine) {
  if (!machine.fetch_data_folder.empty()) return machine.fetch_data_folder;
  const std::string cache = cache_folder();
  return cache.empty() ? "" : cache + "/data";
}

PeerData::PeerData(const PeerConfig& machine, const std::string& hashes,
                   std::shared_ptr<const FetchedPieces> fetched)
    : place_{.folder = machine.data, .root = root_of(machine)},
      hashes_(hashes),
      fetches_(machine.fetch_data),
      cache_(pieces_folder(machine)),
      fetched_(std::move(fetched)) {}

HeldData PeerData::compare(const DataManifest& manifest) {
  std::uint64_t bytes = 0;
  for (const DataFile& file : manifest.files) bytes += file.used;
  log(LogLevel::kInfo, "comparing the run's data with this machine's: {} files, {} bytes",
      manifest.files.size(), bytes);
  held_ = compare_data(manifest, place_, hashes_);
  manifest_ = manifest;
  pieces_ = std::make_shared<const DataPieces>(manifest);
  held_.serves = held_.lacks.empty() && held_.differs.empty() && !pieces_->too_many();
  if (fetches_ && !held_.serves) decide_to_fetch(manifest);
  return held_;
}

void PeerData::decide_to_fetch(const DataManifest& manifest) {
  if (!held_.differs.empty()) held_.lacks = std::exchange(held_.differs, {});
  if (held_.lacks.empty() || !fetched_) return;
  if (pieces_->too_many()) {
    held_.lacks += fmt::format("; it is not fetched, because {} files have more than {} pieces",
                               manifest.files.size(), kDataPiecesMax);
    return;
  }
  if (cache_.empty()) {
    held_.lacks +=
        "; it is not fetched, because there is no folder to keep it in: neither "
        "XDG_CACHE_HOME nor HOME is set, say --fetch-data=DIR";
    return;
  }
  held_.fetches = true;
}

FetchedFiles PeerData::fetched_files() const {
  FetchedFiles files;
  for (const DataFile& file : manifest_.files)
    files.files.push_back({.name = file.name,
                           .used = file.used,
                           .header_bytes = file.header_bytes,
                           .token_bytes = file.token_bytes,
                           .part = file.part});
  files.read = [fetched = fetched_, pieces = pieces_](const ByteRange& range,
                                                      std::span<std::byte> out) {
    return fetched->read(*pieces, range, out);
  };
  return files;
}

std::vector<DataPath> PeerData::own_files() const {
  std::vector<DataPath> files;
  for (std::size_t i = 0; i < held_.paths.size(); ++i) {
    const DataFile& file = manifest_.files[i];
    const bool raw_tokens = file.header_bytes == 0 && file.token_bytes > 1;
    files.push_back({.path = held_.paths[i],
                     .part = file.part,
                     .token_bytes = raw_tokens ? file.token_bytes : 0});
  }
  return files;
}

Result<std::unique_ptr<MicrobatchSource>> PeerData::open(const RunConfig& config) const {
  if (held_.fetches) {
    auto dataset = open_dataset(config, {}, {}, fetched_files());
    if (!dataset) return std::unexpected(std::move(dataset).error());
    return make_dataset_source(config, std::move(*dataset), pieces_);
  }
  if (!held_.lacks.empty()) return fail(ErrorCode::kUserMistake, held_.lacks);
  auto dataset = open_dataset(config, place_.root, own_files());
  if (!dataset) return std::unexpected(std::move(dataset).error());
  return make_dataset_source(config, std::move(*dataset));
}

Result<PeerData::OwnPiece> PeerData::source_of(std::uint32_t piece) const {
  if (!held_.serves || !pieces_ || piece >= pieces_->count())
    return fail(ErrorCode::kNotFound, "this machine has no such piece of the run's data");
  const DataPieces::Place place = pieces_->place(piece);
  return OwnPiece{.path = held_.paths[place.file], .root = place_.root, .place = place};
}

// A name may lead elsewhere by now.
Result<Buffer> PeerData::OwnPiece::read() const {
  const auto below = lies_below(path, root);
  if (!below) return std::unexpected(below.error());
  if (!*below) return fail(ErrorCode::kNotFound, path + " does not lie below the data root");
  const auto file = MappedFile::open(path);
  if (!file) return std::unexpected(file.error());
  const BytesView bytes = (*file)->bytes();
  if (bytes.size() < place.offset + place.bytes)
    return fail(ErrorCode::kIo, path + " was shortened");
  return Buffer::copy_of(bytes.subspan(place.offset, place.bytes));
}

}  // namespace swarmline
