// Where tensors on the CPU lie: large ones in blocks of the process's BlockCache, others in the C
// library's. Matters for how much a peer takes (docs/memory.md), not for what is computed.
#pragma once

namespace swarmline {

// For all tensors that are made from now on. Thread: any; calls after the first do nothing.
void keep_tensors_in_blocks();

}  // namespace swarmline
