#include "engine/net/bulk/bulk_offer.h"

#include <gtest/gtest.h>

#include "engine/net/bulk/bulk_ticket.h"
#include "tests/golden/golden.h"

namespace swarmline {
namespace {

BulkWay way(std::size_t address_bytes = 10) {
  return {.backend = "shm", .address = std::string(address_bytes, 'a'), .secret = {}};
}

TEST(BulkOffer, IsReadAsItWasSaid) {
  const BulkOffer offer{
      .from = "10.0.0.1:1", .to = "10.0.0.2:2", .ways = {way(), way(4096)}, .trial_kind = 65535};
  const auto read = parse_bulk_offer(encode(offer));
  ASSERT_TRUE(read.has_value()) << read.error().what;
  EXPECT_EQ(*read, offer);
}

TEST(BulkOffer, BeyondItsBoundsIsNone) {
  const auto is_none = [](const BulkOffer& offer) {
    const auto read = parse_bulk_offer(encode(offer));
    return !read && read.error().code == ErrorCode::kCorrupt;
  };
  EXPECT_TRUE(is_none({.from = std::string(301, 'h'), .to = "", .ways = {}}));
  EXPECT_TRUE(is_none({.from = "", .to = "", .ways = std::vector<BulkWay>(5, way())}));
  EXPECT_TRUE(is_none({.from = "", .to = "", .ways = {way(4097)}}));
  BulkWay named = way();
  named.backend = std::string(17, 'n');
  EXPECT_TRUE(is_none({.from = "", .to = "", .ways = {named}}));
  named.backend.clear();
  EXPECT_TRUE(is_none({.from = "", .to = "", .ways = {named}}));
  BulkWay secret = way();
  secret.secret = "short";
  EXPECT_TRUE(is_none({.from = "", .to = "", .ways = {secret}}));
  EXPECT_FALSE(parse_bulk_offer("\x20\x80\x80\x04")) << "trials of a kind that no frame has";
  EXPECT_EQ(parse_bulk_offer("\x20\xFF\xFF\x03")->trial_kind, 65535U);
  EXPECT_FALSE(parse_bulk_offer(std::string(kBulkOfferBytesMax + 1, '\0')).has_value());
}

TEST(BulkOffer, AnAnswerTakesOneWayWithASecret) {
  BulkWay taken = way();
  EXPECT_FALSE(parse_bulk_answer(encode(BulkOffer{.from = "", .to = "", .ways = {taken}})));
  taken.secret = std::string(kBulkSecretBytes, 's');
  EXPECT_TRUE(parse_bulk_answer(encode(BulkOffer{.from = "", .to = "", .ways = {taken}})));
  EXPECT_FALSE(parse_bulk_answer(encode(BulkOffer{.from = "", .to = "", .ways = {taken, taken}})));
  EXPECT_FALSE(parse_bulk_answer(""));
}

TEST(BulkTicket, IsReadAsItWasWrittenAndHasOneSize) {
  const BulkTicket ticket{.payload_bytes = 1ULL << 40U, .number = 7, .hash = 0xDEADBEEF};
  EXPECT_EQ(*parse_bulk_ticket(encode(ticket).bytes()), ticket);
  const Buffer bytes = encode(ticket);
  // The format is a promise: docs/formats/frame.md.
  expect_golden("frames/bulk_ticket.bin", std::string(as_text(bytes.bytes())));
  EXPECT_FALSE(parse_bulk_ticket(Buffer::zeroed(23).bytes()));
  EXPECT_FALSE(parse_bulk_ticket(Buffer::zeroed(25).bytes()));
}

TEST(BulkTicket, PartsHaveTheHashOfTheWhole) {
  Buffer buffer = Buffer::zeroed(1000);
  for (std::size_t i = 0; i < 1000; ++i) buffer.data()[i] = static_cast<std::byte>(i);
  const SharedBytes whole(std::move(buffer));
  const std::vector<SharedBytes> parts = {whole.slice(0, 1), whole.slice(1, 0), whole.slice(1, 998),
                                          whole.slice(999, 1)};
  EXPECT_EQ(hash_of_parts(parts), hash_of_payload(whole.view()));
}

}  // namespace
}  // namespace swarmline
