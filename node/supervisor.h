// A whole swarm on this machine: a coordinator and its peers as child processes, watched and shown
// until the run is over. Nothing is left behind, however this process ends.
//   Thread: blocking, one thread.
//   A peer that dies is started again with a pause that grows, and given up with a sentence after
//   repeated deaths soon after its start; a coordinator that a signal ended, too. Ends with the
//   run's exit code: 0 done or drained (also after one Ctrl-C), 130 after two; on failure the
//   coordinator's sentence and the end of the guilty process's log are shown.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "engine/config/run_config.h"
#include "node/run_folder.h"

namespace swarmline {

struct SupervisorOptions {
  RunConfig config;
  RunFolder folder;                         // prepared
  std::vector<std::string> peer_arguments;  // for every peer
  // Arguments of single peers, by stage and place in it. With any, peers start one after the other,
  // so that the stage of each is known before it starts.
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<std::string>> seat_arguments;
  // One for each peer, as they start; empty: as peer_arguments say.
  std::vector<std::string> peer_devices;
  // A process that dies is started again: so often in a row when it lives less than 30 s each time.
  int restarts_max = 5;
};
Result<int> supervise(SupervisorOptions options);

}  // namespace swarmline
