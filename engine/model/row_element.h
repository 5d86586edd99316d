// The formats of row_codes.h element by element, for CPU and CUDA.
#pragma once

#include "engine/model/row_codes.h"
#include "kernels/format/fp8.h"
#include "kernels/format/lin8.h"
#include "kernels/format/scale.h"

namespace swarmline::row_format {

// F: kernels::E4M3 or E5M2.
template <typename F>
struct Fp8 {
  SWARMLINE_ELEMENT float stored(std::uint32_t absmax) {
    return kernels::stored_scale(absmax, F::kTop, F::kLargestScale, kernels::ScaleKind::kF32);
  }
  SWARMLINE_ELEMENT std::uint8_t code(float x, float inverse) {
    return kernels::fp8_code<F>(x * inverse);
  }
  SWARMLINE_ELEMENT float number(std::uint8_t code) { return kernels::fp8_number<F>(code); }
};

struct Int8 {
  SWARMLINE_ELEMENT float stored(std::uint32_t absmax) {
    return kernels::stored_scale(absmax, kernels::kLin8Top, kernels::kLin8LargestScale,
                                 kernels::ScaleKind::kF32);
  }
  SWARMLINE_ELEMENT std::uint8_t code(float x, float inverse) {
    return static_cast<std::uint8_t>(kernels::lin8_code(x, inverse));
  }
  SWARMLINE_ELEMENT float number(std::uint8_t code) {
    return kernels::lin8_value(static_cast<std::int8_t>(code), 1.0F);
  }
};

// Calls f with the struct above of that format.
template <typename F>
auto visit(RowFormat format, F&& f) {
  switch (format) {
    case RowFormat::kE4M3:
      return f(Fp8<kernels::E4M3>{});
    case RowFormat::kE5M2:
      return f(Fp8<kernels::E5M2>{});
    case RowFormat::kInt8:
      break;
  }
  return f(Int8{});
}

// Neither 0 nor NaN: codes are made.
SWARMLINE_ELEMENT bool has_codes(float stored) {
  return stored > 0;
}

}  // namespace swarmline::row_format
