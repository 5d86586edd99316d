// Links to coordinators over real TCP: one that is not there, one with a wrong clock, one whose key
// is another, one that does not know the question.
#include "tools/doctor/link_checks.h"

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "engine/net/rpc.h"
#include "engine/net/tcp/tcp_network.h"
#include "engine/runtime/asio_runtime.h"
#include "pipeline/protocol/message_bounds.h"
#include "pipeline/protocol/message_kinds.h"
#include "pipeline/protocol/protocol_version.h"
#include "pipeline/protocol/trial.h"
#include "tests/admission/keyed_run.h"

namespace swarmline {
namespace {

// Answers trials in a thread of its own, as it is told to.
class FakeCoordinator {
 public:
  struct Manner {
    double ahead_seconds = 0;
    std::uint32_t protocol = kProtocolVersion;
    bool knows_trials = true;
    bool keyed = false;
  };
  explicit FakeCoordinator(Manner manner) : manner_(manner) {
    thread_ = std::thread([this] { serve(); });
    while (!ready_) std::this_thread::yield();
  }
  ~FakeCoordinator() {
    runtime_->request_stop();
    thread_.join();
  }
  FakeCoordinator(const FakeCoordinator&) = delete;
  FakeCoordinator& operator=(const FakeCoordinator&) = delete;

  JoinTarget target() const {
    return {.coordinators = {address_},
            .invite = manner_.keyed ? std::optional(join_) : std::nullopt};
  }
  JoinString& join() { return join_; }

 private:
  void serve() {
    AsioRuntime runtime;
    runtime_ = &runtime;
    std::unique_ptr<KeyedRun> keys;
    if (manner_.keyed) keys = std::make_unique<KeyedRun>(runtime);
    network_ =
        std::make_unique<TcpNetwork>(runtime, TcpOptions{.guard = keys ? keys->guard : nullptr});
    address_ = *network_->listen({"127.0.0.1", 0}, [&](std::shared_ptr<Connection> link) {
      auto channel = RpcChannel::make(runtime, std::move(link));
      channel->start(
          {.on_message = [](Frame) {},
           .on_request = [this, at = channel.get()](
                             const Frame& frame,
                             RpcChannel::Respond respond) { answer(at, frame, respond); },
           .on_closed = [](Error) {},
           .stranger = bounds_before_hello()});
      channels_.push_back(std::move(channel));
    });
    if (keys) {
      join_ = keys->join(keys->invite());
      join_.addresses = {address_};
    }
    ready_ = true;
    runtime.run();
    channels_.clear();
    network_.reset();
  }

  void answer(RpcChannel* channel, const Frame& frame, const RpcChannel::Respond& respond) {
    const auto request = parse<wire::TrialRequest>(frame);
    if (!manner_.knows_trials || kind_of(frame) != kTrialRequest || !request)
      return respond(fail(ErrorCode::kRefused, "a coordinator does not answer that"));
    auto reply = std::make_shared<wire::TrialReply>();
    reply->set_protocol(manner_.protocol);
    reply->set_wall_seconds(runtime_->wall_seconds() + manner_.ahead_seconds);
    reply->set_seen_from(channel->connection().remote());
    reply->set_filler(std::string(request->answer_bytes(), 'x'));
    if (request->dial_back().empty()) return respond(make_frame(kTrialReply, *reply));
    network_->connect(*parse_address(request->dial_back()), std::chrono::seconds(1),
                      [reply, respond](const Result<std::shared_ptr<Connection>>& dialled) {
                        reply->set_reach(dialled ? "yes" : "no");
                        if (dialled) {
                          (*dialled)->start({.on_frame = [](Frame) {}, .on_closed = [](Error) {}});
                          (*dialled)->close();
                        } else {
                          reply->set_not_reached(dialled.error().what);
                        }
                        respond(make_frame(kTrialReply, *reply));
                      });
  }

