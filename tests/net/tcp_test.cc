// What only TCP can show: hostile bytes, half-dead peers, system calls.
#include <fcntl.h>
#include <fstream>
#include <optional>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>

#include <gtest/gtest.h>

#include "engine/net/frame_reader.h"
#include "engine/net/tcp/held_address.h"
#include "engine/net/tcp/tcp_network.h"
#include "tests/golden/golden.h"
#include "tests/net/raw_socket.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

std::string golden(const std::string& name) {
  return read_golden("frames/" + name + ".bin");
}

class Tcp : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto bound = network_.listen({"127.0.0.1", 0}, [this](auto connection) {
      connection_ = connection;
      connection->start({.on_frame = [this](Frame frame) { frames_.push_back(std::move(frame)); },
                         .on_closed = [this](Error error) { closed_ = std::move(error); }});
    });
    ASSERT_TRUE(bound.has_value());
    address_ = *bound;
  }
  bool run_until(const std::function<bool()>& done) { return runtime_.run_until(done, 20s); }
  RawSocket connect_raw() {
    RawSocket socket = RawSocket::connect(address_);
    EXPECT_TRUE(run_until([this] { return connection_ != nullptr; }));
    return socket;
  }

  AsioRuntime runtime_;
  TcpNetwork network_{runtime_, {}};
  Address address_;
  std::shared_ptr<Connection> connection_;
  std::vector<Frame> frames_;
  std::optional<Error> closed_;
};

TEST(HeldAddressTest, NobodyAnswersThereUntilSomebodyListens) {
  HeldAddress held;
  const auto address = held.hold({"127.0.0.1", 0});
  ASSERT_TRUE(address.has_value()) << address.error().what;
  EXPECT_FALSE(RawSocket::answers(*address));

  AsioRuntime runtime;
  TcpNetwork network(runtime, {});
  const auto bound = network.listen(*address, [](auto) {});
  ASSERT_TRUE(bound.has_value()) << bound.error().what;
  EXPECT_EQ(*bound, *address);
  EXPECT_TRUE(RawSocket::answers(*address));
}

TEST(HeldAddressTest, AnAddressWhereSomebodyListensCannotBeHeld) {
  AsioRuntime runtime;
  TcpNetwork network(runtime, {});
  const auto bound = network.listen({"127.0.0.1", 0}, [](auto) {});
  ASSERT_TRUE(bound.has_value()) << bound.error().what;
  HeldAddress held;
  const auto address = held.hold(*bound);
  ASSERT_FALSE(address.has_value());
  EXPECT_EQ(address.error().code, ErrorCode::kIo);
  EXPECT_NE(address.error().what.find("cannot listen on " + to_string(*bound)), std::string::npos);
}

TEST_F(Tcp, GoldenBytesFromAPlainSocketAreFrames) {
  RawSocket raw = connect_raw();
  raw.send(golden("message") + golden("tensor").substr(0, 60));
  ASSERT_TRUE(run_until([&] { return frames_.size() == 1; }));
  raw.send(golden("tensor").substr(60));
  ASSERT_TRUE(run_until([&] { return frames_.size() == 2; }));
  EXPECT_EQ(frames_[0].meta, "meta bytes");
  EXPECT_EQ(as_text(frames_[1].received_payload()), golden("tensor").substr(41));
}

TEST_F(Tcp, SentFramesAreTheGoldenBytes) {
  RawSocket raw = connect_raw();
  connection_->send({.kind = 3, .meta = "meta bytes"});
  connection_->send({});
  runtime_.run_until([&] { return connection_->unsent_bytes() == 0; }, 5s);
  const std::string expected = golden("message") + golden("empty");
  EXPECT_EQ(raw.receive(expected.size()), expected);
}

