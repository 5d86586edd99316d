#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/hash.h"
#include "compression/codec.h"
#include "compression/sparse.h"
#include "compression/wire.h"
#include "kernels/kernels.h"

namespace swarmline {
namespace {

using kernels::QuantFormat;

std::unexpected<Error> positions_do_not_ascend() {
  return fail(ErrorCode::kCorrupt, "wire buffer: positions that do not ascend");
}

// Formats whose values are all finite whenever their scales are moderate.
bool scales_decide(CodecKind kind) {
  return kind == CodecKind::kLin8 || kind == CodecKind::kDyn8 || kind == CodecKind::kH8 ||
         kind == CodecKind::kInt4 || kind == CodecKind::kH4;
}
bool scales_are_moderate(const kernels::QuantSpec& spec, const std::byte* scales, std::size_t n) {
  const std::size_t width = kernels::scale_bytes(spec.scales);
  const std::size_t blocks = kernels::quant_blocks(spec, n);
  // 2^100 times the largest sum of a block's codes (64 * 127) is far from overflow.
  constexpr float kModerate = 0x1p100F;
  for (std::size_t b = 0; b < blocks; ++b) {
    std::uint32_t bits = 0;
    std::memcpy(reinterpret_cast<std::byte*>(&bits) + (4 - width), scales + b * width, width);
    const float scale = std::bit_cast<float>(bits);
    if (std::signbit(scale) || !(scale <= kModerate)) return false;  // -0 is a bad scale too
  }
  return true;
}

// Of codec `none`.
Result<void> check_plain_tile(const WireHeader& header, const Tile& tile, BytesView wire) {
  SWARMLINE_TRY(check_hash(header.codec, tile, wire));
  return check_codes(header, tile, wire);
}

// Whether tiles may be added one by one: nothing can fail once this returned true.
Result<bool> can_add_in_place(BytesView wire, const WireHeader& header) {
  const auto spec = quant_spec(header.codec);
  const bool plain = header.codec.kind == CodecKind::kNone;
  bool moderate = spec && scales_decide(header.codec.kind);
  for (Tile tile; next_tile(header, tile);) {
    SWARMLINE_TRY(plain ? check_plain_tile(header, tile, wire)
                        : check_hash(header.codec, tile, wire));
    moderate = moderate && scales_are_moderate(*spec, wire.data() + tile.at, tile.elements);
  }
  return plain || moderate;
}

template <typename T>
void add_to(BytesView values, MutableBytes sum) {
  kernels::add_into(reinterpret_cast<const T*>(values.data()), reinterpret_cast<T*>(sum.data()),
                    values.size() / sizeof(T));
}
void add_to(DType dtype, BytesView values, MutableBytes sum) {
  dtype == DType::kF32 ? add_to<float>(values, sum) : add_to<double>(values, sum);
}

}  // namespace

Result<void> check_target(const WireHeader& header, DType target, std::size_t out_bytes) {
  if (header.codec.kind == CodecKind::kNone && header.source != target) {
    return fail(ErrorCode::kIncompatible,
                "wire buffer: codec none carries another element type than is asked for");
  }
  const std::uint64_t expected = out_bytes / size_bytes(target);
  if (out_bytes % size_bytes(target) != 0 || header.elements != expected) {
    return fail(ErrorCode::kIncompatible, "wire buffer: holds " + std::to_string(header.elements) +
                                              " elements, expected " + std::to_string(expected));
  }
  return {};
}

Result<void> check_hash(const CodecSpec& codec, const Tile& tile, BytesView wire) {
  if (!codec.checksums) return {};
  const BytesView bytes = wire.subspan(tile.at, tile.shape.total_bytes());
  std::uint64_t hash = 0;
  std::memcpy(&hash, bytes.data() + tile.shape.hash_at(), sizeof hash);
  if (hash == xxh3(bytes.first(tile.shape.hash_at()))) return {};
  return fail(ErrorCode::kCorrupt,
              "wire buffer: checksum of tile " + std::to_string(tile.first / kWireTileElements));
}

Result<void> check_codes(const WireHeader& header, const Tile& tile, BytesView wire) {
  const std::byte* const codes = wire.data() + tile.at;
  if (header.codec.kind == CodecKind::kTopK &&
      !positions_ascend(codes, kept_of_tile(header.codec, tile.elements), tile.elements))
    return positions_do_not_ascend();
  if (header.codec.kind != CodecKind::kNone || header.non_finite) return {};
  return check_announced(header, header.source,
                         any_non_finite(header.source, codes, tile.elements));
}

Result<void> check_announced(const WireHeader& header, DType target, bool non_finite) {
  // A target narrower than the codes may overflow by itself.
  const bool narrower = target == DType::kF16 || target == DType::kBF16;
  if (!non_finite || header.non_finite || narrower) return {};
  return fail(ErrorCode::kCorrupt, "wire buffer: non-finite values without their flag");
}

WireDecoder::WireDecoder(std::uint64_t wire_bytes, DType target, MutableBytes out)
    : wire_bytes_(wire_bytes), target_(target), out_(out) {}

Result<void> WireDecoder::advance(BytesView arrived) {
  if (error_) return std::unexpected(*error_);
  auto stepped = arrived.size() <= wire_bytes_ && arrived.size() >= offset_
                     ? step(arrived)
                     : fail(ErrorCode::kCorrupt, "wire buffer: its size changed while it came");
  if (!stepped) error_ = stepped.error();
  return stepped;
}

Result<void> WireDecoder::begin(BytesView arrived) {
  auto header = read_wire_header(arrived, wire_bytes_);
  if (!header) return std::unexpected(header.error());
  SWARMLINE_TRY(check_target(*header, target_, out_.size()));
  header_ = *header;
  offset_ = kWireHeaderBytes;
  return {};
}

Result<void> WireDecoder::step(BytesView arrived) {
  if (!header_) {
    if (arrived.size() < kWireHeaderBytes && arrived.size() < wire_bytes_) return {};
    SWARMLINE_TRY(begin(arrived));
  }
  while (elements_ < header_->elements) {
    const Tile tile =
        tile_from(header_->codec, header_->elements, header_->source, elements_, offset_);
    if (arrived.size() - offset_ < tile.shape.total_bytes()) return {};
    SWARMLINE_TRY(check_hash(header_->codec, tile, arrived));
    const std::byte* const in = arrived.data() + offset_;
    const auto non_finite =
        decode_tile(header_->codec, in, in + tile.shape.codes_at(), tile.elements, target_,
                    out_.data() + elements_ * size_bytes(target_));
    if (!non_finite) return positions_do_not_ascend();
    SWARMLINE_TRY(check_announced(*header_, target_, *non_finite));
    offset_ += tile.shape.total_bytes();
    elements_ += tile.elements;
  }
  return {};
}

Result<void> decode(BytesView wire, DType target, MutableBytes out) {
  SWARMLINE_CHECK(target == DType::kF32 || target == DType::kF64 || target == DType::kF16 ||
                  target == DType::kBF16);
  WireDecoder decoder(wire.size(), target, out);
  SWARMLINE_TRY(decoder.advance(wire));
  SWARMLINE_CHECK(decoder.done());
  return {};
}

Result<void> decode_add(BytesView wire, DType target, MutableBytes sum) {
  SWARMLINE_CHECK(target == DType::kF32 || target == DType::kF64);
  const auto header = read_wire_header(wire);
  if (!header) return std::unexpected(header.error());
  SWARMLINE_TRY(check_target(*header, target, sum.size()));
  const bool plain = header->codec.kind == CodecKind::kNone;
  if (plain || (target == DType::kF32 && quant_spec(header->codec))) {
    const auto in_place = can_add_in_place(wire, *header);
    if (!in_place) return std::unexpected(in_place.error());
    if (*in_place) {
      for (Tile tile; next_tile(*header, tile);) {
        const std::byte* const in = wire.data() + tile.at;
        if (plain) {
          const std::size_t width = size_bytes(target);
          add_to(target, {in, tile.elements * width},
                 sum.subspan(tile.first * width, tile.elements * width));
        } else {
          kernels::dequantize_axpy(
              *quant_spec(header->codec), 1.0F, in,
              reinterpret_cast<const std::uint8_t*>(in) + tile.shape.codes_at(), tile.elements,
              reinterpret_cast<float*>(sum.data()) + tile.first);
        }
      }
      return {};
    }
  }
  Buffer values(sum.size());
  SWARMLINE_TRY(decode(wire, target, values.bytes()));
  add_to(target, values.bytes(), sum);
  return {};
}

Result<void> stream_decode(BytesView wire, DType target, MutableBytes out) {
  const auto header = read_wire_header(wire);
  if (!header) return std::unexpected(header.error());
  if (header->codec.kind != CodecKind::kNone) return decode(wire, target, out);
  SWARMLINE_TRY(check_target(*header, target, out.size()));
  const std::size_t width = size_bytes(target);
  for (Tile tile; next_tile(*header, tile);) {
    SWARMLINE_TRY(check_plain_tile(*header, tile, wire));
    kernels::stream_copy(wire.data() + tile.at, out.data() + tile.first * width,
                         tile.elements * width);
  }
  return {};
}

Result<PlainValues> PlainValues::of(SharedBytes wire, DType target, std::size_t out_bytes) {
  const auto header = read_wire_header(wire.view());
  if (!header) return std::unexpected(header.error());
  SWARMLINE_CHECK(header->codec.kind == CodecKind::kNone);
  SWARMLINE_TRY(check_target(*header, target, out_bytes));
  for (Tile tile; next_tile(*header, tile);)
    SWARMLINE_TRY(check_plain_tile(*header, tile, wire.view()));
  return PlainValues(std::move(wire), *header);
}

BytesView PlainValues::values(std::uint64_t first, std::size_t count) const {
  const std::uint64_t tile = first / kWireTileElements;
  const std::size_t before = first % kWireTileElements;
  SWARMLINE_CHECK(first + count <= header_.elements && before + count <= kWireTileElements);
  const std::size_t tile_bytes =
      tile_shape(header_.codec, kWireTileElements, header_.source).total_bytes();
  const std::size_t width = size_bytes(header_.source);
  return wire_.view().subspan(kWireHeaderBytes + tile * tile_bytes + before * width, count * width);
}

}  // namespace swarmline
