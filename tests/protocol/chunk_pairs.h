// Whose chunks of averages went to whom.
#pragma once

#include <memory>
#include <set>
#include <utility>

#include "pipeline/protocol/message_kinds.h"
#include "tests/pipeline/swarm_harness.h"

namespace swarmline {

using ChunkPair = std::pair<SimNodeId, SimNodeId>;

// From now on.
inline std::shared_ptr<std::set<ChunkPair>> watch_chunks(Swarm& swarm) {
  const auto pairs = std::make_shared<std::set<ChunkPair>>();
  swarm.watch([pairs](SimNodeId from, SimNodeId to, const Frame& frame) {
    if (kind_of(frame) == MessageKind::kReduceChunk) pairs->emplace(from, to);
  });
  return pairs;
}

}  // namespace swarmline
