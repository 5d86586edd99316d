#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "compression/codec.h"
#include "compression/wire.h"

namespace swarmline {
namespace {

using kernels::StochasticKey;

constexpr std::size_t kTileEndBytesMax = 2 * kWireAlignment;

bool is_source(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF64 || dtype == DType::kF16 ||
         dtype == DType::kBF16;
}

// Calls `write(first element, elements, key of the tile or null, scales, codes)` for each, which
// returns whether a value is not finite.
template <typename Write>
Buffer write_tiles(const CodecSpec& codec, std::uint64_t elements, DType source,
                   const StochasticKey* key, Write write) {
  SWARMLINE_CHECK(is_source(source) && is_valid(codec));
  if (key && !can_round_stochastically(codec)) key = nullptr;
  Buffer wire(encoded_bytes(codec, elements, source));
  bool non_finite = codec.kind == CodecKind::kNone;
  for (Tile tile; next_tile(codec, elements, source, tile);) {
    std::byte* const out = wire.data() + tile.at;
    StochasticKey here = key ? *key : StochasticKey{};
    here.first_element += tile.first;
    non_finite |=
        write(tile.first, tile.elements, key ? &here : nullptr, out, out + tile.shape.codes_at());
    seal_tile(codec, tile.shape, out);
  }
  write_wire_header({.codec = codec,
                     .source = source,
                     .non_finite = non_finite,
                     .stochastic = key != nullptr,
                     .elements = elements,
                     .payload_bytes = wire.size() - kWireHeaderBytes},
                    wire.data());
  return wire;
}

// Any codec and dtype: encode the corrected values, decode them, keep the difference.
template <typename T>
bool feedback_tile(const CodecSpec& codec, DType source, const std::byte* values, std::size_t n,
                   const StochasticKey* key, const std::byte* current, std::byte* next,
                   std::byte* scales, std::byte* codes) {
  Buffer corrected(n * sizeof(T)), decoded(n * sizeof(T));
  const auto t = corrected.as<T>();
  for (std::size_t i = 0; i < n; ++i) {
    T value, residual;
    std::memcpy(&value, values + i * sizeof(T), sizeof(T));
    std::memcpy(&residual, current + i * sizeof(T), sizeof(T));
    t[i] = value + residual;
  }
  const bool non_finite = encode_tile(codec, source, corrected.data(), n, key, scales, codes);
  SWARMLINE_CHECK(decode_tile(codec, scales, codes, n, source, decoded.data()).has_value());
  const auto d = std::as_const(decoded).as<T>();
  for (std::size_t i = 0; i < n; ++i) {
    const T left = t[i] - d[i];
    const T residual = std::isfinite(left) ? left : T(0);
    std::memcpy(next + i * sizeof(T), &residual, sizeof(T));
  }
  return non_finite;
}

// Of codec `none`. `piece(first byte, bytes)` is some of the values, however they are held.
template <typename Piece>
std::vector<SharedBytes> plain_parts(const CodecSpec& codec, BytesView values, DType source,
                                     Piece piece) {
  const std::size_t width = size_bytes(source);
  SWARMLINE_CHECK(is_source(source) && values.size() % width == 0);
  const std::uint64_t elements = values.size() / width;
  const std::uint64_t tiles = (elements + kWireTileElements - 1) / kWireTileElements;
  // The header, then what follows the values of each tile.
  Buffer between(kWireHeaderBytes + tiles * kTileEndBytesMax);
  std::vector<std::size_t> ends{kWireHeaderBytes};
  for (Tile tile; next_tile(codec, elements, source, tile);) {
    const BytesView codes = values.subspan(tile.first * width, tile.shape.code_bytes);
    const MutableBytes end =
        between.bytes().subspan(ends.back(), tile.shape.total_bytes() - tile.shape.code_bytes);
    seal_tile_end(codec, codes, end);
    ends.push_back(ends.back() + end.size());
  }
  const std::uint64_t payload = values.size() + ends.back() - kWireHeaderBytes;
  write_wire_header({.codec = codec,
                     .source = source,
                     .non_finite = true,
                     .stochastic = false,
                     .elements = elements,
                     .payload_bytes = payload},
                    between.data());
  const SharedBytes own(std::move(between));
  std::vector<SharedBytes> parts{own.slice(0, kWireHeaderBytes)};
  for (Tile tile; next_tile(codec, elements, source, tile);) {
    const std::size_t i = tile.first / kWireTileElements;
    parts.push_back(piece(tile.first * width, tile.shape.code_bytes));
    parts.push_back(own.slice(ends[i], ends[i + 1] - ends[i]));
  }
  return parts;
}

}  // namespace

Buffer encode(const CodecSpec& codec, BytesView values, DType source, const StochasticKey* key) {
  const std::size_t width = size_bytes(source);
  SWARMLINE_CHECK(values.size() % width == 0);
  return write_tiles(codec, values.size() / width, source, key,
                     [&](std::uint64_t begin, std::size_t n, const StochasticKey* here,
                         std::byte* scales, std::byte* codes) {
                       return encode_tile(codec, source, values.data() + begin * width, n, here,
                                          scales, codes);
                     });
}

std::vector<SharedBytes> encode_in_parts(const CodecSpec& codec, BytesView values, DType source,
                                         const StochasticKey* key) {
  if (codec.kind != CodecKind::kNone) return {SharedBytes(encode(codec, values, source, key))};
  return plain_parts(codec, values, source, [&](std::size_t first, std::size_t bytes) {
    return SharedBytes::lent(values.subspan(first, bytes));
  });
}

std::vector<SharedBytes> encode_in_parts(const CodecSpec& codec, const SharedBytes& values,
                                         DType source, const StochasticKey* key) {
  if (codec.kind != CodecKind::kNone)
    return {SharedBytes(encode(codec, values.view(), source, key))};
  return plain_parts(codec, values.view(), source, [&](std::size_t first, std::size_t bytes) {
    return values.slice(first, bytes);
  });
}

Buffer encode_with_feedback(const CodecSpec& codec, BytesView values, DType source,
                            const Residual& residual, const StochasticKey* key) {
  const std::size_t width = size_bytes(source);
  SWARMLINE_CHECK(source == DType::kF32 || source == DType::kF64);
  SWARMLINE_CHECK(values.size() % width == 0 && residual.current.size() == values.size() &&
                  residual.next.size() == values.size());
  const auto spec = quant_spec(codec);
  return write_tiles(
      codec, values.size() / width, source, key,
      [&](std::uint64_t begin, std::size_t n, const StochasticKey* here, std::byte* scales,
          std::byte* codes) {
        const std::byte* const in = values.data() + begin * width;
        const std::byte* const current = residual.current.data() + begin * width;
        std::byte* const next = residual.next.data() + begin * width;
        if (source == DType::kF64)
          return feedback_tile<double>(codec, source, in, n, here, current, next, scales, codes);
        if (!spec)
          return feedback_tile<float>(codec, source, in, n, here, current, next, scales, codes);
        if (next != current) std::memcpy(next, current, n * width);
        return kernels::quantize_with_feedback(*spec, reinterpret_cast<const float*>(in),
                                               reinterpret_cast<float*>(next), n, here, scales,
                                               reinterpret_cast<std::uint8_t*>(codes));
      });
}

}  // namespace swarmline
