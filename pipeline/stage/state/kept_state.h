// What a peer keeps of a seat that it lost, in host memory: were nothing committed until it has the
// next one at that stage, nothing need be fetched. Thread: written once, then read.
#pragma once

#include <algorithm>
#include <cstddef>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/limits.h"

namespace swarmline {

struct KeptState {
  StageId stage;
  Era era;
  Version version;
  Buffer bytes;  // as ParameterState freezes it

  BytesView piece(std::size_t index) const {
    const std::uint64_t first = index * Limits::state_piece_bytes;
    return bytes.bytes().subspan(
        first, std::min<std::uint64_t>(Limits::state_piece_bytes, bytes.size() - first));
  }
};

}  // namespace swarmline
