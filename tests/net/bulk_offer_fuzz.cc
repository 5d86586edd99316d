// Any bytes as an offer of bulk links, an answer or a payload's ticket: nothing beyond the bounds
// is taken, and what is taken encodes to what is read as the same.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "engine/net/bulk/bulk_offer.h"
#include "engine/net/bulk/bulk_ticket.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace swarmline;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (const auto offer = parse_bulk_offer(bytes)) {
    SWARMLINE_CHECK(offer->ways.size() <= kBulkWaysMax);
    for (const BulkWay& way : offer->ways)
      SWARMLINE_CHECK(!way.backend.empty() && way.backend.size() <= kBulkNameBytesMax &&
                      way.address.size() <= kBulkAddressBytesMax);
    const auto again = parse_bulk_offer(encode(*offer));
    SWARMLINE_CHECK(again.has_value() && *again == *offer);
  }
  if (const auto answer = parse_bulk_answer(bytes))
    SWARMLINE_CHECK(answer->ways.size() == 1 &&
                    answer->ways.front().secret.size() == kBulkSecretBytes);
  if (const auto ticket = parse_bulk_ticket(as_bytes(bytes)))
    SWARMLINE_CHECK(parse_bulk_ticket(encode(*ticket).bytes()).value() == *ticket);
  return 0;
}
