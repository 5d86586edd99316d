// Machines that measure together, as threads over loopback: what goes wrong, and that it ends.
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/units.h"
#include "engine/identity/secrets.h"
#include "pipeline/protocol/protocol_version.h"
#include "tools/measure/bench_machine.h"
#include "tools/measure/far_links.h"
#include "tools/measure/far_members.h"

namespace swarmline {
namespace {

constexpr Duration kShort = std::chrono::milliseconds(300);
constexpr Duration kLong = std::chrono::seconds(20);

std::vector<Address> here(const Address& bound) {
  return {bound};
}

// An end that listens, in this thread; guests are threads of their own.
class Meeting : public ::testing::Test {
 protected:
  void open(MeetingHostSpec spec) {
    spec.program = "0.1.0";
    host_.emplace(std::move(spec));
    const auto opened = host_->open({"127.0.0.1", 0}, here);
    ASSERT_TRUE(opened.has_value()) << opened.error().what;
    if (const auto join = parse_join_string(host_->join_text())) {
      join_ = *join;
      address_ = join->addresses.front();
    } else {
      address_ = parse_address(host_->join_text()).value();
    }
  }
  MeetingGuestSpec guest_spec(std::string_view what = kLinksMeeting) const {
    return {.what = what, .program = "0.1.0", .addresses = {address_}, .join = join_};
  }
  // What becomes of a guest that joins and does nothing.
  static Result<void> joins(const MeetingGuestSpec& spec) {
    MeetingGuest guest(spec);
    SWARMLINE_TRY(guest.join());
    return guest.serve([](const Frame&) { return Result<void>(); });
  }
  // While this end gathers.
  Result<void> joins_meanwhile(const MeetingGuestSpec& spec) {
    Result<void> joined;
    std::thread guest([&] { joined = joins(spec); });
    static_cast<void>(host_->gather([this](const std::string& line) { said_ += line + "\n"; }));
    if (host_->guests() > 0) host_->end("");
    guest.join();
    return joined;
  }
  static void expect_error(const Result<void>& result, ErrorCode code, const std::string& text) {
    ASSERT_FALSE(result.has_value());
    EXPECT_EQ(result.error().code, code) << result.error().what;
    EXPECT_NE(result.error().what.find(text), std::string::npos) << result.error().what;
    EXPECT_EQ(result.error().what.find('\n'), std::string::npos);
  }

