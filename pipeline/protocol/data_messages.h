// A run's data between its values and their wire form: the list of its files, and what a newcomer
// has of it.
//   Hashes of pieces are no part of the list: who fetches asks for them, a block at a time.
//   Thread: any. Errors: kCorrupt, of a list that can't be. Bounds: check_manifest()'s.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "engine/data/data_manifest.h"
#include "pipeline/protocol/messages.pb.h"

namespace swarmline {

inline constexpr std::size_t kHashDigits = 64;            // of a SHA-256, in hex
inline constexpr std::uint32_t kDataHashesOfBlock = 512;  // of pieces, in one DataHashes

wire::DataWanted to_wire(const DataManifest& manifest);
Result<DataManifest> from_wire(const wire::DataWanted& wanted);

// Without the paths, which are nobody else's.
wire::HeldData to_wire(const HeldData& held);

}  // namespace swarmline
