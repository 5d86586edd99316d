// How a tensor travels: one contiguous wire buffer, docs/formats/wire_buffer.md.
//
// Wire buffer: a 64-byte little-endian header, then tiles of 65536 elements (the last: the rest).
//    0 u32 magic SWQ1        4 u16 version (2)   6 u8 codec        7 u8 source dtype
//    8 u8 scale dtype        9 u8 flags (bit 0: non-finite values present, bit 1: stochastic,
//                                                 bit 2: tiles without checksums)
//   10 u16 reserved 0       12 u32 block        16 u32 tile elements
//   20 u32 topk: elements kept of a full tile   24 u64 n
//   32 u64 payload bytes    40..55 reserved 0   56 u64 XXH3-64 of bytes 0..55
//   Tile: [scales of its blocks, or positions; zeros up to 64 bytes][codes], zeros, then the u64
//         XXH3-64 of all before it (0 in a buffer without checksums): a multiple of 64 bytes, so
//         that every tile begins on one.
// Codecs:
//   none        the source dtype as is
//   fp16, bf16  rounded to nearest even; overflow goes to infinity, NaN stays NaN
//   lin8, dyn8, h8, fp8 (e4m3), e5m2, int4, h4
//               blockwise, kernels/quantize.h; a block that is not finite comes back as NaN
//   topk        per tile the elements of largest magnitude (of equals: the lower index), exact in
//               fp32; all others come back as 0. NaN counts as the largest
//   An fp64 source is first rounded to fp32, except by none.
//   Shapes:    n elements of fp32, fp64, fp16 or bf16, any n >= 0, any alignment.
//   Thread:    any, stateless; a WireDecoder belongs to one thread at a time.
//   Errors:    decoding returns kCorrupt (magic, version, lengths, checksum, positions, non-finite
//              values without their flag) or kIncompatible (another n than asked for, or codec none
//              with another dtype); lengths are checked against the header and the buffer before
//              anything else is read, each tile before it is decoded. After an error the output may
//              be partly written.
//   Bounds:    encoded_bytes() is exact; elements <= 2^60, with stochastic rounding 2^35.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/dtype.h"
#include "base/result.h"
#include "kernels/quantize.h"

