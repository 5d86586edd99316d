#include "engine/net/bulk/bulk_ticket.h"

#include <bit>
#include <cstring>
#include <memory>
#include <xxhash.h>
#if defined(__x86_64__)
#include <xxh_x86dispatch.h>  // after it: the widest instructions of this machine, chosen once
#endif

#include <fmt/format.h>

namespace swarmline {
namespace {

static_assert(std::endian::native == std::endian::little, "fields are copied as they are");

std::uint64_t not_zero(std::uint64_t hash) {
  return hash == 0 ? 1 : hash;
}

}  // namespace

Buffer encode(const BulkTicket& ticket) {
  Buffer bytes(kBulkTicketBytes);
  const std::array<std::uint64_t, 3> fields = {ticket.payload_bytes, ticket.number, ticket.hash};
  static_assert(sizeof(fields) == kBulkTicketBytes);
  std::memcpy(bytes.data(), fields.data(), sizeof(fields));
  return bytes;
}

Result<BulkTicket> parse_bulk_ticket(BytesView bytes) {
  if (bytes.size() != kBulkTicketBytes)
    return fail(ErrorCode::kCorrupt, fmt::format("a payload's ticket of {} bytes", bytes.size()));
  std::array<std::uint64_t, 3> fields{};
  std::memcpy(fields.data(), bytes.data(), sizeof(fields));
  return BulkTicket{.payload_bytes = fields[0], .number = fields[1], .hash = fields[2]};
}

std::uint64_t hash_of_parts(std::span<const SharedBytes> parts) {
  if (parts.size() == 1) return hash_of_payload(parts.front().view());
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(),
                                                                       &XXH3_freeState);
  XXH3_64bits_reset(state.get());
  for (const SharedBytes& part : parts) XXH3_64bits_update(state.get(), part.data(), part.size());
  return not_zero(XXH3_64bits_digest(state.get()));
}

std::uint64_t hash_of_payload(BytesView payload) {
  return not_zero(XXH3_64bits(payload.data(), payload.size()));
}

}  // namespace swarmline
