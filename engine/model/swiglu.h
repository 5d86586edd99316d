// silu(gate) up, and its gradient: for CUDA and for tests on the host.
//   Source: Shazeer, GLU variants improve transformer, 2020.
#pragma once

#include <cmath>

#include "kernels/element.h"

namespace swarmline {

struct SwiGluGradient {
  float gate;
  float up;
};

SWARMLINE_ELEMENT float sigmoid(float x) {
  return 1.0F / (1.0F + expf(-x));
}
SWARMLINE_ELEMENT float swiglu_of(float gate, float up) {
  return gate * sigmoid(gate) * up;
}
SWARMLINE_ELEMENT SwiGluGradient swiglu_gradient_of(float gate, float up, float gradient) {
  const float share = sigmoid(gate);
  const float silu = gate * share;
  return {.gate = gradient * up * (share + silu * (1.0F - share)), .up = gradient * silu};
}

}  // namespace swarmline