  std::optional<MeetingHost> host_;
  std::optional<JoinString> join_;
  Address address_;
  std::string said_;
};

TEST_F(Meeting, AGuestComesAndIsToldThatItIsOver) {
  open({.what = kLinksMeeting, .wait = kLong});
  const auto joined = joins_meanwhile(guest_spec());
  EXPECT_TRUE(joined.has_value()) << joined.error().what;
  EXPECT_EQ(said_, "127.0.0.1 has come, 2 of 2 machines are here\n");
}

TEST_F(Meeting, WhoDoesNotComeIsNotWaitedForLonger) {
  open({.what = kLinksMeeting, .members = 3, .wait = kShort});
  expect_error(host_->gather([](const std::string&) {}), ErrorCode::kDeadline,
               "bench links: 1 of 3 machines were here after 0 s; see that the others reach");
}

TEST_F(Meeting, AnotherSecretIsRefused) {
  open({.what = kLinksMeeting, .wait = kShort});
  join_->secret = random_secret(kInviteSecretBytes);
  expect_error(joins_meanwhile(guest_spec()), ErrorCode::kRefused,
               "it does not know this measurement's secret");
  EXPECT_EQ(said_, "");
}

TEST_F(Meeting, AnotherKeyAtTheAddressHearsNothing) {
  open({.what = kLinksMeeting, .wait = kShort});
  join_->run_key = Identity::make().hash();
  expect_error(joins_meanwhile(guest_spec()), ErrorCode::kCorrupt, "the key there is");
}

TEST_F(Meeting, NobodyListensThere) {
  open({.what = kLinksMeeting});
  const MeetingGuestSpec spec = guest_spec();
  host_.reset();
  expect_error(joins(spec), ErrorCode::kPeerGone, "bench links: can't join at 127.0.0.1:");
}

TEST_F(Meeting, WhoMeasuresSomethingElseIsRefused) {
  open({.what = kLinksMeeting, .wait = kShort});
  expect_error(joins_meanwhile(guest_spec(kAllReduceMeeting)), ErrorCode::kRefused,
               "bench links is measured here, not bench allreduce");
  EXPECT_EQ(said_.find("127.0.0.1 was refused: bench links is measured here"), 0U) << said_;
}

TEST_F(Meeting, ASecondProcessOfAMachineIsRefused) {
  open({.what = kLinksMeeting, .members = 3, .wait = std::chrono::seconds(2)});
  std::vector<Result<void>> joined(2);
  std::vector<std::thread> guests;
  for (auto& one : joined) guests.emplace_back([&, spec = guest_spec()] { one = joins(spec); });
  EXPECT_FALSE(host_->gather([](const std::string&) {}).has_value());
  host_->end("not all came");
  for (std::thread& guest : guests) guest.join();
  if (joined[0].error().code != ErrorCode::kRefused) std::swap(joined[0], joined[1]);
  expect_error(joined[0], ErrorCode::kRefused,
               "another process of that machine takes part already; join from one more machine");
  expect_error(joined[1], ErrorCode::kPeerGone, "not all came");
}

TEST_F(Meeting, WhoComesWhenAllAreHereIsRefused) {
  open({.what = kLinksMeeting, .wait = kLong});
  std::thread guest([&] { EXPECT_TRUE(joins(guest_spec()).has_value()); });
  ASSERT_TRUE(host_->gather([](const std::string&) {}).has_value());
  Result<void> late;
  std::atomic_bool ended = false;
  std::thread second([&] {
    late = joins(guest_spec());
    ended = true;
  });
  host_->runtime().run_until([&] { return ended.load(); }, kLong);
  second.join();
  expect_error(late, ErrorCode::kRefused, "all 2 machines are here already; --members says");
  host_->end("");
  guest.join();
}

TEST_F(Meeting, AGuestThatLeavesIsNamed) {
  open({.what = kAllReduceMeeting, .wait = kLong});
  std::thread guest([&] {
    MeetingGuest one(guest_spec(kAllReduceMeeting));
    EXPECT_TRUE(one.join().has_value());
  });
  ASSERT_TRUE(host_->gather([](const std::string&) {}).has_value());
  const auto word = host_->hear(0, kLong);
  guest.join();
  ASSERT_FALSE(word.has_value());
  expect_error(std::unexpected(word.error()), ErrorCode::kPeerGone,
               "bench allreduce: 127.0.0.1 has left: ");
  EXPECT_EQ(host_->who_left()->what, word.error().what);
}

TEST_F(Meeting, AGuestWhoseHostLeavesSaysSo) {
  open({.what = kLinksMeeting, .wait = kLong});
  Result<void> joined;
  std::thread guest([&] { joined = joins(guest_spec()); });
  ASSERT_TRUE(host_->gather([](const std::string&) {}).has_value());
  host_.reset();
  guest.join();
  expect_error(joined, ErrorCode::kPeerGone, "bench links: 127.0.0.1:");
}

// One that speaks by itself, over plain links.
class Stranger {
 public:
  explicit Stranger(const Address& address) : network_(runtime_, {}) {
    network_.connect(address, kLong, [this](auto made) {
      connection_ = made.value();
      connection_->start({.on_frame = [this](Frame frame) { heard_ = std::move(frame); },
                          .on_closed = [this](const Error&) { closed_ = true; }});
    });
    runtime_.run_until([&] { return !!connection_; }, kLong);
  }
  // Why it is refused; empty: it is closed without a word.
  std::string say(Frame frame) {
    connection_->send(std::move(frame));
    runtime_.run_until([&] { return heard_ || closed_; }, kLong);
    EXPECT_TRUE(heard_ || closed_);
    return heard_ ? parse_answer(heard_->meta).value_or("") : "";
  }

