// What travels in the place of a payload that goes by a bulk link. Pure.
//   Format: 24 bytes, little-endian: u64 payload_bytes, u64 number (from 0, each one more than the
//           one before), u64 XXH3-64 of the payload or 0.
//   Errors: kCorrupt for another size.
#pragma once

#include <array>
#include <cstdint>

#include "base/bytes.h"
#include "base/result.h"

namespace swarmline {

inline constexpr std::uint32_t kFrameFlagBulk = 16;  // beside those of frame.h
inline constexpr std::size_t kBulkTicketBytes = 24;

struct BulkTicket {
  std::uint64_t payload_bytes = 0;
  std::uint64_t number = 0;
  std::uint64_t hash = 0;  // 0: none
  bool operator==(const BulkTicket&) const = default;
};

Buffer encode(const BulkTicket& ticket);
Result<BulkTicket> parse_bulk_ticket(BytesView bytes);
std::uint64_t hash_of_parts(std::span<const SharedBytes> parts);  // never 0
std::uint64_t hash_of_payload(BytesView payload);                 // the same

}  // namespace swarmline
