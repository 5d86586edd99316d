// Every dispatch path of the quantization kernels that this machine can run.
#pragma once

#include <string>

namespace swarmline::testing {

template <typename F>
void for_each_quant_path(F f) {
  f(std::string("chosen"));
}

}  // namespace swarmline::testing