namespace swarmline {

enum class CodecKind : std::uint8_t {
  kNone = 0,
  kFp16 = 1,
  kBf16 = 2,
  kLin8 = 3,
  kDyn8 = 4,
  kH8 = 5,
  kE4M3 = 6,
  kE5M2 = 7,
  kInt4 = 8,
  kH4 = 9,
  kTopK = 10,
};
inline constexpr std::size_t kCodecKinds = 11;

inline constexpr std::size_t kWireHeaderBytes = 64;
inline constexpr std::uint32_t kWireTileElements = 65536;

struct CodecSpec {
  CodecKind kind = CodecKind::kNone;
  std::uint32_t block = 0;  // elements per scale; 0 with codecs that have no scales
  kernels::ScaleKind scales = kernels::ScaleKind::kF32;
  std::uint32_t kept = 0;  // topk: elements kept of a full tile, 1 .. kWireTileElements; else 0
  bool checksums = true;   // of tiles; a link that authenticates its bytes needs none
  bool operator==(const CodecSpec&) const = default;
};

struct CodecOptions {
  std::uint32_t block = 0;  // of lin8 and dyn8, 64 .. 4096; 0: 256. Others have one block
  kernels::ScaleKind scales = kernels::ScaleKind::kF32;
  double topk = 0.01;  // share of elements that topk keeps
  bool checksums = true;
};
// kUserMistake naming the known codecs and, where one is near, that one.
Result<CodecSpec> parse_codec(std::string_view name, const CodecOptions& options = {});
std::string_view name_of(CodecKind kind);       // as in the config
std::string to_string(const CodecSpec& codec);  // "lin8/256", "h8", "topk/655", "h8+bf16"
bool is_valid(const CodecSpec& codec);
// What the codec's kernels take; none for codecs without scales.
std::optional<kernels::QuantSpec> quant_spec(const CodecSpec& codec);
bool can_round_stochastically(const CodecSpec& codec);

// What carries the sum of `parts` topk tensors: as many elements as they can have between them, or
// `none` where that is no fewer bytes, or where sums are of fp64, which topk would round.
CodecSpec codec_of_sum(const CodecSpec& topk, std::uint32_t parts, DType source);

struct WireHeader {
  CodecSpec codec;
  DType source = DType::kF32;
  bool non_finite = false;
  bool stochastic = false;
  std::uint64_t elements = 0;
  std::uint64_t payload_bytes = 0;  // after the header
};

std::uint64_t encoded_bytes(const CodecSpec& codec, std::uint64_t elements, DType source);

// `values` holds elements of `source` (kF32, kF64, kF16 or kBF16). The flag says whether decoding
// will give a non-finite value; with codec `none`, which takes values as they are, it is set in any
// case, and nobody looks for them. `key` null, or a codec that always rounds to nearest: to
// nearest.
Buffer encode(const CodecSpec& codec, BytesView values, DType source,
              const kernels::StochasticKey* key = nullptr);

// The buffer that encode() makes, in parts that follow each other. With codec `none` the values are
// not copied: those parts are lent, and good as long as `values` are.
std::vector<SharedBytes> encode_in_parts(const CodecSpec& codec, BytesView values, DType source,
                                         const kernels::StochasticKey* key = nullptr);
// The same, but that the parts keep the values alive.
std::vector<SharedBytes> encode_in_parts(const CodecSpec& codec, const SharedBytes& values,
                                         DType source, const kernels::StochasticKey* key = nullptr);

// Error feedback: t = value + current residual; the buffer of t; next residual = t - what the
// buffer decodes to, 0 where that is not finite. Elements of `source` (kF32 or kF64), as many as
// the values; `next` may be `current` itself.
struct Residual {
  BytesView current;
  MutableBytes next;
};
Buffer encode_with_feedback(const CodecSpec& codec, BytesView values, DType source,
                            const Residual& residual, const kernels::StochasticKey* key = nullptr);

// `wire` is the whole buffer: its length is checked too.
Result<WireHeader> read_wire_header(BytesView wire);
// The same of a buffer of `wire_bytes` of which only the beginning is here, at least the header.
Result<WireHeader> read_wire_header(BytesView beginning, std::uint64_t wire_bytes);
// Decodes into `out`, which must hold exactly the header's elements of `target`.
Result<void> decode(BytesView wire, DType target, MutableBytes out);
// sum += decoded, each value rounded to `target` (kF32 or kF64) before it is added: the bits of
// decode() and a sum. After an error `sum` is as it was.
Result<void> decode_add(BytesView wire, DType target, MutableBytes sum);
// decode(), for an `out` that nobody reads soon: where the codec lets it, past the caches.
Result<void> stream_decode(BytesView wire, DType target, MutableBytes out);

// The values of a buffer of codec `none`, used where they lie. All of it has been checked.
class PlainValues {
 public:
  // Errors as decode() has them for an `out` of so many bytes; CHECKed: the codec is `none`.
  static Result<PlainValues> of(SharedBytes wire, DType target, std::size_t out_bytes);
  // Elements [first, first + count), which lie within one tile.
  BytesView values(std::uint64_t first, std::size_t count) const;

 private:
  PlainValues(SharedBytes wire, const WireHeader& header)
      : wire_(std::move(wire)), header_(header) {}

  SharedBytes wire_;
  WireHeader header_;
};

// Decodes a wire buffer while it arrives: each tile as soon as it is there and its checksum, where
// it has one, holds.
// However the bytes are split, the output and the error are those of decode().
//   Ownership: `out` is borrowed until the decoder is done or dropped.
class WireDecoder {
 public:
  WireDecoder(std::uint64_t wire_bytes, DType target, MutableBytes out);
  // `arrived`: the first bytes of the buffer, at least as many as the time before, the same ones.
  // After an error every call returns it again.
  Result<void> advance(BytesView arrived);
  bool done() const { return header_ && elements_ == header_->elements && !error_; }
  std::uint64_t elements_done() const { return elements_; }

 private:
  Result<void> step(BytesView arrived);
  Result<void> begin(BytesView arrived);

  std::uint64_t wire_bytes_;
  DType target_;
  MutableBytes out_;
  std::optional<WireHeader> header_;
  std::optional<Error> error_;
  std::uint64_t elements_ = 0;  // decoded
  std::uint64_t offset_ = 0;    // of the next tile
};

}  // namespace swarmline
