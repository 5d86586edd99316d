#include "engine/model/row_codes.h"

#include <algorithm>
#include <cstring>

#include "engine/model/row_element.h"

namespace swarmline {
namespace {

template <typename Format>
void quantize_row(const float* x, std::size_t width, std::uint8_t* codes, float& scale) {
  std::uint32_t absmax = 0;
  for (std::size_t i = 0; i < width; ++i) absmax = std::max(absmax, kernels::magnitude_of(x[i]));
  scale = Format::stored(absmax);
  if (!row_format::has_codes(scale)) {
    std::memset(codes, 0, width);
    return;
  }
  const float inverse = 1.0F / scale;
  for (std::size_t i = 0; i < width; ++i) codes[i] = Format::code(x[i], inverse);
}

}  // namespace

void quantize_rows(RowFormat format, const float* x, std::size_t rows, std::size_t width,
                   std::uint8_t* codes, float* scales) {
  row_format::visit(format, [&](auto of) {
    for (std::size_t row = 0; row < rows; ++row)
      quantize_row<decltype(of)>(x + row * width, width, codes + row * width, scales[row]);
  });
}

float code_number(RowFormat format, std::uint8_t code) {
  return row_format::visit(format, [&](auto of) { return decltype(of)::number(code); });
}

}  // namespace swarmline