  const Manner manner_;
  AsioRuntime* runtime_ = nullptr;
  std::unique_ptr<TcpNetwork> network_;
  std::vector<std::shared_ptr<RpcChannel>> channels_;
  Address address_;
  JoinString join_;
  std::atomic<bool> ready_ = false;
  std::thread thread_;
};

CoordinatorFacts facts_of(const JoinTarget& target, const PeerConfig& machine = {}) {
  auto facts = try_coordinator(target, machine);
  EXPECT_TRUE(facts.has_value()) << facts.error().what;
  return facts ? std::move(*facts) : CoordinatorFacts();
}

TEST(Link, ToACoordinatorThatIsThere) {
  const FakeCoordinator coordinator({});
  const CoordinatorFacts facts = facts_of(coordinator.target());
  EXPECT_EQ(judge_coordinator(facts).verdict, CheckOutcome::kOk) << judge_coordinator(facts).what;
  EXPECT_EQ(judge_key(facts).verdict, CheckOutcome::kSkipped) << "the link is plain";
  EXPECT_EQ(judge_version(facts).verdict, CheckOutcome::kOk);
  EXPECT_EQ(judge_clock(facts).verdict, CheckOutcome::kOk) << judge_clock(facts).what;
  EXPECT_EQ(judge_reach(facts).verdict, CheckOutcome::kOk) << judge_reach(facts).what;
  EXPECT_LE(facts.up.bytes, kSpeedBytesMax);
  EXPECT_LE(facts.down.bytes, kSpeedBytesMax);
  EXPECT_GE(facts.up.bytes, kFillersUnderWay * std::uint64_t{kTrialFillerBytesMax});
  EXPECT_GE(facts.down.bytes, kFillersUnderWay * std::uint64_t{kTrialFillerBytesMax});
  EXPECT_NE(judge_speed(facts).verdict, CheckOutcome::kFail);
  EXPECT_NE(judge_speed(facts).verdict, CheckOutcome::kSkipped);
}

TEST(Link, ToNobody) {
  AsioRuntime runtime;
  TcpNetwork network(runtime, {});
  const Address gone = *network.listen({"127.0.0.1", 0}, [](const auto&) {});
  network.stop_listening();
  const CoordinatorFacts facts = facts_of({.coordinators = {gone}, .invite = {}});
  EXPECT_EQ(judge_coordinator(facts).verdict, CheckOutcome::kFail);
  EXPECT_NE(judge_coordinator(facts).what.find(to_string(gone)), std::string::npos);
  for (const Finding& finding : judge_link(facts))
    if (finding.check != "coordinator") EXPECT_EQ(finding.verdict, CheckOutcome::kSkipped);
}

TEST(Link, ASecondAddressIsTriedWhereTheFirstDoesNotAnswer) {
  const FakeCoordinator coordinator({});
  JoinTarget target = coordinator.target();
  target.coordinators.insert(target.coordinators.begin(), Address{"127.0.0.1", 1});
  EXPECT_EQ(judge_coordinator(facts_of(target)).verdict, CheckOutcome::kOk);
}

TEST(Link, AWrongClock) {
  for (const double ahead : {3600.0, -3600.0}) {
    const FakeCoordinator coordinator({.ahead_seconds = ahead});
    const Finding finding = judge_clock(facts_of(coordinator.target()));
    EXPECT_EQ(finding.verdict, CheckOutcome::kFail) << finding.what;
    EXPECT_NE(finding.what.find(ahead > 0 ? "behind" : "ahead of"), std::string::npos);
  }
  const FakeCoordinator slightly({.ahead_seconds = 20});
  EXPECT_EQ(judge_clock(facts_of(slightly.target())).verdict, CheckOutcome::kWarn);
}

TEST(Link, ItsOwnKeyAndAnotherOne) {
  FakeCoordinator coordinator({.keyed = true});
  const CoordinatorFacts good = facts_of(coordinator.target());
  EXPECT_EQ(judge_key(good).verdict, CheckOutcome::kOk) << judge_key(good).what;
  EXPECT_EQ(judge_reach(good).verdict, CheckOutcome::kOk) << judge_reach(good).what;
  coordinator.join().run_key = Identity::make().hash();
  const CoordinatorFacts other = facts_of(coordinator.target());
  EXPECT_EQ(judge_key(other).verdict, CheckOutcome::kFail);
  EXPECT_EQ(judge_coordinator(other).verdict, CheckOutcome::kOk) << "somebody answers";
  EXPECT_EQ(judge_clock(other).verdict, CheckOutcome::kSkipped);
}

TEST(Link, AnInviteThatIsNotTaken) {
  FakeCoordinator coordinator({.keyed = true});
  coordinator.join().secret = std::string(kInviteSecretBytes, 'x');
  const CoordinatorFacts facts = facts_of(coordinator.target());
  EXPECT_EQ(judge_key(facts).verdict, CheckOutcome::kFail);
  EXPECT_NE(judge_key(facts).advice.find("invite"), std::string::npos);
}

TEST(Link, AnotherVersion) {
  const FakeCoordinator newer({.protocol = kProtocolVersion + 1});
  const Finding behind = judge_version(facts_of(newer.target()));
  EXPECT_EQ(behind.verdict, CheckOutcome::kFail);
  EXPECT_TRUE(behind.what.ends_with("this swarmline is older")) << behind.what;
  EXPECT_EQ(behind.advice, "install the coordinator's version of swarmline here");
  const FakeCoordinator older({.protocol = kProtocolVersion - 1});
  const Finding ahead = judge_version(facts_of(older.target()));
  EXPECT_EQ(ahead.verdict, CheckOutcome::kFail);
  EXPECT_TRUE(ahead.what.ends_with("the coordinator's swarmline is older")) << ahead.what;
  EXPECT_NE(ahead.advice.find("start the coordinator again with this one"), std::string::npos);
  const FakeCoordinator oldest({.knows_trials = false});
  const CoordinatorFacts facts = facts_of(oldest.target());
  EXPECT_EQ(judge_version(facts).verdict, CheckOutcome::kWarn);
  EXPECT_EQ(judge_clock(facts).verdict, CheckOutcome::kSkipped);
}

// A port that is forwarded to nobody, or an address that is not this machine's.
TEST(Link, AnAddressWhereTheCoordinatorDoesNotReachThisMachine) {
  const FakeCoordinator coordinator({});
  PeerConfig machine;
  machine.advertise = "127.0.0.1:1";
  const Finding finding = judge_reach(facts_of(coordinator.target(), machine));
  EXPECT_EQ(finding.verdict, CheckOutcome::kWarn);
  EXPECT_NE(finding.what.find("127.0.0.1:1"), std::string::npos) << finding.what;
}

TEST(Speed, IsJudgedByTheSlowerWay) {
  CoordinatorFacts facts;
  facts.protocol = kProtocolVersion;
  facts.up = {.bytes = 1'000'000, .seconds = 0.1};
  facts.down = {.bytes = 1'000'000, .seconds = 0.1};
  EXPECT_EQ(judge_speed(facts).verdict, CheckOutcome::kOk);
  facts.up.seconds = 1;
  EXPECT_EQ(judge_speed(facts).verdict, CheckOutcome::kWarn);
}

}  // namespace
}  // namespace swarmline
