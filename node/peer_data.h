// A run's data on a peer's machine: compared with the coordinator's list, then read.
//   What:      the files are where the coordinator has them, or below [peer] data; nothing is read
//              that does not lie below [peer] data_root (else below `data`, else the current
//              folder), whatever the coordinator says.
//   Thread:    one at a time, the device's; give_up() from any.
//   Errors:    as sentences. Bounds: compare_data()'s.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "engine/config/run_config.h"
#include "engine/data/data_manifest.h"
#include "pipeline/source/microbatch_source.h"

namespace swarmline {

class PeerData {
 public:
  PeerData(const PeerConfig& machine, const std::string& hashes);

  HeldData compare(const DataManifest& manifest);
  // Of what was compared; of what the config names where nothing was.
  Result<std::unique_ptr<MicrobatchSource>> open(const RunConfig& config) const;
  // Who ends waits for no large file.
  void give_up() { hashes_.give_up(); }

 private:
  DataPlace place_;
  FileHashes hashes_;
  HeldData held_;
};

}  // namespace swarmline
