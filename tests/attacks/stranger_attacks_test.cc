// Attacks of whoever reaches a port and has not said who it is, over TCP.
#include <algorithm>
#include <deque>
#include <fstream>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "engine/net/message_pieces.h"
#include "engine/net/tcp/tcp_network.h"
#include "pipeline/protocol/message_bounds.h"
#include "pipeline/protocol/message_kinds.h"
#include "tests/harness/mark_expected.h"
#include "tests/harness/sanitized.h"
#include "tests/net/raw_socket.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kPageBytes = 4096;

std::uint64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::uint64_t total_pages = 0, resident_pages = 0;
  statm >> total_pages >> resident_pages;
  return resident_pages * kPageBytes;
}

std::string header_of(MessageKind kind, std::uint64_t meta_bytes, std::uint64_t payload_bytes) {
  return std::string(as_text(encode_header({.kind = static_cast<std::uint16_t>(kind),
                                            .meta_bytes = static_cast<std::uint32_t>(meta_bytes),
                                            .payload_bytes = payload_bytes,
                                            .meta_hash = hash_meta({})})));
}

std::string bytes_of(const Frame& frame) {
  std::string bytes(as_text(encode_header(frame.header())));
  bytes += frame.meta;
  for (const SharedBytes& part : frame.payload) bytes += as_text(part.view());
  return bytes;
}

class StrangerAttack : public ::testing::Test {
 protected:
  struct Accepted {
    std::shared_ptr<Connection> connection;
    std::vector<Frame> frames;
    std::optional<Error> closed;
  };

  // A door as a coordinator's, with a shorter patience.
  void open(Strangers::Bounds bounds) {
    network_ = std::make_unique<TcpNetwork>(runtime_, TcpOptions{.strangers = bounds});
    const auto bound = network_->listen({"127.0.0.1", 0}, [this](auto connection) {
      auto& one = accepted_.emplace_back(std::make_unique<Accepted>());
      one->connection = connection;
      connection->start({.on_frame = [this, &it = *one](Frame frame) { on_frame(it, frame); },
                         .on_closed = [&it = *one](Error error) { it.closed = std::move(error); },
                         .stranger = bounds_before_hello()});
    });
    ASSERT_TRUE(bound.has_value());
    address_ = *bound;
  }
  void on_frame(Accepted& from, Frame& frame) {
    if (kind_of(frame) == MessageKind::kHello) from.connection->believe(bounds_of_peer());
    if (kind_of(frame) == MessageKind::kLinkHello) from.connection->believe(bounds_of_mate());
    from.frames.push_back(std::move(frame));
  }
  bool run_until(const std::function<bool()>& done) { return runtime_.run_until(done, 30s); }
  RawSocket connect() {
    const std::size_t before = accepted_.size();
    RawSocket socket = RawSocket::connect(address_);
    EXPECT_TRUE(run_until([&] { return accepted_.size() > before; }));
    return socket;
  }
  Accepted& newest() { return *accepted_.back(); }
  bool is_refused(std::string_view bytes) {
    const RawSocket raw = connect();
    raw.send(bytes);
    return run_until([&] { return newest().closed.has_value(); }) &&
           newest().closed->code == ErrorCode::kCorrupt && newest().frames.empty();
  }

  AsioRuntime runtime_;
  std::unique_ptr<TcpNetwork> network_;
  std::vector<std::unique_ptr<Accepted>> accepted_;
  Address address_;
};

TEST_F(StrangerAttack, AnAnnouncedMetaOfMegabytesIsRefusedByItsHeader) {
  open({});
  const MarkExpected mark("frame_reader.no_room");
  for (const MessageKind kind : {MessageKind::kStatusRequest, MessageKind::kStopRequest,
                                 MessageKind::kLinkHello, MessageKind::kReport})
    EXPECT_TRUE(is_refused(header_of(kind, Limits::stranger_meta_bytes_max + 1, 0)));
  EXPECT_TRUE(is_refused(header_of(MessageKind::kHello, Limits::hello_meta_bytes_max + 1, 0)));
  EXPECT_EQ(network_->counters().bad_streams, 5U);
}

