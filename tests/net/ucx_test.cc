// Links over UCX: where they may be had, and addresses and words of who has no business there.

#include <gtest/gtest.h>

#include "base/byte_ops.h"
#include "engine/identity/secrets.h"
#include "engine/net/ucx/ucx_backend.h"
#include "engine/runtime/asio_runtime.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

class UcxMeeting : public ::testing::Test {
 protected:
  using Made = std::vector<Result<std::shared_ptr<BulkLink>>>;

  void SetUp() override {
    set_ucx_environment();
    if (const auto found = UcxBackend::find_library(); !found) GTEST_SKIP() << found.error().what;
  }
  void TearDown() override {
    for (const Made* const made : {&awaited_, &met_})
      for (const auto& link : *made)
        if (link) (*link)->close();
  }
  BulkWay await(const std::string& address, Duration timeout = 5s) {
    return server_
        .await(path_, {.backend = "ucx", .address = address, .secret = {}}, timeout,
               [this](auto link) { awaited_.emplace_back(std::move(link)); })
        .value();
  }
  void meet(const BulkWay& way, Duration timeout = 5s) {
    client_.meet(path_, way, timeout, [this](auto link) { met_.emplace_back(std::move(link)); });
  }
  bool run_until(const std::function<bool()>& done, Duration limit = 10s) {
    return runtime_.run_until(done, limit);
  }

  const BulkPath path_{.own_host = "127.0.0.1", .other_host = "127.0.0.1", .is_trusted = true};
  AsioRuntime runtime_;
  UcxBackend server_{runtime_, false}, client_{runtime_, false};
  Made awaited_, met_;
};

TEST_F(UcxMeeting, BothEndsHaveALink) {
  meet(await(client_.address(path_)));
  ASSERT_TRUE(run_until([&] { return awaited_.size() == 1 && met_.size() == 1; }));
  ASSERT_TRUE(awaited_.front().has_value() && met_.front().has_value());
  std::vector<Buffer> received;
  bool sent = false;
  (*awaited_.front())
      ->start({.on_received = [&](Buffer payload) { received.push_back(std::move(payload)); },
               .on_sent = [] {},
               .on_closed = [](const Error&) {}});
  (*met_.front())
      ->start({.on_received = [](const Buffer&) {},
               .on_sent = [&] { sent = true; },
               .on_closed = [](const Error&) {}});
  Buffer payload(3'000'000);
  for (std::size_t i = 0; i < payload.size(); ++i)
    payload.data()[i] = static_cast<std::byte>(i % 251);
  const SharedBytes whole(std::move(payload));
  (*met_.front())->send({whole});
  (*awaited_.front())->receive(Buffer(whole.size()));
  ASSERT_TRUE(run_until([&] { return received.size() == 1 && sent; }));
  EXPECT_TRUE(same_bytes(received.front().bytes(), whole.view()));
}

// The worker is there, and knows no link by that secret: what is said to it nobody hears.
TEST_F(UcxMeeting, WhoDoesNotKnowTheSecretHasNoLink) {
  BulkWay way = await(client_.address(path_), 500ms);
  way.secret = random_secret(kBulkSecretBytes);
  meet(way, 500ms);
  ASSERT_TRUE(run_until([&] { return awaited_.size() == 1 && met_.size() == 1; }));
  EXPECT_EQ(awaited_.front().error().code, ErrorCode::kDeadline);
  EXPECT_EQ(met_.front().error().code, ErrorCode::kDeadline);
}

// The address of a third process, which is told nothing and gets no payload.
TEST_F(UcxMeeting, AThirdProcessesAddressIsNoLink) {
  UcxBackend third(runtime_, false);
  BulkWay way = await(client_.address(path_), 500ms);
  way.address = third.address(path_);
  meet(way, 500ms);
  ASSERT_TRUE(run_until([&] { return awaited_.size() == 1 && met_.size() == 1; }));
  EXPECT_FALSE(awaited_.front().has_value());
  EXPECT_EQ(met_.front().error().code, ErrorCode::kDeadline);
}

// UCX would end the process over some of these.
TEST_F(UcxMeeting, AnAddressOfAnotherVersionOrThatIsNoneNeverReachesUcx) {
  const std::string good = server_.address(path_);
  EXPECT_TRUE(client_.reaches(path_, good));
  const std::size_t line = good.find('\n');
  const std::vector<std::string> others = {"", std::string(kBulkAddressBytesMax, '\0'),
                                           good.substr(0, line + 1), good.substr(line + 1),
                                           "UCX 1.99.0" + good.substr(line)};
  for (const std::string& address : others) {
    EXPECT_FALSE(client_.reaches(path_, address));
    meet({.backend = "ucx", .address = address, .secret = random_secret(kBulkSecretBytes)});
  }
  ASSERT_TRUE(run_until([&] { return met_.size() == others.size(); }));
  for (const auto& link : met_) EXPECT_EQ(link.error().code, ErrorCode::kCorrupt);
}

TEST_F(UcxMeeting, WhoIsDroppedWhileItIsMadeLeavesNothingBehind) {
  auto backend = std::make_unique<UcxBackend>(runtime_, false);
  const auto made =
      backend->await(path_, {.backend = "ucx", .address = server_.address(path_), .secret = {}},
                     50ms, [](const auto& link) { EXPECT_FALSE(link.has_value()); });
  EXPECT_TRUE(made.has_value());
  backend.reset();
  runtime_.run_until([] { return false; }, 200ms);
}

TEST_F(UcxMeeting, ItIsForNetworksThatAreTrustedAlone) {
  const std::string good = client_.address(path_);
  for (const char* other : {"127.0.0.1", "10.0.0.2"}) {
    const BulkPath path{.own_host = "127.0.0.1", .other_host = other};
    EXPECT_TRUE(client_.address(path).empty());
    EXPECT_FALSE(client_.reaches(path, good));
    EXPECT_FALSE(server_.await(path, {.backend = "ucx", .address = good, .secret = {}}, 1s,
                               [](const auto&) {}));
  }
}

// Whatever the address by which its two ends met.
TEST_F(UcxMeeting, WithinAMachineItListensOnLoopbackAlone) {
  const BulkPath near{.own_host = "10.0.0.1", .other_host = "10.0.0.1", .is_trusted = true};
  EXPECT_FALSE(client_.address(near).empty());
  EXPECT_EQ(client_.address(near), client_.address(path_));
}

}  // namespace
}  // namespace swarmline
