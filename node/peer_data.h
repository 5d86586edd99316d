// A run's data on a peer's machine: compared with the coordinator's list, then read, from its files
// or from the pieces that it fetches.
//   What:      the files are where the coordinator has them, or below [peer] data; nothing is read
//              that does not lie below [peer] data_root (else below `data`, else the current
//              folder), whatever the coordinator says. Who lacks them, or has others, may fetch
//              what it reads: [peer] fetch_data.
//   Thread:    one at a time, the device's; source_of() on the control thread while the peer has a
//              seat, so that nothing is compared; give_up() from any.
//   Errors:    as sentences. Bounds: compare_data()'s, and those of DataPieces.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/config/run_config.h"
#include "engine/data/data_manifest.h"
#include "engine/data/data_pieces.h"
#include "node/fetched_pieces.h"
#include "pipeline/source/microbatch_source.h"

namespace swarmline {

// Where this machine keeps pieces that it fetched.
std::string pieces_folder(const PeerConfig& machine);

class PeerData {
 public:
  PeerData(const PeerConfig& machine, const std::string& hashes,
           std::shared_ptr<const FetchedPieces> fetched = nullptr);

  HeldData compare(const DataManifest& manifest);
  // Of what was compared; of what the config names where nothing was.
  Result<std::unique_ptr<MicrobatchSource>> open(const RunConfig& config) const;

  // A piece in a file of its own; read() from any thread.
  struct OwnPiece {
    std::string path, root;
    DataPieces::Place place;
    Result<Buffer> read() const;
  };
  Result<OwnPiece> source_of(std::uint32_t piece) const;  // kNotFound: it serves none

  // Who ends waits for no large file.
  void give_up() { hashes_.give_up(); }

 private:
  void decide_to_fetch(const DataManifest& manifest);
  FetchedFiles fetched_files() const;
  std::vector<DataPath> own_files() const;

  DataPlace place_;
  FileHashes hashes_;
  bool fetches_;
  std::string cache_;  // the folder; empty: there is no place for one
  std::shared_ptr<const FetchedPieces> fetched_;
  HeldData held_;
  DataManifest manifest_;  // that was compared
  std::shared_ptr<const DataPieces> pieces_;
};

}  // namespace swarmline
