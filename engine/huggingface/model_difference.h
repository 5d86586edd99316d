// Where two models differ in what their parameters mean, by the keys of [model].
//   Thread: pure.
#pragma once

#include <string>
#include <vector>

#include "engine/model/model_spec.h"

namespace swarmline {

// One entry a key: "model.d_ff is 96, and there 64". What only training depends on (dropout,
// initialisation, types of numbers) does not count, and neither does a sequence that is shorter
// than there, unless learned positions do not reach so far.
std::vector<std::string> model_differences(const ModelSpec& wanted, const ModelSpec& there);

}  // namespace swarmline