TEST_F(Tcp, CorruptedBytesAreCountedAndEndOnlyTheirConnection) {
  std::uint64_t bad = 0;
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1\r\nHost: example.org\r\n\r\n") + std::string(40, ' '),
        std::string(40, '\0'), golden("message") + std::string(100, 'x'), [] {
          std::string flipped = golden("request");
          flipped[9] ^= 1;
          return flipped;
        }()}) {
    connection_.reset();
    closed_.reset();
    RawSocket raw = connect_raw();
    raw.send(bytes);
    ASSERT_TRUE(run_until([&] { return closed_.has_value(); }));
    EXPECT_EQ(closed_->code, ErrorCode::kCorrupt) << closed_->what;
    EXPECT_EQ(network_.counters().bad_streams, ++bad);
    EXPECT_EQ(raw.receive(1), "") << "the socket is closed";
  }
  EXPECT_EQ(frames_.size(), 1U) << "the good frame before the bad bytes";
  connection_.reset();
  closed_.reset();
  RawSocket raw = connect_raw();
  raw.send(golden("message"));
  ASSERT_TRUE(run_until([&] { return frames_.size() == 2; }));
}

// Frames of no more than a header cost their receiver more than their bytes do.
TEST_F(Tcp, WhoSendsManySmallFramesLetsOthersHaveTheirTurn) {
  RawSocket raw = connect_raw();
  const std::string frame = golden("empty");
  constexpr std::size_t kFrames = 40'000;
  std::string burst;
  for (std::size_t i = 0; i < kFrames; ++i) burst += frame;
  std::thread sender([&] { raw.send(burst); });
  std::size_t seen = 0, most_at_once = 0;
  std::function<void()> turn = [&] {
    most_at_once = std::max(most_at_once, frames_.size() - seen);
    seen = frames_.size();
    if (seen < kFrames) runtime_.post(turn);
  };
  turn();
  EXPECT_TRUE(run_until([&] { return seen == kFrames; }));
  sender.join();
  EXPECT_LE(most_at_once,
            TcpNetwork::kHandlerFramesMax + FrameReader::kStagingBytes / frame.size());
}

TEST_F(Tcp, AResetIsAPeerGone) {
  RawSocket raw = connect_raw();
  raw.reset();
  ASSERT_TRUE(run_until([&] { return closed_.has_value(); }));
  EXPECT_EQ(closed_->code, ErrorCode::kPeerGone);
}

TEST_F(Tcp, AnEndWithinAFrameIsAPeerGoneAndNoFrame) {
  RawSocket raw = connect_raw();
  raw.send(golden("tensor").substr(0, 100));
  raw.close();
  ASSERT_TRUE(run_until([&] { return closed_.has_value(); }));
  EXPECT_EQ(closed_->code, ErrorCode::kPeerGone);
  EXPECT_NE(closed_->what.find("within a frame"), std::string::npos) << closed_->what;
  EXPECT_TRUE(frames_.empty());
}

TEST_F(Tcp, WritingToAResetPeerIsAPeerGone) {
  RawSocket raw = connect_raw();
  connection_->send({.kind = 1, .payload = {SharedBytes(Buffer::zeroed(64 << 20))}});
  runtime_.run_until([] { return false; }, 20ms);
  EXPECT_GT(connection_->unsent_bytes(), 0U);
  raw.reset();
  ASSERT_TRUE(run_until([&] { return closed_.has_value(); }));
  EXPECT_EQ(closed_->code, ErrorCode::kPeerGone);
  EXPECT_EQ(connection_->unsent_bytes(), 0U);
}

TEST_F(Tcp, CloseIsReportedWhenTheOtherEndHasReadEverything) {
  RawSocket raw = connect_raw();
  const std::string expected = golden("message");
  raw.send(golden("tensor") + golden("tensor"));  // unread by us: must not reset the connection
  connection_->send({.kind = 3, .meta = "meta bytes"});
  connection_->close();
  runtime_.run_until([] { return false; }, 50ms);
  EXPECT_FALSE(closed_.has_value());
  EXPECT_EQ(raw.receive(expected.size()), expected);
  EXPECT_EQ(raw.receive(1), "");
  raw.close();
  ASSERT_TRUE(run_until([&] { return closed_.has_value(); }));
  EXPECT_EQ(closed_->code, ErrorCode::kStopped);
}

