// Links of shared memory: who comes to the socket that has no business there, and memory that lies.
#include <array>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "engine/identity/secrets.h"
#include "engine/net/shm/shm_backend.h"
#include "engine/net/shm/shm_ring.h"
#include "engine/net/shm/shm_segment.h"
#include "engine/runtime/asio_runtime.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

struct TestRing {
  std::array<std::byte, 1000> bytes{};
  ShmRingHead head{};
  ShmRingWriter writer{head, bytes};
  ShmRingReader reader{head, bytes};
};

TEST(ShmRing, WhatIsReadIsWhatWasWritten) {
  TestRing ring;
  Rng rng(3);
  std::size_t written = 0, read = 0;
  const auto byte_at = [](std::size_t at) { return static_cast<std::byte>(at * 7 + at / 256); };
  while (read < 100'000) {
    std::array<std::byte, 600> some;
    const std::size_t size = rng.below(some.size());
    for (std::size_t i = 0; i < size; ++i) some.at(i) = byte_at(written + i);
    written += ring.writer.write({some.data(), size});
    const std::size_t got = ring.reader.read({some.data(), rng.below(some.size())});
    for (std::size_t i = 0; i < got; ++i) ASSERT_EQ(some.at(i), byte_at(read + i));
    read += got;
    ASSERT_LE(written - read, ring.bytes.size());
  }
}

TEST(ShmRing, WhoWaitsIsTold) {
  TestRing ring;
  std::array<std::byte, 1000> all{};
  EXPECT_TRUE(ring.reader.wait());
  EXPECT_EQ(ring.writer.write(all), all.size());
  EXPECT_TRUE(ring.writer.wakes());
  EXPECT_FALSE(ring.writer.wakes());
  EXPECT_FALSE(ring.reader.wait());
  EXPECT_TRUE(ring.writer.wait());
  EXPECT_EQ(ring.reader.read({all.data(), 100}), 100U);
  EXPECT_FALSE(ring.reader.wakes(false)) << "a tenth is not worth it";
  EXPECT_EQ(ring.reader.read({all.data(), 500}), 500U);
  EXPECT_TRUE(ring.reader.wakes(false));
  EXPECT_FALSE(ring.writer.wait());
}

TEST(ShmRing, NumbersThatCanNotBeAreFoundOut) {
  TestRing ring;
  std::array<std::byte, 10> some{};
  ring.head.written.store(1001);
  EXPECT_EQ(ring.reader.read(some), 0U);
  EXPECT_TRUE(ring.reader.is_broken());
  ring.head.read.store(1);  // of nothing that was written
  EXPECT_EQ(ring.writer.write(some), 0U);
  EXPECT_TRUE(ring.writer.is_broken());
}

