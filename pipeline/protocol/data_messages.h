// A run's data between its values and their wire form: the list of its files, and what a newcomer
// has of it.
//   Thread: any. Errors: kCorrupt, of a list that can't be. Bounds: check_manifest()'s.
#pragma once

#include "base/result.h"
#include "engine/data/data_manifest.h"
#include "pipeline/protocol/messages.pb.h"

namespace swarmline {

wire::DataWanted to_wire(const DataManifest& manifest);
Result<DataManifest> from_wire(const wire::DataWanted& wanted);

// Without the paths, which are nobody else's.
wire::HeldData to_wire(const HeldData& held);

}  // namespace swarmline
