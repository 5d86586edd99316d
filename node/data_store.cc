#include "node/data_store.h"

#include <optional>
#include <utility>

#include <fmt/format.h>

#include "node/cache_folder.h"

namespace swarmline {

struct DataStore::Disk {
  Disk(std::string folder, std::uint64_t bytes_max) : cache(std::move(folder), bytes_max) {}
  PieceCache cache;
  bool open = false;
};

DataStore::DataStore(Runtime& runtime, const PeerConfig& machine, const PeerData& data,
                     std::shared_ptr<FetchedPieces> in_use)
    : data_(data),
      in_use_(std::move(in_use)),
      bytes_max_(machine.fetch_data_cache_mb * kMiB),
      disk_(std::make_shared<Disk>(pieces_folder(machine), bytes_max_)),
      device_(runtime, {.name = "data pieces", .queue_jobs_max = kJobsMax}) {}

Result<void> DataStore::run(std::function<Result<void>()> body,
                            std::function<void(Result<void>)> done) {
  Job job;
  job.body = std::move(body);
  return device_.submit(std::move(job),
                        [done = std::move(done)](const JobReport& report) { done(report.result); });
}

// ---- Of its own ---------------------------------------------------------------------------------

void DataStore::read(std::uint32_t piece, Read done) {
  auto source = data_.source_of(piece);
  if (!source) return done(std::unexpected(std::move(source).error()));
  auto bytes = std::make_shared<SharedBytes>();
  const auto submitted = run(
      [source = *source, bytes]() -> Result<void> {
        auto read = source.read();
        if (!read) return std::unexpected(std::move(read).error());
        *bytes = SharedBytes(std::move(*read));
        return {};
      },
      [bytes, done](const Result<void>& read) {
        read ? done(*bytes) : done(std::unexpected(read.error()));
      });
  if (!submitted) done(std::unexpected(submitted.error()));
}

// ---- Fetched ------------------------------------------------------------------------------------

void DataStore::look(std::uint32_t piece, Body body, Kept done) {
  auto found = std::make_shared<PieceCache::Bytes>();
  const auto submitted = run(
      [disk = disk_, body = std::move(body), found]() -> Result<void> {
        if (!disk->open) SWARMLINE_TRY(disk->cache.open());
        disk->open = true;
        auto bytes = body(disk->cache);
        if (!bytes) return std::unexpected(std::move(bytes).error());
        *found = std::move(*bytes);
        return {};
      },
      [this, piece, found, done](const Result<void>& looked) {
        if (!looked) return done(std::unexpected(looked.error()));
        if (*found) in_use_->add(piece, std::move(*found));
        done(in_use_->has(piece));
      });
  if (!submitted) done(std::unexpected(submitted.error()));
}

void DataStore::find(const Piece& piece, Kept done) {
  look(
      piece.number, [sha256 = piece.sha256](PieceCache& cache) { return cache.find(sha256); },
      std::move(done));
}

void DataStore::keep(const Piece& piece, SharedBytes bytes, Kept done) {
  look(
      piece.number,
      [sha256 = piece.sha256, bytes = std::move(bytes)](PieceCache& cache) {
        return cache.put(sha256, bytes.view());
      },
      std::move(done));
}

}  // namespace swarmline
