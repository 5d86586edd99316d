#include "engine/net/bulk/bulk_offer.h"

#include <limits>

#include <fmt/format.h>

#include "base/limits.h"
#include "engine/net/bulk/bulk_offer.pb.h"

namespace swarmline {
namespace {

std::unexpected<Error> no_offer(std::string_view why) {
  return fail(ErrorCode::kCorrupt, fmt::format("this is no offer of a bulk link: {}", why));
}

Result<BulkWay> parse_way(const wire::BulkWay& way) {
  if (way.backend().empty() || way.backend().size() > kBulkNameBytesMax)
    return no_offer("a way without a name, or with a long one");
  if (way.address().size() > kBulkAddressBytesMax) return no_offer("a long address");
  if (!way.secret().empty() && way.secret().size() != kBulkSecretBytes)
    return no_offer("a secret of another size");
  return BulkWay{.backend = way.backend(), .address = way.address(), .secret = way.secret()};
}

}  // namespace

std::string encode(const BulkOffer& offer) {
  wire::BulkOffer message;
  message.set_from(offer.from);
  message.set_to(offer.to);
  message.set_trial_kind(offer.trial_kind);
  for (const BulkWay& way : offer.ways) {
    wire::BulkWay& one = *message.add_ways();
    one.set_backend(way.backend);
    one.set_address(way.address);
    one.set_secret(way.secret);
  }
  return message.SerializeAsString();
}

Result<BulkOffer> parse_bulk_offer(std::string_view bytes) {
  if (bytes.size() > kBulkOfferBytesMax) return no_offer("it is too long");
  wire::BulkOffer message;
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    return no_offer("its bytes do not parse");
  if (message.from().size() > Limits::address_bytes_max ||
      message.to().size() > Limits::address_bytes_max)
    return no_offer("a long address");
  if (static_cast<std::size_t>(message.ways_size()) > kBulkWaysMax)
    return no_offer("too many ways");
  if (message.trial_kind() > std::numeric_limits<std::uint16_t>::max())
    return no_offer("a kind that no frame has");
  BulkOffer offer{.from = message.from(),
                  .to = message.to(),
                  .ways = {},
                  .trial_kind = static_cast<std::uint16_t>(message.trial_kind())};
  for (const wire::BulkWay& one : message.ways()) {
    auto way = parse_way(one);
    if (!way) return std::unexpected(std::move(way).error());
    offer.ways.push_back(std::move(*way));
  }
  return offer;
}

Result<BulkOffer> parse_bulk_answer(std::string_view bytes) {
  auto answer = parse_bulk_offer(bytes);
  if (!answer) return answer;
  if (answer->ways.size() != 1 || answer->ways.front().secret.empty())
    return no_offer("an answer takes one way, with a secret");
  return answer;
}

}  // namespace swarmline
