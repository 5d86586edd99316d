#include "engine/net/frame.h"

#include <bit>
#include <cstring>
#include <xxhash.h>

#include <fmt/format.h>

#include "base/check.h"
#include "base/limits.h"
#include "base/printable.h"

namespace swarmline {
namespace {

static_assert(std::endian::native == std::endian::little, "frame fields are copied as they are");

constexpr std::size_t kHashedHeaderBytes = 36;
constexpr std::size_t kShownBytes = 8;  // of what another service sends

std::uint32_t low_hash(BytesView bytes) {
  return static_cast<std::uint32_t>(XXH3_64bits(bytes.data(), bytes.size()));
}

template <typename T>
void put(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof(T));
}

template <typename T>
T get(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

}  // namespace

std::array<std::byte, kFrameHeaderBytes> encode_header(const FrameHeader& header) {
  std::array<std::byte, kFrameHeaderBytes> bytes;
  std::byte* p = bytes.data();
  put(p, kFrameMagic);
  put(p + 4, kFrameVersion);
  put(p + 6, header.kind);
  put(p + 8, header.request);
  put(p + 16, header.meta_bytes);
  put(p + 20, header.flags);
  put(p + 24, header.payload_bytes);
  put(p + 32, header.meta_hash);
  put(p + 36, low_hash({p, kHashedHeaderBytes}));
  return bytes;
}

Result<FrameHeader> decode_header(BytesView bytes) {
  SWARMLINE_CHECK(bytes.size() == kFrameHeaderBytes);
  const std::byte* p = bytes.data();
  const auto corrupt = [](std::string what) { return fail(ErrorCode::kCorrupt, std::move(what)); };
  if (const auto magic = get<std::uint32_t>(p); magic != kFrameMagic) {
    return corrupt(
        fmt::format("this is no frame of Swarmline's, it begins with \"{}\"; another service?",
                    printable({reinterpret_cast<const char*>(p), kShownBytes}, kShownBytes)));
  }
  if (const auto version = get<std::uint16_t>(p + 4); version != kFrameVersion) {
    return corrupt(
        fmt::format("frame version is {}, this program speaks {}", version, kFrameVersion));
  }
  if (get<std::uint32_t>(p + 36) != low_hash(bytes.first(kHashedHeaderBytes))) {
    return corrupt("frame header does not match its hash");
  }
  const FrameHeader header{.kind = get<std::uint16_t>(p + 6),
                           .request = get<std::uint64_t>(p + 8),
                           .meta_bytes = get<std::uint32_t>(p + 16),
                           .flags = get<std::uint32_t>(p + 20),
                           .payload_bytes = get<std::uint64_t>(p + 24),
                           .meta_hash = get<std::uint32_t>(p + 32)};
  if (header.meta_bytes > Limits::frame_meta_bytes_max) {
    return corrupt(fmt::format("frame announces {} bytes of meta, at most {} are allowed",
                               header.meta_bytes, Limits::frame_meta_bytes_max));
  }
  if (header.payload_bytes > Limits::frame_payload_bytes_max) {
    return corrupt(fmt::format("frame announces {} bytes of payload, at most {} are allowed",
                               header.payload_bytes, Limits::frame_payload_bytes_max));
  }
  return header;
}

std::uint32_t hash_meta(BytesView meta) {
  return low_hash(meta);
}

FrameHeader Frame::header() const {
  const std::uint64_t payload_size = payload_bytes();
  SWARMLINE_CHECK_MSG(meta.size() <= Limits::frame_meta_bytes_max &&
                          payload_size <= Limits::frame_payload_bytes_max,
                      fmt::format("a frame of kind {} has {} bytes of meta and {} of payload", kind,
                                  meta.size(), payload_size));
  return {.kind = kind,
          .request = request,
          .meta_bytes = static_cast<std::uint32_t>(meta.size()),
          .flags = flags,
          .payload_bytes = payload_size,
          .meta_hash = hash_meta(as_bytes(meta))};
}

std::uint64_t Frame::payload_bytes() const {
  std::uint64_t total = 0;
  for (const SharedBytes& part : payload) total += part.size();
  return total;
}

void Frame::keep_payload() {
  for (SharedBytes& part : payload) part = part.kept();
}

void Frame::hold_payload() {
  for (SharedBytes& part : payload) part = part.held();
}

}  // namespace swarmline
