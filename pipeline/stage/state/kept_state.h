// What a peer keeps of a seat that it lost, in host memory: were nothing committed until it has the
// next one at that stage, nothing need be fetched. Thread: written once, then read.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>

#include "base/bytes.h"
#include "base/ids.h"
#include "pipeline/protocol/knobs.h"
#include "pipeline/stage/common/parameter_state.h"

namespace swarmline {

struct KeptState {
  StageId stage;
  Era era;
  Version version;
  Buffer bytes;  // as saved

  BytesView piece(std::size_t index) const {
    const std::uint64_t first = index * knobs().state_piece_bytes;
    return bytes.bytes().subspan(
        first, std::min<std::uint64_t>(knobs().state_piece_bytes, bytes.size() - first));
  }
};

// [device] A copy of the committed state, and with a delay of the version before: an error where
// that is not here yet.
inline Result<std::shared_ptr<KeptState>> keep_state(ParameterState& state, StageId stage,
                                                     Era era) {
  auto bytes = state.save();
  if (!bytes) return std::unexpected(std::move(bytes).error());
  return std::make_shared<KeptState>(KeptState{.stage = stage,
                                               .era = era,
                                               .version = state.committed_version(),
                                               .bytes = std::move(*bytes)});
}

}  // namespace swarmline