 private:
  AsioRuntime runtime_;
  TcpNetwork network_;
  std::shared_ptr<Connection> connection_;
  std::optional<Frame> heard_;
  bool closed_ = false;
};

TEST_F(Meeting, AnotherVersionIsToldWhichIsWhere) {
  open({.what = kLinksMeeting, .wait = kShort, .insecure = true});
  MeetingHello newer{.format = kMeetingFormat + 1, .program = "0.9.0", .protocol = 99};
  MeetingHello other{
      .program = "0.0.9", .protocol = kProtocolVersion - 1, .what = std::string(kLinksMeeting)};
  std::vector<std::string> refused(2);
  std::thread strangers([&] {
    refused[0] = Stranger(address_).say({.kind = kMeetingHello, .meta = encode(newer)});
    refused[1] = Stranger(address_).say({.kind = kMeetingHello, .meta = encode(other)});
  });
  EXPECT_FALSE(host_->gather([](const std::string&) {}).has_value());
  strangers.join();
  EXPECT_EQ(refused[0],
            "it is swarmline 0.9.0 there and 0.1.0 at the end that listens, which don't measure "
            "together; use one version on all machines");
  EXPECT_NE(refused[1].find("swarmline 0.0.9 there"), std::string::npos) << refused[1];
}

TEST_F(Meeting, BytesThatAreNoHelloEndTheirConnectionAlone) {
  open({.what = kLinksMeeting, .wait = kLong, .insecure = true});
  std::thread strangers([&] {
    EXPECT_EQ(Stranger(address_).say({.kind = kMeetingHello, .meta = "\xff\xff"}), "");
    EXPECT_EQ(Stranger(address_).say({.kind = kLinkBegins, .meta = ""}), "");
    EXPECT_EQ(Stranger(address_).say({.kind = kMemberLine, .meta = "?"}), "");
    EXPECT_EQ(Stranger(address_).say(
                  {.kind = kMeetingHello, .meta = std::string(kMeetingWordBytesMax + 1, 'x')}),
              "");
    EXPECT_TRUE(joins(guest_spec()).has_value());
  });
  EXPECT_TRUE(host_->gather([](const std::string&) {}).has_value());
  host_->end("");
  strangers.join();
}

TEST_F(Meeting, LinksAreMeasuredInBothDirections) {
  open({.what = kLinksMeeting, .wait = kLong});
  std::thread guest([&] {
    MeetingGuest one(guest_spec());
    EXPECT_TRUE(one.join().has_value());
    const auto served = serve_far_links(one, {});
    EXPECT_TRUE(served.has_value()) << served.error().what;
  });
  ASSERT_TRUE(host_->gather([](const std::string&) {}).has_value());
  const AsioRuntime runtime;
  const FarLinkOptions options{.of = {.ways = {"tls", "shm"}, .bytes = {100 * kKiB}, .rounds = 1},
                               .trusted = {},
                               .listen_host = "127.0.0.1"};
  const auto result = bench_far_links(*host_, options, seconds_clock(runtime),
                                      {.on_begin = [](const std::string&) {},
                                       .on_rate = [](const LinkRate&) {},
                                       .on_trip = [](const LinkTrip&) {},
                                       .on_far = [](const std::string&) {}});
  host_->end("");
  guest.join();
  ASSERT_TRUE(result.has_value()) << result.error().what;
  EXPECT_TRUE(result->left_out.empty()) << result->left_out.front().second;
  ASSERT_EQ(result->rates.size(), 4U);
  for (const LinkRate& rate : result->rates) {
    EXPECT_EQ(rate.far, "127.0.0.1");
    EXPECT_GT(rate.bytes_per_second, 0);
    EXPECT_GT(rate.of_raw, 0) << "beside a plain socket";
  }
  EXPECT_FALSE(result->rates[0].outward);
  EXPECT_TRUE(result->rates[1].outward);
  EXPECT_EQ(result->trips.size(), 2U);
}

TEST_F(Meeting, GroupsOfSeveralWaysReduceInTurns) {
  open({.what = kAllReduceMeeting, .wait = kLong});
  std::thread guest([&] {
    MeetingGuest one(guest_spec(kAllReduceMeeting));
    EXPECT_TRUE(one.join().has_value());
    const auto served = serve_far_members(one, {});
    EXPECT_TRUE(served.has_value()) << served.error().what;
  });
  ASSERT_TRUE(host_->gather([](const std::string&) {}).has_value());
  MeetingMembers members(*host_, {});
  const MemberGroupSpec spec{.members = 2, .bytes = 1 * kMiB, .far = &members};
  {
    auto tls = MemberGroup::own(spec, {}, "tls");
    auto shm = MemberGroup::own(spec, *parse_codec("lin8"), "shm");
    ASSERT_TRUE(tls.has_value()) << tls.error().what;
    ASSERT_TRUE(shm.has_value()) << shm.error().what;
    for (int turn = 0; turn < 2; ++turn) {
      const auto plain = tls->run(2), small = shm->run(3);
      ASSERT_TRUE(plain.has_value()) << plain.error().what;
      ASSERT_TRUE(small.has_value()) << small.error().what;
      EXPECT_GT(plain->wire_bytes, 3 * small->wire_bytes);
    }
    const auto none = MemberGroup::own(spec, {}, "rdma");
    ASSERT_FALSE(none.has_value());
    EXPECT_EQ(none.error().code, ErrorCode::kNotFound) << none.error().what;
  }
  host_->end("");
  guest.join();
}

TEST(MeetingWords, AreReadAsTheyAreWritten) {
  const std::string token(kMeetingTokenBytes, 't');
  const MeetingHello hello{.program = "0.1.0",
                           .protocol = 12,
                           .what = "bench-links",
                           .machine = std::string(kMeetingMachineBytes, 'm'),
                           .dialled = "10.0.0.1",
                           .mbit_per_second = 100};
  EXPECT_EQ(parse_meeting_hello(encode(hello)).value(), hello);
  const LinkTask link{.way = "tls", .token = token};
  EXPECT_EQ(parse_link_task(encode(link)).value(), link);
  const SocketTask socket{.port = 7500, .token = token};
  EXPECT_EQ(parse_socket_task(encode(socket)).value(), socket);
  const MemberTask member{.task = 3,
                          .rank = 1,
                          .members = 2,
                          .bytes = 4 * kMiB,
                          .way = "shm",
                          .codec = *parse_codec("lin8"),
                          .mbit_per_second = {1, 2}};
  EXPECT_EQ(parse_member_task(encode(member)).value(), member);
  const MemberLine line{.task = 3, .line = "ready", .over = true};
  EXPECT_EQ(parse_member_line(encode(line)).value(), line);
  EXPECT_EQ(parse_answer(encode_answer("no")).value(), "no");
}

TEST(MeetingWords, BeyondTheirBoundsAreNone) {
  EXPECT_FALSE(parse_meeting_hello(encode(MeetingHello{.machine = "short"})));
  EXPECT_FALSE(parse_meeting_hello(encode(MeetingHello{.mbit_per_second = -1})));
  EXPECT_FALSE(parse_link_task(encode(LinkTask{.way = "tls", .token = "short"})));
  EXPECT_FALSE(parse_socket_task(encode(SocketTask{.port = 0, .token = std::string(32, 't')})));
  const MemberTask good{.rank = 1, .members = 2, .bytes = kMiB, .way = "tcp"};
  EXPECT_TRUE(parse_member_task(encode(good)));
  for (auto spoil : std::vector<void (*)(MemberTask&)>{
           [](MemberTask& task) { task.rank = 2; }, [](MemberTask& task) { task.members = 65; },
           [](MemberTask& task) { task.bytes = 0; },
           [](MemberTask& task) { task.bytes = 8 * kGiB; },
           [](MemberTask& task) { task.codec.block = 7; },
           [](MemberTask& task) { task.mbit_per_second = {1}; }}) {
    MemberTask bad = good;
    spoil(bad);
    EXPECT_FALSE(parse_member_task(encode(bad)));
  }
}

}  // namespace
}  // namespace swarmline
