// Timeouts, pauses and limits that a seed turns to hostile values, so that deadlines of minutes
// pass within seconds and rare limits are met.
//   What:   a few knobs of the table (pipeline/protocol/knobs.h), each to its lowest or its highest
//           value. With a deadline turned down, whatever gives up after so many tries tries more
//           often: nothing rightly ends the run that would not have ended it before.
//   Thread: any; a pure function of the stream.
#pragma once

#include <string>

#include "base/rng.h"
#include "engine/config/run_config.h"
#include "pipeline/protocol/knobs.h"

namespace swarmline {

struct HostileKnobs {
  Knobs knobs;
  std::string words;    // "reduce_deadline 3 s, hop_owed_max 1"; empty: none is turned
  Duration patience{};  // how much longer one wait may take than it would
};
HostileKnobs draw_knobs(Rng rng);
// Heartbeats thin out where a handful of peers are too many.
void draw_thin_heartbeats(Rng rng, HostileKnobs& hostile);
// A stage's parameters, a few kilobytes or some hundred, come in about eight pieces, as gigabytes
// come in many. In many more of them nobody would keep up with the steps: two are asked for in a
// round trip, and each is a job.
void make_pieces_small(const RunConfig& config, HostileKnobs& hostile);

}  // namespace swarmline
