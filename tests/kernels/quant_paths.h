// Every dispatch path of the quantization kernels that this machine can run.
#pragma once

#include <string>

#include "kernels/cpu/quant_path.h"

namespace swarmline::testing {

template <typename F>
void for_each_quant_path(F f) {
  for (const kernels::QuantPath& path : kernels::quant_paths()) {
    kernels::force_quant_path(&path);
    f(std::string(path.name));
  }
  kernels::force_quant_path(nullptr);
}

}  // namespace swarmline::testing