TEST_F(Tcp, ClosingWithAPeerThatReadsNothingEndsAfterOneSecond) {
  RawSocket raw = connect_raw();
  connection_->send({.kind = 1, .payload = {SharedBytes(Buffer::zeroed(64 << 20))}});
  const Instant start = runtime_.now();
  connection_->close();
  ASSERT_TRUE(run_until([&] { return closed_.has_value(); }));
  EXPECT_EQ(closed_->code, ErrorCode::kStopped);
  EXPECT_GE(runtime_.now() - start, 900ms);
  EXPECT_LT(runtime_.now() - start, 5s);
}

TEST_F(Tcp, AHeaderThatAnnouncesAGigabyteCostsNothingUntilItComes) {
  RawSocket raw = connect_raw();
  raw.send(as_text(encode_header(
      {.kind = 1, .payload_bytes = Limits::frame_payload_bytes_max, .meta_hash = hash_meta({})})));
  raw.send(std::string(1000, 'p'));
  ASSERT_TRUE(run_until([&] { return connection_->counters().bytes_received == 1040; }));
  std::ifstream statm("/proc/self/statm");
  std::uint64_t total_pages = 0, resident_pages = 0;
  statm >> total_pages >> resident_pages;
  EXPECT_LT(resident_pages * 4096, 512 * kMiB);
  raw.close();
  ASSERT_TRUE(run_until([&] { return closed_.has_value(); }));
}

TEST_F(Tcp, FramesOfOneBurstLeaveInOneGatheredWrite) {
  RawSocket raw = connect_raw();
  std::string expected;
  for (int i = 0; i < 200; ++i) {
    connection_->send({.kind = 3, .meta = "meta bytes"});
    expected += golden("message");
  }
  EXPECT_EQ(network_.counters().write_calls, 0U);
  ASSERT_TRUE(run_until([&] { return connection_->unsent_bytes() == 0; }));
  EXPECT_EQ(network_.counters().write_calls, 1U);
  EXPECT_EQ(raw.receive(expected.size()), expected);
}

TEST_F(Tcp, WhatIsLentLeavesAtOnceFromWhereItLies) {
  RawSocket raw = connect_raw();
  const std::string bytes(20'000, 'p');
  connection_->send_lent({.kind = 3, .meta = "m", .payload = {SharedBytes::lent(as_bytes(bytes))}});
  EXPECT_EQ(network_.counters().write_calls, 1U);
  EXPECT_EQ(connection_->unsent_bytes(), 0U);
  const std::string got = raw.receive(kFrameHeaderBytes + 1 + bytes.size());
  EXPECT_EQ(got.substr(kFrameHeaderBytes), "m" + bytes);
}

TEST_F(Tcp, LendingToAResetPeerIsAPeerGone) {
  RawSocket raw = connect_raw();
  raw.reset();  // seen by nobody so far
  const std::string bytes(20'000, 'p');
  connection_->send_lent({.kind = 3, .payload = {SharedBytes::lent(as_bytes(bytes))}});
  ASSERT_TRUE(run_until([&] { return closed_.has_value(); }));
  EXPECT_EQ(closed_->code, ErrorCode::kPeerGone);
  EXPECT_EQ(connection_->unsent_bytes(), 0U);
}

TEST_F(Tcp, ConnectingToAPeerThatNeverAnswersEndsAtTheDeadline) {
  // A backlog of 0 holds one connection; the next handshake gets no answer.
  const auto [listener, address] = RawSocket::listen(0);
  std::vector<std::shared_ptr<Connection>> kept;
  std::optional<Error> error;
  for (int i = 0; i < 4; ++i) {
    network_.connect(address, 200ms, [&](auto connection) {
      if (connection) return kept.push_back(*connection);
      error = connection.error();
    });
  }
  ASSERT_TRUE(run_until([&] { return error.has_value(); }));
  EXPECT_EQ(error->code, ErrorCode::kDeadline);
  EXPECT_NE(error->what.find("did not answer within 0.2 s"), std::string::npos) << error->what;
}

TEST_F(Tcp, WithoutADescriptorLeftItIsThisEndThatCanNotConnect) {
  // UBSan needs a descriptor to look at a type for the first time: here it sees an error's.
  std::optional<Error> refused;
  network_.connect({"127.0.0.1", 1}, 5s, [&](auto connected) { refused = connected.error(); });
  ASSERT_TRUE(run_until([&] { return refused.has_value(); }));
  EXPECT_EQ(refused->code, ErrorCode::kPeerGone) << refused->what;
  const int next = ::dup(0);
  ASSERT_GE(next, 0);
  ::close(next);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none_left = before;
  none_left.rlim_cur = static_cast<rlim_t>(next);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none_left), 0);
  std::optional<Result<std::shared_ptr<Connection>>> result;
  network_.connect(address_, 5s, [&](auto connected) { result = std::move(connected); });
  const bool ended = run_until([&] { return result.has_value(); });
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_TRUE(ended);
  ASSERT_FALSE(result->has_value());
  EXPECT_EQ(result->error().code, ErrorCode::kIo) << result->error().what;
}

