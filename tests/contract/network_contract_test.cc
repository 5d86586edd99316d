#include <algorithm>

#include "base/byte_ops.h"
#include "base/rng.h"
#include "engine/net/message_pieces.h"
#include "tests/contract/link.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

class NetworkContract : public BackendTest {
 protected:
  bool run_until(const std::function<bool()>& done, Duration limit = 20s) {
    return world_->run_until(done, limit);
  }
};

TEST_P(NetworkContract, FramesOfAConnectionArriveWholeAndInOrderBothWays) {
  const auto link = make_link(*world_);
  for (std::uint16_t i = 0; i < 500; ++i) {
    link->client.connection->send(make_frame(i, "up " + std::to_string(i)));
    link->server.connection->send(make_frame(i, std::string(i, 'd')));
  }
  ASSERT_TRUE(run_until(
      [&] { return link->client.frames.size() == 500 && link->server.frames.size() == 500; }));
  for (std::uint16_t i = 0; i < 500; ++i) {
    EXPECT_EQ(link->server.frames[i].kind, i);
    EXPECT_EQ(link->server.frames[i].meta, "up " + std::to_string(i));
    EXPECT_EQ(link->client.frames[i].meta, std::string(i, 'd'));
    EXPECT_TRUE(link->client.frames[i].payload.empty());
  }
}

TEST_P(NetworkContract, HeaderFieldsTravel) {
  const auto link = make_link(*world_);
  Frame frame = make_frame(65535, "meta");
  frame.request = ~std::uint64_t{0};
  frame.flags = kFrameFlagReply | kFrameFlagError;
  link->client.connection->send(frame);
  ASSERT_TRUE(run_until([&] { return link->server.frames.size() == 1; }));
  EXPECT_EQ(link->server.frames[0].kind, 65535);
  EXPECT_EQ(link->server.frames[0].request, ~std::uint64_t{0});
  EXPECT_EQ(link->server.frames[0].flags, 3U);
}

std::string numbered(std::size_t bytes) {
  std::string text(bytes, 'h');
  for (std::size_t i = 0; i < bytes; i += 1000) text[i] = static_cast<char>(i / 1000);
  return text;
}

