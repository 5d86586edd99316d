// Whose machine this is, by what its firmware says of itself: nothing is asked over a network, so
// that a machine that is in no cloud sends nothing to addresses that mean something else there.
//   Source: what cloud-init's ds-identify goes by: EC2 and Compute Engine name themselves as vendor
//           or product, Azure by the asset tag of its chassis.
//   Thread: any. Errors: none; what can't be read is no cloud. Bounds: 256 bytes of each file.
#pragma once

#include <filesystem>

#include "engine/config/run_config.h"

namespace swarmline {

// kNone where it is in no cloud that we know.
NoticeSource detect_notices(const std::filesystem::path& firmware = "/sys/class/dmi/id");

}  // namespace swarmline
