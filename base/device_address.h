// Where something lies in a device's memory: nobody reads or writes there but the device's own
// functions.
#pragma once

#include <cstddef>

namespace swarmline {

using DeviceAddress = std::byte*;

}  // namespace swarmline
