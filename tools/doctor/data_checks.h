// Whether a run's data can be read on this machine, and is the same as the run's.
//   Thread: any; look_at_data() blocks and reads all of the data, unless its hashes are remembered.
//   Errors: none; what went wrong is in the facts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/config/run_config.h"
#include "engine/data/data_manifest.h"
#include "tools/doctor/finding.h"

namespace swarmline {

struct DataFacts {
  std::string error;  // why it can't be read; empty: it can
  std::uint64_t files = 0;
  std::uint64_t bytes = 0;     // that the run reads
  std::string fingerprint;     // of what is here
  std::string of_run;          // the run's; empty: there is none to compare with
  std::string run;             // whose that is
  std::string lacks, differs;  // compared with a coordinator's list
  bool fetches = false;        // what it lacks it would fetch
  bool is_read_here = true;    // false: this machine may serve stages that read none
};

// As a coordinator of that config reads it; compared with what its run folder says of an earlier
// start.
DataFacts look_at_data(const RunConfig& config);
// As a peer compares it.
DataFacts compare_with_run(const DataManifest& manifest, const RunConfig& config,
                           const PeerConfig& machine);

Finding judge_data(const DataFacts& facts);

}  // namespace swarmline
