// Payloads that are lent: for the call that sends them, or until their lender takes them back.

#include "base/byte_ops.h"
#include "base/rng.h"
#include "tests/contract/link.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

SharedBytes lent_test_bytes(std::size_t size, std::uint64_t seed) {
  Buffer buffer(size);
  Rng rng(seed);
  for (std::byte& byte : buffer.bytes()) byte = static_cast<std::byte>(rng.next_u32());
  return SharedBytes(std::move(buffer));
}

using LentContract = BackendTest;

// What was lent is the sender's again as soon as the call is over, whatever of it has left.
TEST_P(LentContract, WhatIsLentMayChangeAfterTheCall) {
  const auto link = make_link(*world_);
  const std::vector<std::size_t> sizes = {0, 1, 100, 65'536, 3 << 20, 5, 3 << 20, 16 << 20, 7};
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    Buffer values = Buffer::copy_of(lent_test_bytes(sizes[i], i).view());
    const std::size_t half = sizes[i] / 2;
    std::vector<SharedBytes> parts{lent_test_bytes(30, i),
                                   SharedBytes::lent(values.bytes().first(half)),
                                   SharedBytes::lent(values.bytes().subspan(half))};
    const auto to = std::to_string(i);
    link->client.connection->send_lent(
        make_frame(1, i == 5 ? std::string(300'000, 'm') : to, parts));
    fill_bytes(values.bytes(), std::byte{0xEE});
    link->client.connection->send(make_frame(2, to));
    if (i % 3 == 2) world_->run_for(1ms);  // what waits for the socket may be more or less
  }
  ASSERT_TRUE(
      world_->run_until([&] { return link->server.frames.size() == 2 * sizes.size(); }, 20s));
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const BytesView got = link->server.frames[2 * i].received_payload();
    ASSERT_EQ(got.size(), 30 + sizes[i]);
    EXPECT_TRUE(same_bytes(got.first(30), lent_test_bytes(30, i).view()));
    EXPECT_TRUE(same_bytes(got.subspan(30), lent_test_bytes(sizes[i], i).view())) << i;
    EXPECT_EQ(link->server.frames[2 * i + 1].meta, std::to_string(i));
  }
  EXPECT_TRUE(world_->run_until([&] { return link->client.connection->unsent_bytes() == 0; }, 20s));
}

// What has a lender is read where it lies for as long as it is not taken back, and is right after.
TEST_P(LentContract, WhatHasALenderMayChangeOnceItIsTakenBack) {
  const auto link = make_link(*world_, false);
  link->client.start();
  const std::vector<std::size_t> sizes = {3 << 20, 100, 65'536, 16 << 20, 7, 1 << 20};
  std::vector<Buffer> values;
  for (std::size_t i = 0; i < sizes.size(); ++i)
    values.push_back(Buffer::copy_of(lent_test_bytes(sizes[i], i).view()));
  Lender lender;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const SharedBytes lent = SharedBytes::lent(values[i].bytes());
    lender.lend(lent);
    link->client.connection->send_lent(make_frame(1, "", {lent_test_bytes(30, i), lent}));
    world_->run_for(1ms);
  }
  EXPECT_GT(link->client.connection->unsent_bytes(), 0U);
  lender.take_back();
  for (Buffer& lent : values) fill_bytes(lent.bytes(), std::byte{0xEE});
  link->server.start();
  ASSERT_TRUE(world_->run_until([&] { return link->server.frames.size() == sizes.size(); }, 20s));
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const BytesView got = link->server.frames[i].received_payload();
    ASSERT_EQ(got.size(), 30 + sizes[i]);
    EXPECT_TRUE(same_bytes(got.first(30), lent_test_bytes(30, i).view()));
    EXPECT_TRUE(same_bytes(got.subspan(30), lent_test_bytes(sizes[i], i).view())) << i;
  }
}

TEST_P(LentContract, LendingToAConnectionThatIsOverSendsNothing) {
  const auto link = make_link(*world_);
  const SharedBytes bytes = lent_test_bytes(1000, 1);
  link->client.connection->close();
  link->client.connection->send_lent(make_frame(1, "", {SharedBytes::lent(bytes.view())}));
  ASSERT_TRUE(world_->run_until([&] { return link->client.closed.size() == 1; }, 20s));
  link->client.connection->send_lent(make_frame(1, "", {SharedBytes::lent(bytes.view())}));
  EXPECT_EQ(link->client.connection->unsent_bytes(), 0U);
  EXPECT_TRUE(link->server.frames.empty());
}

SWARMLINE_FOR_EVERY_NETWORK(LentContract);

}  // namespace
}  // namespace swarmline