// What a peer says of a state of 100 GiB: a hash of each piece.
TEST_P(NetworkContract, AMessageOfManyMegabytesArrivesWhole) {
  const auto link = make_link(*world_);
  const std::string meta = numbered(8'000'000);
  Frame message = make_frame(7, meta, {pattern(70'000, 3)});
  message.request = 5;
  message.flags = kFrameFlagReply;
  link->client.connection->send(message);
  link->client.connection->send(make_frame(8, "next"));
  ASSERT_TRUE(run_until([&] { return link->server.frames.size() == 2; }));
  const Frame& got = link->server.frames[0];
  EXPECT_EQ(got.meta, meta);
  EXPECT_EQ(got.request, 5U);
  EXPECT_EQ(got.flags, kFrameFlagReply);
  EXPECT_TRUE(same_bytes(got.received_payload(), message.payload[0].view()));
  EXPECT_GT(link->client.connection->counters().frames_sent, 8'000'000U / kFrameMetaBytesTaken)
      << "in pieces";
  EXPECT_EQ(link->server.frames[1].meta, "next");
}

// That a process lives is said while a long message of it is on its way; all else keeps its order.
TEST_P(NetworkContract, WhatIsSentAheadGoesBetweenThePiecesOfALongMessage) {
  const auto link = make_link(*world_);
  const std::string meta = numbered(50'000'000);
  link->client.connection->send(make_frame(1, "first"));
  link->client.connection->send(make_frame(7, meta));
  link->client.connection->send(make_frame(8, "next"));
  Frame ahead = make_frame(9, "ahead");
  ahead.flags = kFrameFlagAhead;
  link->client.connection->send(std::move(ahead));
  ASSERT_TRUE(run_until([&] { return link->server.frames.size() == 4; }));
  std::vector<std::uint16_t> kinds;
  for (const Frame& frame : link->server.frames) kinds.push_back(frame.kind);
  EXPECT_EQ(kinds, (std::vector<std::uint16_t>{1, 9, 7, 8}));
  EXPECT_EQ(link->server.frames[2].meta, meta);
  EXPECT_TRUE(run_until([&] { return link->client.connection->unsent_bytes() == 0; }));
}

TEST_P(NetworkContract, ALongMessageIsSentWholeBeforeItsConnectionIsClosed) {
  const auto link = make_link(*world_);
  link->client.connection->send(make_frame(7, numbered(3'000'000)));
  link->client.connection->close();
  ASSERT_TRUE(run_until([&] { return link->server.closed.size() == 1; }));
  ASSERT_EQ(link->server.frames.size(), 1U);
  EXPECT_EQ(link->server.frames[0].meta.size(), 3'000'000U);
}

// Beyond what is taken of its kind, or a piece that is none.
TEST_P(NetworkContract, PiecesThatAreNotTakenEndTheirConnection) {
  std::vector<std::unique_ptr<Link>> links;  // each outlives what the next one runs
  const auto refuses = [&](std::vector<Frame> frames) {
    Link* const link = links.emplace_back(make_link(*world_, false)).get();
    link->client.start();
    link->server.connection->start(
        {.on_frame = [&](Frame) { ADD_FAILURE() << "it was delivered"; },
         .on_closed = [link](Error error) { link->server.closed.push_back(std::move(error)); },
         .stranger = ConnectionBounds{.room = [](std::uint16_t) {
           return FrameRoom{.meta_bytes_max = kMiB, .payload_bytes_max = 0};
         }}});
    for (Frame& frame : frames) link->client.connection->send(std::move(frame));
    EXPECT_TRUE(run_until([&] { return !link->server.closed.empty(); }));
    return !link->server.closed.empty() && link->server.closed[0].code == ErrorCode::kCorrupt;
  };
  Frame tiny = make_frame(7, "tiny");
  tiny.flags = kFrameFlagMore;
  Frame one = make_frame(7, std::string(100'000, 'a')), other = make_frame(8, one.meta);
  one.flags = other.flags = kFrameFlagMore;
  EXPECT_TRUE(refuses({make_frame(7, std::string(kMiB + 1, 'm'))}));
  EXPECT_TRUE(refuses({tiny}));
  EXPECT_TRUE(refuses({one, other}));
}

TEST_P(NetworkContract, PayloadsArriveEqualAlignedAndInOnePart) {
  const auto link = make_link(*world_);
  std::vector<std::size_t> sizes = {0,           1,      63,     64,      65,     4095,
                                    65'535 - 40, 65'536, 65'537, 1 << 20, 8 << 20};
  std::vector<SharedBytes> sent;
  for (const std::size_t size : sizes) {
    sent.push_back(pattern(size, size));
    link->client.connection->send(make_frame(1, std::to_string(size), {sent.back()}));
  }
  ASSERT_TRUE(run_until([&] { return link->server.frames.size() == sizes.size(); }));
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const Frame& frame = link->server.frames[i];
    EXPECT_EQ(frame.meta, std::to_string(sizes[i]));
    ASSERT_EQ(frame.payload.size(), sizes[i] == 0 ? 0U : 1U);
    ASSERT_EQ(frame.received_payload().size(), sizes[i]);
    EXPECT_TRUE(same_bytes(frame.received_payload(), sent[i].view()));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(frame.received_payload().data()) % kBufferAlignment,
              0U);
  }
}

// A payload is seen while it comes: prefixes of what on_frame then delivers, ever longer ones,
// never all of it. What is small comes without a word.
TEST_P(NetworkContract, LargePayloadsAreReportedWhileTheyArrive) {
  const auto link = make_link(*world_);
  const std::size_t size = 16 << 20;
  const SharedBytes large = pattern(size, 1), small = pattern(100'000, 2);
  std::size_t wrong = 0, seen = 0;
  const std::byte* where = nullptr;
  link->server.on_arriving = [&](const Arrival& arrival) {
    const std::size_t now = arrival.arrived.size();
    wrong += arrival.kind != 7 || arrival.payload_bytes != size || now < seen ||
             (where != nullptr && where != arrival.arrived.data());
    if (now >= seen)
      wrong += !same_bytes(arrival.arrived.subspan(seen), large.view().first(now).subspan(seen));
    where = arrival.arrived.data();
    seen = now;
  };
  link->client.connection->send(make_frame(6, "small", {small}));
  link->client.connection->send(make_frame(7, "large", {large}));
  link->client.connection->send(make_frame(6, "after", {small}));
  ASSERT_TRUE(run_until([&] { return link->server.frames.size() == 3; }));
  EXPECT_EQ(wrong, 0U);
  ASSERT_GE(link->server.arrivals.size(), 3U);
  std::uint64_t before = 0;
  for (const auto& [meta, bytes] : link->server.arrivals) {
    EXPECT_EQ(meta, "large");
    EXPECT_GT(bytes, before);
    EXPECT_LT(bytes, size);
    before = bytes;
  }
  EXPECT_EQ(link->server.frames[1].received_payload().data(), where);
  EXPECT_TRUE(same_bytes(link->server.frames[1].received_payload(), large.view()));
  EXPECT_GT(link->server.frames[1].received_over, Duration{});
}

constexpr ConnectionBounds kOfStrangers{
    .room = [](std::uint16_t) { return FrameRoom{.meta_bytes_max = 10, .payload_bytes_max = 0}; },
    .unsent_bytes_max = 1000};

// Starts the server's end as one that does not know who the client is, until frame 9.
void start_wary(End& end) {
  end.connection->start(
      {.on_frame =
           [&end](Frame frame) {
             if (frame.kind == 9) end.connection->believe({});
             end.frames.push_back(std::move(frame));
           },
       .on_closed = [&end](Error error) { end.closed.push_back(std::move(error)); },
       .stranger = kOfStrangers});
}

TEST_P(NetworkContract, AStrangerSaysLittleUntilItIsBelieved) {
  const auto link = make_link(*world_, false);
  link->client.start();
  start_wary(link->server);
  link->client.connection->send(make_frame(1, "0123456789"));
  link->client.connection->send(make_frame(9, "hello"));
  link->client.connection->send(make_frame(2, std::string(5000, 'm'), {pattern(70'000, 1)}));
  ASSERT_TRUE(run_until([&] { return link->server.frames.size() == 3; }));
  EXPECT_EQ(link->server.frames[2].received_payload().size(), 70'000U);
  EXPECT_TRUE(link->server.closed.empty());
}

TEST_P(NetworkContract, AStrangerThatSaysMoreIsClosed) {
  for (const Frame& large : {make_frame(1, "0123456789a"), make_frame(1, "", {pattern(1, 1)})}) {
    const auto link = make_link(*world_, false);
    link->client.start();
    start_wary(link->server);
    link->client.connection->send(make_frame(1, "good"));
    link->client.connection->send(large);
    link->client.connection->send(make_frame(9, "too late"));
    ASSERT_TRUE(run_until(
        [&] { return link->server.closed.size() == 1 && link->client.closed.size() == 1; }));
    EXPECT_EQ(link->server.closed[0].code, ErrorCode::kCorrupt);
    ASSERT_EQ(link->server.frames.size(), 1U);
    EXPECT_EQ(link->server.frames[0].meta, "good");
  }
}

TEST_P(NetworkContract, LittleWaitsUnsentForAStranger) {
  const auto link = make_link(*world_, false);
  link->client.start();
  start_wary(link->server);
  link->server.connection->send(make_frame(1, std::string(2000, 'a')));
  ASSERT_TRUE(run_until([&] { return link->server.closed.size() == 1; }));
  EXPECT_EQ(link->server.closed[0].code, ErrorCode::kRefused);
}

// The handler may close the connection while a payload is on its way.
TEST_P(NetworkContract, ClosingWhileAPayloadArrives) {
  const auto link = make_link(*world_);
  link->server.on_arriving = [&](const Arrival&) { link->server.connection->close(); };
  link->client.connection->send(make_frame(7, "large", {pattern(16 << 20, 1)}));
  ASSERT_TRUE(run_until(
      [&] { return link->server.closed.size() == 1 && link->client.closed.size() == 1; }));
  EXPECT_TRUE(link->server.frames.empty());
  EXPECT_EQ(link->server.arrivals.size(), 1U);
}

TEST_P(NetworkContract, ManyPartsAreJoined) {
  const auto link = make_link(*world_);
  const SharedBytes whole = pattern(300'000, 3);
  std::vector<SharedBytes> parts;  // more than one system call takes
  for (std::size_t at = 0; at < whole.size(); at += 100) parts.push_back(whole.slice(at, 100));
  parts.insert(parts.begin() + 5, SharedBytes());
  link->client.connection->send(make_frame(1, "", parts));
  link->client.connection->send(
      make_frame(2, "", {whole.slice(3, 61)}));  // unaligned at the sender
  ASSERT_TRUE(run_until([&] { return link->server.frames.size() == 2; }));
  EXPECT_TRUE(same_bytes(link->server.frames[0].received_payload(), whole.view()));
  const BytesView second = link->server.frames[1].received_payload();
  EXPECT_TRUE(same_bytes(second, whole.view().subspan(3, 61)));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(second.data()) % kBufferAlignment, 0U);
}

TEST_P(NetworkContract, SentPayloadsStayAliveUntilWritten) {
  const auto link = make_link(*world_);
  const std::size_t size = 4 << 20;
  for (std::uint64_t i = 0; i < 8; ++i) {
    link->client.connection->send(make_frame(1, "", {pattern(size, i)}));  // the only reference
  }
  ASSERT_TRUE(run_until([&] { return link->server.frames.size() == 8; }));
  for (std::uint64_t i = 0; i < 8; ++i) {
    EXPECT_TRUE(same_bytes(link->server.frames[i].received_payload(), pattern(size, i).view()));
  }
}

TEST_P(NetworkContract, BothEndsCountTheSameBytes) {
  const auto link = make_link(*world_);
  std::uint64_t bytes = 0;
  for (std::size_t size : {0, 10, 100'000}) {
    Frame frame = make_frame(1, "abc", {pattern(size, 1)});
    bytes += frame.wire_bytes();
    link->client.connection->send(std::move(frame));
  }
  // It may arrive before its sender has counted it.
  ASSERT_TRUE(run_until([&] {
    return link->server.frames.size() == 3 && link->client.connection->unsent_bytes() == 0;
  }));
  EXPECT_EQ(bytes, 3 * (40 + 3) + 100'010U);
  EXPECT_EQ(link->client.connection->counters().bytes_sent, bytes);
  EXPECT_EQ(link->client.connection->counters().frames_sent, 3U);
  EXPECT_EQ(link->server.connection->counters().bytes_received, bytes);
  EXPECT_EQ(link->server.connection->counters().frames_received, 3U);
  EXPECT_EQ(link->server.connection->counters().bytes_sent, 0U);
}

TEST_P(NetworkContract, FramesAreHeldBackUntilStart) {
  const auto link = make_link(*world_, false);
  link->client.start();
  link->client.connection->send(make_frame(1, "early"));
  world_->run_for(30ms);
  EXPECT_TRUE(link->server.frames.empty());
  link->server.start();
  EXPECT_TRUE(link->server.frames.empty()) << "delivered inside start()";
  ASSERT_TRUE(run_until([&] { return link->server.frames.size() == 1; }));
}

TEST_P(NetworkContract, CloseSendsWhatIsQueuedThenClosesBothEnds) {
  const auto link = make_link(*world_);
  for (std::uint16_t i = 0; i < 20; ++i) {
    link->client.connection->send(make_frame(i, "", {pattern(100'000, i)}));
  }
  link->client.connection->close();
  EXPECT_TRUE(link->client.closed.empty()) << "delivered inside close()";
  link->client.connection->close();
  link->client.connection->send(make_frame(99));  // ignored
  ASSERT_TRUE(
      run_until([&] { return !link->client.closed.empty() && !link->server.closed.empty(); }));
  EXPECT_EQ(link->server.frames.size(), 20U);
  EXPECT_EQ(link->client.closed[0].code, ErrorCode::kStopped);
  EXPECT_EQ(link->server.closed[0].code, ErrorCode::kPeerGone);
  link->server.connection->send(make_frame(1));
  link->server.connection->close();
  world_->run_for(50ms);
  EXPECT_EQ(link->client.closed.size(), 1U);
  EXPECT_EQ(link->server.closed.size(), 1U);
}

TEST_P(NetworkContract, NothingIsDeliveredAfterClose) {
  const auto link = make_link(*world_);
  for (std::uint16_t i = 0; i < 10; ++i) link->server.connection->send(make_frame(i));
  link->client.connection->close();
  ASSERT_TRUE(
      run_until([&] { return !link->client.closed.empty() && !link->server.closed.empty(); }));
  EXPECT_TRUE(link->client.frames.empty());
}

TEST_P(NetworkContract, BothEndsMayCloseAtOnce) {
  const auto link = make_link(*world_);
  link->client.connection->close();
  link->server.connection->close();
  ASSERT_TRUE(
      run_until([&] { return !link->client.closed.empty() && !link->server.closed.empty(); }));
  world_->run_for(50ms);
  EXPECT_EQ(link->client.closed.size(), 1U);
  EXPECT_EQ(link->server.closed.size(), 1U);
}

TEST_P(NetworkContract, ClosingInsideOnFrameEndsDelivery) {
  const auto link = make_link(*world_, false);
  link->client.start();
  int seen = 0;
  std::optional<Error> closed;
  link->server.connection->start({.on_frame =
                                      [&](Frame) {
                                        ++seen;
                                        link->server.connection->close();
                                      },
                                  .on_closed = [&](Error error) { closed = std::move(error); }});
  for (std::uint16_t i = 0; i < 10; ++i) link->client.connection->send(make_frame(i));
  ASSERT_TRUE(run_until([&] { return closed.has_value() && !link->client.closed.empty(); }));
  EXPECT_EQ(seen, 1);
  EXPECT_EQ(closed->code, ErrorCode::kStopped);
  EXPECT_EQ(link->client.closed[0].code, ErrorCode::kPeerGone);
}

TEST_P(NetworkContract, ClosingInsideOnFrameWithLastReferenceDroppedIsSafe) {
  const auto link = make_link(*world_, false);
  link->client.start();
  auto owner = std::make_shared<std::shared_ptr<Connection>>(std::move(link->server.connection));
  bool closed = false;
  (*owner)->start({.on_frame =
                       [owner](Frame) {
                         if (!*owner) return;
                         (*owner)->close();
                         owner->reset();
                       },
                   .on_closed = [&closed](Error) { closed = true; }});
  owner.reset();
  link->client.connection->send(make_frame(1));
  EXPECT_TRUE(run_until([&] { return closed && !link->client.closed.empty(); }));
}

TEST_P(NetworkContract, APeerThatDiesIsSeenByTheOtherEndOnce) {
  const auto link = make_link(*world_);
  link->client.connection->send(make_frame(1, "before"));
  ASSERT_TRUE(run_until([&] { return link->server.frames.size() == 1; }));
  world_->die(1);
  ASSERT_TRUE(run_until([&] { return !link->client.closed.empty(); }));
  EXPECT_EQ(link->client.closed[0].code, ErrorCode::kPeerGone);
  EXPECT_TRUE(link->server.closed.empty()) << "a dead process gets no callback";
  link->client.connection->send(make_frame(2));
  world_->run_for(20ms);
  EXPECT_EQ(link->client.closed.size(), 1U);
}

TEST_P(NetworkContract, ConnectingWhereNobodyListensIsRefused) {
  const auto bound = world_->network(1).listen(world_->listen_address(), [](auto) {});
  ASSERT_TRUE(bound.has_value());
  world_->network(1).stop_listening();
  int calls = 0;
  std::optional<Error> error;
  world_->network(0).connect(*bound, 5s, [&](auto connection) {
    ++calls;
    if (!connection) error = connection.error();
  });
  EXPECT_EQ(calls, 0) << "called inside connect()";
  ASSERT_TRUE(run_until([&] { return calls > 0; }));
  world_->run_for(20ms);
  EXPECT_EQ(calls, 1);
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code, ErrorCode::kPeerGone);
  EXPECT_NE(error->what.find(to_string(*bound)), std::string::npos) << error->what;
}

TEST_P(NetworkContract, ATakenPortIsAnErrorWithASentence) {
  const auto first = world_->network(1).listen(world_->listen_address(), [](auto) {});
  ASSERT_TRUE(first.has_value());
  EXPECT_NE(first->port, 0);
  const auto second = world_->network(0).listen(*first, [](auto) {});
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code, ErrorCode::kIo);
  EXPECT_NE(second.error().what.find("cannot listen on " + to_string(*first)), std::string::npos);
}

TEST_P(NetworkContract, OneListenerTakesManyConnectionsThatDoNotMix) {
  std::vector<std::unique_ptr<End>> servers, clients;
  const auto bound = world_->network(1).listen(world_->listen_address(), [&](auto connection) {
    servers.push_back(std::make_unique<End>());
    servers.back()->connection = std::move(connection);
    servers.back()->start();
  });
  ASSERT_TRUE(bound.has_value());
  constexpr std::uint16_t kClients = 40;
  for (std::uint16_t i = 0; i < kClients; ++i) {
    clients.push_back(std::make_unique<End>());
    world_->network(0).connect(*bound, 10s, [&, i](auto connection) {
      ASSERT_TRUE(connection.has_value());
      clients[i]->connection = std::move(*connection);
      clients[i]->start();
      for (int n = 0; n < 20; ++n) clients[i]->connection->send(make_frame(i, std::to_string(n)));
    });
  }
  ASSERT_TRUE(run_until([&] {
    return servers.size() == kClients &&
           std::ranges::all_of(servers, [](const auto& end) { return end->frames.size() == 20; });
  }));
  std::vector<std::uint16_t> kinds;
  for (const auto& server : servers) {
    kinds.push_back(server->frames[0].kind);
    for (std::size_t n = 0; n < 20; ++n) {
      EXPECT_EQ(server->frames[n].kind, kinds.back());
      EXPECT_EQ(server->frames[n].meta, std::to_string(n));
    }
  }
  std::ranges::sort(kinds);
  for (std::uint16_t i = 0; i < kClients; ++i) EXPECT_EQ(kinds[i], i);
}

TEST_P(NetworkContract, AQueueBeyondItsBoundClosesTheConnection) {
  world_ = make_world(GetParam(), {.queue_bytes_max = 1'000'000});
  const auto link = make_link(*world_);
  const SharedBytes piece = pattern(300'000, 1);
  for (int i = 0; i < 3; ++i) link->client.connection->send(make_frame(1, "", {piece}));
  EXPECT_EQ(link->client.connection->unsent_bytes(), 3 * 300'040U);
  link->client.connection->send(make_frame(2, "", {piece}));
  EXPECT_TRUE(link->client.closed.empty()) << "delivered inside send()";
  ASSERT_TRUE(
      run_until([&] { return !link->client.closed.empty() && !link->server.closed.empty(); }));
  EXPECT_EQ(link->client.closed[0].code, ErrorCode::kRefused);
  EXPECT_EQ(link->server.closed[0].code, ErrorCode::kPeerGone);
  EXPECT_EQ(link->client.closed.size(), 1U);
  EXPECT_TRUE(std::ranges::none_of(link->server.frames,
                                   [](const Frame& frame) { return frame.kind == 2; }));
}

TEST_P(NetworkContract, ACloseBeforeStartIsReportedAfterIt) {
  const auto link = make_link(*world_, false);
  link->client.connection->close();
  world_->run_for(20ms);
  link->client.start();
  link->server.start();
  ASSERT_TRUE(
      run_until([&] { return !link->client.closed.empty() && !link->server.closed.empty(); }));
  EXPECT_EQ(link->client.closed[0].code, ErrorCode::kStopped);
  EXPECT_EQ(link->server.closed[0].code, ErrorCode::kPeerGone);
}

SWARMLINE_FOR_EVERY_NETWORK(NetworkContract);

}  // namespace
}  // namespace swarmline
