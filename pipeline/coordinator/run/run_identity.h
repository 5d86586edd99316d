// Which run this is, under whose reign, and in which era. Plain values; the coordinator's reign
// writes them, its parts read.
#pragma once

#include <string>

#include "base/ids.h"

namespace swarmline {

struct RunIdentity {
  std::string run_id;
  Term term{1};
  Era era{0};
  std::string key;          // pipeline/protocol/seat_proof.h; empty: seats are not proved
  std::string config_toml;  // that peers get, as its segment says (run/segments.h)
};

}  // namespace swarmline