TEST_F(StrangerAttack, NoKindHasAPayloadBeforeTheHello) {
  open({});
  for (unsigned kind = 0; kind < 256; ++kind)
    EXPECT_TRUE(is_refused(header_of(static_cast<MessageKind>(kind), 0, 1))) << kind;
  EXPECT_EQ(network_->counters().bad_streams, 256U);
}

TEST_F(StrangerAttack, WhatFollowsAHelloInTheSameBytesIsTakenAsThePeersThatItIs) {
  open({});
  const RawSocket raw = connect();
  const Frame chunk = make_frame(MessageKind::kReduceChunk, wire::ReduceChunk(),
                                 {SharedBytes(Buffer::zeroed(1000))});
  raw.send(bytes_of(make_frame(MessageKind::kLinkHello, wire::LinkHello())) + bytes_of(chunk) +
           bytes_of(chunk));
  ASSERT_TRUE(run_until([&] { return newest().frames.size() == 3; }));
  EXPECT_FALSE(newest().closed.has_value());
}

TEST_F(StrangerAttack, AfterItsHelloOnlyWhatCarriesTensorsMayHaveAPayload) {
  open({});
  const std::string hello = bytes_of(make_frame(MessageKind::kHello, wire::Hello()));
  const auto ends = [&](const std::string& bytes) {
    const RawSocket raw = connect();
    raw.send(hello + bytes);
    return run_until([&] { return newest().closed.has_value(); });
  };
  EXPECT_TRUE(ends(header_of(MessageKind::kHeartbeat, 0, 1)));
  EXPECT_TRUE(ends(header_of(MessageKind::kForward, 0, 1 << 20))) << "no coordinator takes tensors";
  EXPECT_TRUE(ends(header_of(MessageKind::kHeartbeat, Limits::control_meta_bytes_max + 1, 0)));
  EXPECT_TRUE(
      ends(header_of(MessageKind::kCheckpointPiece, 0, Limits::checkpoint_piece_bytes + 1)));
  EXPECT_EQ(network_->counters().bad_streams, 4U);
}

TEST_F(StrangerAttack, SlowLorisIsClosedHoweverOftenItSendsAByte) {
  open({.patience = 200ms});
  const MarkExpected mark("tcp.silent_stranger");
  const RawSocket raw = connect();
  const std::string hello = bytes_of(make_frame(MessageKind::kStatusRequest, wire::Phase()));
  std::size_t sent = 0;
  while (!newest().closed && sent < hello.size()) {
    raw.send(hello.substr(sent++, 1));
    runtime_.run_until([&] { return newest().closed.has_value(); }, 20ms);
  }
  EXPECT_LT(sent, hello.size()) << "a byte every 20 ms is no frame in 200 ms";
  ASSERT_TRUE(newest().closed.has_value());
  EXPECT_EQ(newest().closed->code, ErrorCode::kDeadline);
  EXPECT_EQ(network_->counters().silent_strangers, 1U);
}

TEST_F(StrangerAttack, WhoHasSaidHelloMayBeSilent) {
  open({.patience = 50ms});
  const RawSocket raw = connect();
  raw.send(bytes_of(make_frame(MessageKind::kHello, wire::Hello())));
  ASSERT_TRUE(run_until([&] { return !newest().frames.empty(); }));
  runtime_.run_until([] { return false; }, 200ms);
  EXPECT_FALSE(newest().closed.has_value());
  EXPECT_EQ(network_->counters().silent_strangers, 0U);
}