TEST(ShmSegment, OfAnotherSizeOrThatMayShrinkIsNone) {
  const auto made = [](std::size_t bytes, bool sealed) {
    const int descriptor = ::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    EXPECT_EQ(::ftruncate(descriptor, static_cast<off_t>(bytes)), 0);
    if (sealed)
      EXPECT_EQ(::fcntl(descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
    return ShmSegment::open(descriptor).has_value();
  };
  const std::size_t right = 2 * (kShmRingBytes + 4096);
  EXPECT_TRUE(made(right, true));
  EXPECT_FALSE(made(right, false));
  EXPECT_FALSE(made(right - 4096, true));
  EXPECT_FALSE(ShmSegment::open(::open("/dev/zero", O_RDWR | O_CLOEXEC)).has_value());
}

// An abstract Unix socket, as anybody on the machine can have one.
class RawUnix {
 public:
  RawUnix() : socket_(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {}
  ~RawUnix() { ::close(socket_); }
  RawUnix(const RawUnix&) = delete;
  RawUnix& operator=(const RawUnix&) = delete;

  bool connect(const std::string& name) {
    const auto [address, size] = at(name);
    return ::connect(socket_, reinterpret_cast<const sockaddr*>(&address), size) == 0;
  }
  void listen(const std::string& name) {
    const auto [address, size] = at(name);
    ASSERT_EQ(::bind(socket_, reinterpret_cast<const sockaddr*>(&address), size), 0);
    ASSERT_EQ(::listen(socket_, 4), 0);
  }
  bool has_caller() const {
    const int caller = ::accept4(socket_, nullptr, nullptr, SOCK_NONBLOCK);
    if (caller >= 0) ::close(caller);
    return caller >= 0;
  }
  void say(const std::string& bytes) const {
    EXPECT_EQ(::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  bool is_closed() const {
    char byte = 0;
    const ssize_t got = ::recv(socket_, &byte, 1, MSG_DONTWAIT);
    return got == 0 || (got < 0 && errno != EAGAIN);
  }

 private:
  static std::pair<sockaddr_un, socklen_t> at(const std::string& name) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    return {address, static_cast<socklen_t>(sizeof(sa_family_t) + 1 + name.size())};
  }
  const int socket_;
};

class ShmMeeting : public ::testing::Test {
 protected:
  BulkWay await() {
    return backend_
        .await(path_, {}, 10s, [this](auto link) { awaited_.emplace_back(std::move(link)); })
        .value();
  }
  void meet(const BulkWay& way, Duration timeout = 5s) {
    backend_.meet(path_, way, timeout, [this](auto link) { met_.emplace_back(std::move(link)); });
  }
  bool run_until(const std::function<bool()>& done, Duration limit = 10s) {
    return runtime_.run_until(done, limit);
  }
  void expect_not_met(ErrorCode code) {
    ASSERT_TRUE(run_until([&] { return met_.size() == 1; }));
    ASSERT_FALSE(met_.front().has_value());
    EXPECT_EQ(met_.front().error().code, code) << met_.front().error().what;
  }

  const BulkPath path_{.own_host = "127.0.0.1", .other_host = "127.0.0.1"};
  AsioRuntime runtime_;
  ShmBackend backend_{runtime_};
  std::vector<Result<std::shared_ptr<BulkLink>>> awaited_, met_;
};

TEST_F(ShmMeeting, WhoDoesNotKnowTheSecretIsClosedAndTheOtherOneMeets) {
  const BulkWay way = await();
  RawUnix guesser, talker;
  ASSERT_TRUE(guesser.connect(way.address) && talker.connect(way.address));
  guesser.say(std::string(kBulkSecretBytes, 'x'));
  talker.say("hello");
  ASSERT_TRUE(run_until([&] { return guesser.is_closed() && talker.is_closed(); }));
  EXPECT_EQ(backend_.counters().refused, 2U);
  EXPECT_TRUE(awaited_.empty());
  meet(way);
  ASSERT_TRUE(run_until([&] { return awaited_.size() == 1 && met_.size() == 1; }));
  EXPECT_TRUE(awaited_.front().has_value() && met_.front().has_value());
  meet(way);  // a secret is good once
  ASSERT_TRUE(run_until([&] { return met_.size() == 2; }));
  EXPECT_FALSE(met_.back().has_value());
}

TEST_F(ShmMeeting, WhoSaysNothingGivesWayToOthers) {
  const BulkWay way = await();
  std::vector<std::unique_ptr<RawUnix>> silent;
  for (std::size_t i = 0; i < kShmGreetingsMax + 5; ++i) {
    silent.push_back(std::make_unique<RawUnix>());
    ASSERT_TRUE(silent.back()->connect(way.address));
  }
  ASSERT_TRUE(run_until([&] { return backend_.counters().refused == 5; }));
  meet(way);
  ASSERT_TRUE(run_until([&] { return awaited_.size() == 1 && met_.size() == 1; }));
  EXPECT_TRUE(awaited_.front().has_value() && met_.front().has_value());
}

// An address that is not the other end's own: no socket of another service is ever dialled.
TEST_F(ShmMeeting, NoOtherSocketThanOneOfOursIsDialled) {
  const std::string name = "another-service-" + std::to_string(::getpid());
  RawUnix service;
  service.listen(name);
  meet({.backend = "shm", .address = name, .secret = random_secret(kBulkSecretBytes)});
  expect_not_met(ErrorCode::kCorrupt);
  EXPECT_FALSE(service.has_caller());
}

TEST_F(ShmMeeting, ASocketThatNobodyHasIsNoLink) {
  meet({.backend = "shm",
        .address = "swarmline-00112233445566778899aabbccddeeff",
        .secret = random_secret(kBulkSecretBytes)});
  expect_not_met(ErrorCode::kPeerGone);
}

// Another process of ours is there, which awaits no such link.
TEST_F(ShmMeeting, TheSocketOfAThirdProcessIsNoLink) {
  ShmBackend third(runtime_);
  const BulkWay thirds =
      third.await(path_, {}, 5s, [](const auto& link) { EXPECT_FALSE(link.has_value()); }).value();
  BulkWay way = await();
  way.address = thirds.address;
  meet(way);
  expect_not_met(ErrorCode::kPeerGone);
  EXPECT_EQ(third.counters().refused, 1U);
}

TEST_F(ShmMeeting, ASocketThatGivesNoMemoryIsGivenUpInTime) {
  const std::string name = "swarmline-ffeeddccbbaa99887766554433221100";
  RawUnix silent;
  silent.listen(name);
  meet({.backend = "shm", .address = name, .secret = random_secret(kBulkSecretBytes)}, 100ms);
  expect_not_met(ErrorCode::kDeadline);
}

TEST_F(ShmMeeting, NobodyComes) {
  std::vector<Result<std::shared_ptr<BulkLink>>> made;
  ASSERT_TRUE(
      backend_.await(path_, {}, 50ms, [&](auto link) { made.emplace_back(std::move(link)); }));
  ASSERT_TRUE(run_until([&] { return made.size() == 1; }));
  ASSERT_FALSE(made.front().has_value());
  EXPECT_EQ(made.front().error().code, ErrorCode::kDeadline);
}

}  // namespace
}  // namespace swarmline
