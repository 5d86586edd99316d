// For the files of this folder: what a device is called.
#pragma once

#include <string>

#include "base/result.h"
#include "engine/model/libtorch.h"

namespace swarmline {

// "cpu", "cuda" or "cuda:N". kUserMistake for any other name, and for a device that this machine or
// build does not have. The calling thread computes on that device from now on.
Result<at::Device> find_device(const std::string& name);

}  // namespace swarmline