// Each of them would hold a descriptor, and a buffer, for ever.
TEST_F(StrangerAttack, TenThousandHalfOpenConnectionsLeaveRoomForAnHonestOne) {
  constexpr int kConnections = 10'000, kHeld = 64;
  open({.connections_max = kHeld, .of_host_max = kHeld, .patience = 60s});
  const MarkExpected mark("tcp.stranger_crowded_out");
  std::deque<RawSocket> held;
  std::size_t gone = 0;
  for (int i = 0; i < kConnections; ++i) {
    held.push_back(RawSocket::connect(address_));
    held.back().send("S");
    ASSERT_TRUE(run_until([&] { return accepted_.size() == held.size() + gone; }));
    if (held.size() < 2 * kHeld) continue;
    held.pop_front();
    ++gone;
  }
  const auto is_open = [](const auto& one) { return !one->closed; };
  EXPECT_LE(std::ranges::count_if(accepted_, is_open), kHeld + 1);
  const RawSocket honest = connect();
  honest.send(bytes_of(make_frame(MessageKind::kHello, wire::Hello())));
  ASSERT_TRUE(run_until([&] { return newest().frames.size() == 1; }));
  EXPECT_FALSE(newest().closed.has_value());
  EXPECT_GE(network_->counters().crowded_out, 1000U);
}

// Hellos may say what a peer holds, up to 32 MiB: all strangers together get no more than so much.
TEST_F(StrangerAttack, ManyHalfSentHellosShareOneBudget) {
  constexpr std::uint64_t kBudget = 8 * kMiB;
  open({.held_bytes_max = kBudget});
  const MarkExpected mark("tcp.greedy_stranger");
  const std::uint64_t before = resident_bytes();
  const std::string part =
      header_of(MessageKind::kHello, kFrameMetaBytesTaken, 0) + std::string(kMiB, 'h');
  std::vector<RawSocket> sockets;
  for (int i = 0; i < 40; ++i) {
    sockets.push_back(connect());
    sockets.back().send(part);
    const auto got = [&] {
      return newest().closed || newest().connection->counters().bytes_received == part.size();
    };
    ASSERT_TRUE(run_until(got));
  }
  const auto is_open = [](const auto& one) { return !one->closed; };
  EXPECT_LE(std::ranges::count_if(accepted_, is_open), 8);
  EXPECT_GE(network_->counters().greedy_strangers, 32U);
  EXPECT_LT(resident_bytes(), before + kBytesTakenPerByte * 64 * kMiB);
}

// ... however they are cut.
TEST_F(StrangerAttack, HellosInPiecesShareOneBudgetToo) {
  constexpr std::uint64_t kBudget = 8 * kMiB;
  open({.held_bytes_max = kBudget});
  const MarkExpected mark("tcp.greedy_stranger");
  Frame piece{.kind = static_cast<std::uint16_t>(MessageKind::kHello),
              .flags = kFrameFlagMore,
              .meta = std::string(kMiB / 4, 'h'),
              .payload = {}};
  std::string part;
  for (int i = 0; i < 4; ++i) part += bytes_of(piece);
  std::vector<RawSocket> sockets;
  for (int i = 0; i < 40; ++i) {
    sockets.push_back(connect());
    sockets.back().send(part);
    const auto got = [&] {
      return newest().closed || newest().connection->counters().bytes_received == part.size();
    };
    ASSERT_TRUE(run_until(got));
  }
  const auto is_open = [](const auto& one) { return !one->closed; };
  EXPECT_LE(std::ranges::count_if(accepted_, is_open), 9);
  EXPECT_GE(network_->counters().greedy_strangers, 31U);
}

// Asks and asks, and never reads an answer.
TEST_F(StrangerAttack, WhoDoesNotReadItsAnswersIsClosed) {
  open({});
  const RawSocket raw = connect();
  Accepted& one = newest();
  raw.send(bytes_of(make_frame(MessageKind::kStatusRequest, wire::StatusRequest())));
  ASSERT_TRUE(run_until([&] { return one.frames.size() == 1; }));
  for (int i = 0; i < 64 && !one.closed; ++i) {
    one.connection->send({.kind = 1, .meta = std::string(kMiB, 'a')});
    runtime_.run_until([] { return false; }, 1ms);
  }
  ASSERT_TRUE(run_until([&] { return one.closed.has_value(); }));
  EXPECT_EQ(one.closed->code, ErrorCode::kRefused);
  EXPECT_NE(one.closed->what.find("takes too slowly"), std::string::npos) << one.closed->what;
}

}  // namespace
}  // namespace swarmline