TEST_F(Tcp, NamesAreResolvedAndUnknownOnesAreNotFound) {
  std::shared_ptr<Connection> connected;
  network_.connect({"localhost", address_.port}, 10s, [&](auto connection) {
    ASSERT_TRUE(connection.has_value()) << connection.error().what;
    connected = *connection;
  });
  ASSERT_TRUE(run_until([&] { return connected != nullptr; }));
  EXPECT_EQ(connected->remote(), "localhost:" + std::to_string(address_.port));

  std::optional<Error> error;
  network_.connect({"no-such-host.invalid", 1}, 15s,
                   [&](auto connection) { error = connection.error(); });
  ASSERT_TRUE(run_until([&] { return error.has_value(); }));
  EXPECT_TRUE(error->code == ErrorCode::kNotFound || error->code == ErrorCode::kDeadline)
      << error->what;
}

TEST_F(Tcp, SocketsAreNotInheritedByChildren) {
  RawSocket raw = connect_raw();
  int sockets = 0;
  for (int fd = 3; fd < 256; ++fd) {
    const int flags = fcntl(fd, F_GETFD);
    if (flags < 0) continue;
    int type = 0;
    socklen_t size = sizeof(type);
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_STREAM) continue;
    ++sockets;
    EXPECT_NE(flags & FD_CLOEXEC, 0) << "descriptor " << fd;
  }
  EXPECT_GE(sockets, 3);
}

TEST_F(Tcp, DestroyingTheNetworkInsideACallbackIsSafe) {
  auto network = std::make_unique<TcpNetwork>(runtime_, TcpOptions{});
  bool called = false;
  network->connect(address_, 5s, [&](auto connection) {
    ASSERT_TRUE(connection.has_value());
    (*connection)
        ->start({.on_frame =
                     [&](Frame) {
                       network.reset();
                       called = true;
                     },
                 .on_closed = [](Error) { ADD_FAILURE() << "no callback after destruction"; }});
  });
  ASSERT_TRUE(run_until([&] { return connection_ != nullptr; }));
  connection_->send({.kind = 1});
  connection_->send({.kind = 2});
  ASSERT_TRUE(run_until([&] { return called && closed_.has_value(); }));
  EXPECT_EQ(closed_->code, ErrorCode::kPeerGone);
}

TEST_F(Tcp, DestroyingTheNetworkDropsConnectsInFlight) {
  const auto [listener, address] = RawSocket::listen(0);
  auto network = std::make_unique<TcpNetwork>(runtime_, TcpOptions{});
  for (int i = 0; i < 4; ++i) {
    network->connect(address, 50ms, [](auto) { ADD_FAILURE() << "called after destruction"; });
  }
  network.reset();
  runtime_.run_until([] { return false; }, 100ms);
}

}  // namespace
}  // namespace swarmline
