// Any bytes: decode() refuses or fills its output, reads nothing outside, and lets no non-finite
// value through without its flag. Each input is tried as it is and again with its checksums made
// right, so that the fuzzer gets behind them. Fed in pieces, the outcome is the same.

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/hash.h"
#include "compression/codec.h"
#include "compression/wire.h"

namespace swarmline {
namespace {

// topk and short formats say many elements in few bytes.
constexpr std::uint64_t kElementsTried = 1 << 20;

void require(bool condition) {
  if (!condition) std::abort();
}

// Pieces whose sizes come from the bytes themselves.
template <typename T>
void try_pieces(BytesView wire, DType target, const std::vector<T>& whole,
                const Result<void>& expected) {
  std::vector<T> out(whole.size());
  WireDecoder decoder(wire.size(), target,
                      {reinterpret_cast<std::byte*>(out.data()), out.size() * sizeof(T)});
  Result<void> stepped;
  for (std::size_t fed = 0; fed < wire.size() && stepped;) {
    const std::size_t piece = 1 + std::to_integer<std::size_t>(wire[fed]) * 7 % 61;
    fed = std::min(wire.size(), fed + piece);
    stepped = decoder.advance(wire.first(fed));
  }
  require(stepped.has_value() == expected.has_value());
  if (!expected) return require(stepped.error().what == expected.error().what);
  require(decoder.done());
  require(out.empty() || std::memcmp(out.data(), whole.data(), out.size() * sizeof(T)) == 0);
}

template <typename T>
void try_add(BytesView wire, DType target, const std::vector<T>& values,
             const Result<void>& expected) {
  std::vector<T> sum(values.size(), T(1));
  const auto added =
      decode_add(wire, target, {reinterpret_cast<std::byte*>(sum.data()), sum.size() * sizeof(T)});
  require(added.has_value() == expected.has_value());
  for (std::size_t i = 0; i < sum.size(); ++i) {
    const T right = expected ? T(1) + values[i] : T(1);
    require(sum[i] == right || (std::isnan(sum[i]) && std::isnan(right)));
  }
}

template <typename T>
bool same(const T& a, const T& b) {
  return a == b || (std::isnan(a) && std::isnan(b));
}

template <typename T>
void try_streamed(BytesView wire, DType target, const std::vector<T>& values,
                  const Result<void>& expected) {
  std::vector<T> out(values.size());
  const auto decoded = stream_decode(
      wire, target, {reinterpret_cast<std::byte*>(out.data()), out.size() * sizeof(T)});
  require(decoded.has_value() == expected.has_value());
  if (!expected) return require(decoded.error().what == expected.error().what);
  for (std::size_t i = 0; i < out.size(); ++i) require(same(out[i], values[i]));
}

template <typename T>
void try_plain(BytesView wire, DType target, const std::vector<T>& values,
               const Result<void>& expected) {
  const auto plain =
      PlainValues::of(SharedBytes(Buffer::copy_of(wire)), target, values.size() * sizeof(T));
  require(plain.has_value() == expected.has_value());
  if (!expected) return require(plain.error().what == expected.error().what);
  for (std::size_t i = 0; i < values.size(); ++i) {
    T value;
    std::memcpy(&value, plain->values(i, 1).data(), sizeof value);
    require(same(value, values[i]));
  }
}

template <typename T>
void try_decode(BytesView wire, const WireHeader& header, DType target) {
  if (header.elements > kElementsTried) return;
  std::vector<T> out(header.elements);
  const auto decoded =
      decode(wire, target, {reinterpret_cast<std::byte*>(out.data()), out.size() * sizeof(T)});
  try_pieces(wire, target, out, decoded);
  try_add(wire, target, out, decoded);
  try_streamed(wire, target, out, decoded);
  if (header.codec.kind == CodecKind::kNone) try_plain(wire, target, out, decoded);
  if (!decoded) {
    require(decoded.error().code == ErrorCode::kCorrupt ||
            decoded.error().code == ErrorCode::kIncompatible);
    return;
  }
  if (header.non_finite) return;
  for (const T value : out) require(std::isfinite(value));
}

void try_wire(BytesView wire) {
  const auto header = read_wire_header(wire);
  if (!header) {
    require(header.error().code == ErrorCode::kCorrupt);
    return;
  }
  require(wire.size() == encoded_bytes(header->codec, header->elements, header->source));
  try_decode<float>(wire, *header, DType::kF32);
  try_decode<double>(wire, *header, DType::kF64);
}

void seal(MutableBytes wire) {
  const std::uint64_t payload = wire.size() - kWireHeaderBytes;
  std::memcpy(wire.data() + 32, &payload, sizeof payload);
  const std::uint64_t header_hash = xxh3(wire.first(56));
  std::memcpy(wire.data() + 56, &header_hash, sizeof header_hash);
  const auto header = read_wire_header(wire);
  if (!header) return;
  std::byte* at = wire.data() + kWireHeaderBytes;
  for (std::uint64_t begin = 0; begin < header->elements; begin += kWireTileElements) {
    const auto n = std::min<std::uint64_t>(kWireTileElements, header->elements - begin);
    const TileShape shape = tile_shape(header->codec, n, header->source);
    const std::uint64_t hash = xxh3(BytesView(at, shape.hash_at()));
    std::memcpy(at + shape.hash_at(), &hash, sizeof hash);
    at += shape.total_bytes();
  }
}

}  // namespace
}  // namespace swarmline

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace swarmline;
  const BytesView input(reinterpret_cast<const std::byte*>(data), size);
  try_wire(input);
  if (size < kWireHeaderBytes) return 0;
  Buffer sealed = Buffer::copy_of(input);
  seal(sealed.bytes());
  try_wire(sealed.bytes());
  return 0;
}
