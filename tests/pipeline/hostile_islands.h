// Peers that compute on simulated devices and sum on islands, past links, while somebody lies to
// them: the worlds of a fuzzer.
//   What:      hostile_mates(): a running swarm; links come to its peers under the names of its
//              members, over which go any frames, and frames once more that members have sent.
//              hostile_seals(): a whole stage whose coordinator knows its trade, so that steps are
//              averaged and committed, and says what is not so where the input wants it.
//   Errors:    CHECKs: a peer aborts, or outlives its coordinator.
//   Bounds:    kFramesMax acts, and a virtual time.
//   Thread:    one; same input, same run.
#pragma once

#include "tests/pipeline/hostile_frames.h"

namespace swarmline {

void hostile_mates(FuzzInput& input);
void hostile_seals(FuzzInput& input);

}  // namespace swarmline
