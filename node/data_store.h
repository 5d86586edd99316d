// The pieces of a run's data on a peer's machine: read from its own files for others, and kept on
// its disk where they were fetched from others.
//   What:      FetchedPieces has those in use, mapped, and reads bytes of the run's files out of
//              them; DataStore is the peer's door to both.
//   Ownership: the runtime and PeerData outlive it; FetchedPieces is shared with who reads.
//   Thread:    control thread; files are read, hashed and written on a thread of its own.
//   Errors:    kIo, kNotFound, as sentences.
//   Bounds:    kJobsMax wait for the disk; beyond kRefused. The cache: [peer] fetch_data_cache_mb.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>

#include "engine/config/run_config.h"
#include "engine/data/data_pieces.h"
#include "engine/data/piece_cache.h"
#include "engine/device/cpu_device.h"
#include "node/fetched_pieces.h"
#include "node/peer_data.h"
#include "pipeline/stage/data_folder.h"

namespace swarmline {

class DataStore final : public DataFolder {
 public:
  static constexpr int kJobsMax = 1024;

  DataStore(Runtime& runtime, const PeerConfig& machine, const PeerData& data,
            std::shared_ptr<FetchedPieces> in_use);

  void read(std::uint32_t piece, Read done) override;
  void find(const Piece& piece, Kept done) override;
  void keep(const Piece& piece, SharedBytes bytes, Kept done) override;
  void use_only(const std::set<std::uint32_t>& pieces) override { in_use_->use_only(pieces); }
  std::uint64_t bytes_max() const override { return bytes_max_; }

 private:
  using Body = std::function<Result<PieceCache::Bytes>(PieceCache&)>;
  void look(std::uint32_t piece, Body body, Kept done);
  Result<void> run(std::function<Result<void>()> body, std::function<void(Result<void>)> done);

  const PeerData& data_;
  std::shared_ptr<FetchedPieces> in_use_;
  std::uint64_t bytes_max_;
  struct Disk;  // what the jobs touch
  std::shared_ptr<Disk> disk_;
  CpuDevice device_;
};

}  // namespace swarmline
