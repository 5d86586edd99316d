// A peer that stands still in the middle of its work: whoever waits for it sends past it, both ways
// may end, each index counts once.
#include <algorithm>

#include "tests/harness/mark_expected.h"
#include "tests/protocol/protocol_fixture.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kStep = 1;  // the step that is disturbed
const Phase kDisturbed{PhaseKind::kTrain, kStep};

// Three stages of one, two and one peers; B, the first of the two, stands still once `moment` is
// there.
class ResendPastAFrozenPeer : public Protocol {
 protected:
  // What is sent from B, or about to be delivered to it, that makes it stand still after the event
  // at hand.
  using Moment = std::function<bool(SimNodeId from, SimNodeId to, const Frame& frame)>;

  void meets_at_the_next_stage(const Moment& sent, const Moment& delivered) {
    RunConfig config = run_of({1, 2, 1});
    config.wiring.hop_timeout_seconds = 0.5;
    Swarm swarm(options_for(config));
    swarm.until_started();
    const SimNodeId a = swarm.node(0, 0), b = swarm.node(1, 0), c = swarm.node(1, 1),
                    d = swarm.node(2, 0);
    std::optional<MicrobatchId> stuck;
    auto freeze_at = [&](const Moment& moment, SimNodeId from, SimNodeId to, const Frame& frame) {
      const auto id = attempt_of(frame);
      if (stuck || !moment || !id || id->microbatch.phase != kDisturbed || !moment(from, to, frame))
        return;
      stuck = id->microbatch;
      swarm.freeze(b);
    };
    swarm.rule([&](SimNodeId from, SimNodeId to, const Frame& frame) {
      if (from == b) freeze_at(sent, from, to, frame);
      return FrameFate{};
    });
    std::map<MicrobatchId, std::set<Attempt>> seen_by_d;
    bool claimed = false;
    std::uint32_t reported_by_d = 0, refused_at_b = 0, resent_by_others = 0;
    swarm.watch([&](SimNodeId from, SimNodeId to, const Frame& frame) {
      if (to == b) freeze_at(delivered, from, to, frame);
      const auto id = attempt_of(frame);
      if (id && to == d && kind_of(frame) == MessageKind::kForward)
        seen_by_d[id->microbatch].insert(id->attempt);
      if (!stuck) return;
      claimed |=
          from == c && kind_of(frame) == MessageKind::kClaim && id && id->microbatch == *stuck;
      if (id && id->microbatch == *stuck && kind_of(frame) == MessageKind::kForward) {
        if (from != a && from != b && id->attempt.value >> 32 != 0 && to != d) ++resent_by_others;
      }
      if (kind_of(frame) == MessageKind::kReport && from == d) {
        const auto report = parse<wire::Report>(frame);
        for (const auto& contribution : report->contributions())
          reported_by_d +=
              from_wire(report->phase()) == kDisturbed && contribution.index() == stuck->index;
      }
      if (kind_of(frame) == MessageKind::kReportAck && to == b)
        refused_at_b += static_cast<std::uint32_t>(parse<wire::ReportAck>(frame)->refused_size());
    });
    ASSERT_TRUE(swarm.until([&] { return stuck.has_value(); }));
    // C has taken over when its way reached D and came back.
    ASSERT_TRUE(swarm.until([&] { return claimed; }))
        << swarm.cluster().coordinator().status_json();
    EXPECT_LT(commits_of(swarm.cluster()), kStep + 1)
        << "B belongs to the step: it can't end without it";
    swarm.thaw(b);
    expect_reference(swarm, config);
    // Its own first try or the second one's: never both.
    EXPECT_EQ(reported_by_d, 1U);
    EXPECT_GE(seen_by_d[*stuck].size(), both_ways_meet_ ? 2U : 1U);
    if (late_add_) EXPECT_GT(refused_at_b, 0U) << "B's late contribution was taken for good";
    EXPECT_EQ(resent_by_others, 0U);
  }
  bool both_ways_meet_ = true;
  bool late_add_ = true;
};

TEST_P(ResendPastAFrozenPeer, AfterItForwardedMeetsAtTheNextStage) {
  // Awake again it reads A's cancel before D's gradient: A's socket was readable first.
  late_add_ = false;
  meets_at_the_next_stage(
      [](SimNodeId, SimNodeId, const Frame& frame) {
        return kind_of(frame) == MessageKind::kForward;
      },
      {});
}

TEST_P(ResendPastAFrozenPeer, BeforeItComputes) {
  // Awake again it hears of the cancel before its forward is done: nothing goes on from it.
  late_add_ = both_ways_meet_ = false;
  meets_at_the_next_stage({}, [](SimNodeId, SimNodeId, const Frame& frame) {
    return kind_of(frame) == MessageKind::kForward;
  });
}

TEST_P(ResendPastAFrozenPeer, BetweenGradientReceivedAndGradientSent) {
  meets_at_the_next_stage(
      [](SimNodeId, SimNodeId, const Frame& frame) {
        return kind_of(frame) == MessageKind::kGradientArrived;
      },
      {});
}

// B wakes and adds what C owns by now: it is refused, takes its own back, and is the one that adds
// it when C is lost.
TEST_P(ResendPastAFrozenPeer, WhoWasRefusedAddsItOnceItsOwnerIsLost) {
  RunConfig config = run_of({1, 2, 1});
  config.wiring.hop_timeout_seconds = 0.5;
  config.net.peer_silence_seconds = 20;
  Swarm swarm(options_for(config));
  swarm.until_started();
  const SimNodeId a = swarm.node(0, 0), b = swarm.node(1, 0), c = swarm.node(1, 1);
  std::optional<MicrobatchId> stuck;
  swarm.rule([&](SimNodeId from, SimNodeId, const Frame& frame) {
    const auto id = attempt_of(frame);
    if (stuck || from != b || kind_of(frame) != MessageKind::kGradientArrived ||
        id->microbatch.phase != kDisturbed)
      return FrameFate{};
    stuck = id->microbatch;
    swarm.freeze(b);
    return FrameFate{};
  });
  bool owned = false, refused = false;
  swarm.watch([&](SimNodeId, SimNodeId to, const Frame& frame) {
    if (!stuck || kind_of(frame) != MessageKind::kReportAck || (to != b && to != c)) return;
    const auto ack = parse<wire::ReportAck>(frame);
    if (from_wire(ack->phase()) != kDisturbed) return;
    if (to == c) owned |= std::ranges::find(ack->accepted(), stuck->index) != ack->accepted().end();
    if (to == b) refused |= std::ranges::find(ack->refused(), stuck->index) != ack->refused().end();
  });
  ASSERT_TRUE(swarm.until([&] { return owned; })) << history(swarm);
  swarm.hold(a, kCoordinatorNode);  // what it lacks of A keeps the step open
  {
    const MarkExpected second("ledger.second_owner_refused");
    swarm.thaw(b);
    ASSERT_TRUE(swarm.until([&] { return refused; })) << history(swarm);
  }
  swarm.kill(c);
  swarm.release(a, kCoordinatorNode);
  ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) > kStep; })) << history(swarm);
  swarm.finish();
  expect_equal(swarm.cluster().parameters(), reference_of(config));
}

INSTANTIATE_TEST_SUITE_P(Delay, ResendPastAFrozenPeer, testing::Values(0U, 1U));

class Stall : public Protocol {};

// Four stages in a row, one microbatch under way, the last but one stands still: only its neighbour
// acts, and only once.
TEST_P(Stall, OnlyTheNeighbourOfAStalledPeerActs) {
  RunConfig config = run_of({1, 1, 2, 1});
  config.wiring.hop_timeout_seconds = 0.5;
  config.pipeline.in_flight = 1;
  Swarm swarm(options_for(config));
  swarm.until_started();
  std::optional<SimNodeId> stalled;
  std::vector<wire::StallReport> reports;
  std::vector<SimNodeId> resenders;
  swarm.watch([&](SimNodeId from, SimNodeId to, const Frame& frame) {
    const auto id = attempt_of(frame);
    if (kind_of(frame) == MessageKind::kStallReport && to == kCoordinatorNode)
      reports.push_back(*parse<wire::StallReport>(frame));
    if (kind_of(frame) != MessageKind::kForward || id->microbatch.phase != kDisturbed) return;
    // A try of a peer's own says who sent again.
    if (const auto peer = id->attempt.value >> 32; peer != 0 && swarm.stage_of(to) == 2)
      resenders.push_back(from);
    if (swarm.stage_of(to) == 2 && !stalled) {
      stalled = to;
      swarm.freeze(to);
    }
  });
  ASSERT_TRUE(swarm.until([&] { return stalled.has_value(); }));
  swarm.cluster().runtime().run_for(3s);
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_EQ(reports[0].seat().stage(), 1U);
  EXPECT_EQ(from_wire(reports[0].stalled()), swarm.cluster().peer(*stalled - 1).seat());
  EXPECT_EQ(resenders, std::vector<SimNodeId>{swarm.node(1, 0)});
  swarm.thaw(*stalled);
  expect_reference(swarm, config);
}

// Its only candidate was banned, woke, and has nothing to answer: the answer to the cancel is what
// it is heard by.
TEST_P(Stall, ABannedPeerThatWakesIsUsedAgain) {
  RunConfig config = run_of({1, 1});
  config.wiring.hop_timeout_seconds = 0.5;
  Swarm swarm(options_for(config));
  swarm.until_started();
  const SimNodeId d = swarm.node(1, 0);
  bool frozen = false;
  swarm.watch([&](SimNodeId, SimNodeId to, const Frame& frame) {
    if (frozen || to != d || kind_of(frame) != MessageKind::kForward) return;
    frozen = true;
    swarm.freeze(d);
  });
  ASSERT_TRUE(swarm.until([&] { return frozen; }));
  swarm.cluster().runtime().run_for(5s);
  swarm.thaw(d);
  expect_reference(swarm, config);
}

// The last stage has its gradient at once: its sender's timer goes on after the forward is done.
TEST_P(Stall, TheLastStageStallsBetweenForwardDoneAndGradient) {
  RunConfig config = run_of({1, 2});
  config.wiring.hop_timeout_seconds = 0.5;
  Swarm swarm(options_for(config));
  swarm.until_started();
  std::optional<SimNodeId> stalled;
  swarm.rule([&](SimNodeId from, SimNodeId, const Frame& frame) {
    if (!stalled && kind_of(frame) == MessageKind::kForwardDone) {
      stalled = from;
      swarm.freeze(from);
    }
    return FrameFate{};
  });
  std::uint32_t sent_again = 0;
  swarm.watch([&](SimNodeId, SimNodeId to, const Frame& frame) {
    if (kind_of(frame) == MessageKind::kForward && attempt_of(frame)->attempt.value != 0 &&
        to != *stalled)
      ++sent_again;
  });
  ASSERT_TRUE(swarm.until([&] { return sent_again > 0; })) << "nobody sent past it";
  swarm.thaw(*stalled);
  expect_reference(swarm, config);
}

// B waits for the gradient of the run's first microbatch, and the forward of another one is taken
// from it before it was computed: the first one's gradient still finds its way.
TEST_P(Stall, AMicrobatchTakenBackBeforeItsForwardLeavesTheOthersAlone) {
  RunConfig config = run_of({1, 2, 1, 1});
  config.wiring.hop_timeout_seconds = 0.5;
  Swarm swarm(options_for(config));
  swarm.until_started();
  const SimNodeId a = swarm.node(0, 0), last = swarm.node(3, 0);
  const MicrobatchId first{{PhaseKind::kTrain, 0}, 0};
  constexpr double kSlow = 300;  // a forward takes longer than a hop may
  swarm.cluster().device(last - 1).slow_down(kSlow);
  std::optional<SimNodeId> b;
  swarm.rule([&](SimNodeId from, SimNodeId to, const Frame& frame) {
    if (!b && kind_of(frame) == MessageKind::kForwardDone && to == a &&
        attempt_of(frame)->microbatch == first) {
      b = from;
      swarm.cluster().device(from - 1).slow_down(kSlow);
    }
    return FrameFate{};
  });
  bool taken_back = false, given_up = false, came_back = false;
  swarm.watch([&](SimNodeId from, SimNodeId to, const Frame& frame) {
    const auto id = attempt_of(frame);
    if (!id) return;
    const MessageKind kind = kind_of(frame);
    taken_back |= kind == MessageKind::kCancel && from == a && b == to;
    given_up |= taken_back && kind == MessageKind::kForwardDone && b == from && to == a;
    came_back |= kind == MessageKind::kGradient && b == to && id->microbatch == first;
  });
  ASSERT_TRUE(swarm.until([&] { return given_up; })) << history(swarm);
  EXPECT_FALSE(came_back);
  swarm.cluster().device(*b - 1).slow_down(1);
  swarm.cluster().device(last - 1).slow_down(1);
  expect_reference(swarm, config);
}

// An evaluation that is sent again is reported under the second try's name.
TEST_P(Stall, AnEvaluationIsSentPastAFrozenPeer) {
  RunConfig config = run_of({1, 2, 1});
  config.wiring.hop_timeout_seconds = 0.5;
  SimClusterOptions options = options_for(config);
  options.eval_sequences = 8;
  Swarm swarm(std::move(options));
  swarm.until_started();
  const SimNodeId b = swarm.node(1, 0);
  bool frozen = false;
  swarm.watch([&](SimNodeId, SimNodeId to, const Frame& frame) {
    if (frozen || to != b || kind_of(frame) != MessageKind::kForward) return;
    if (attempt_of(frame)->microbatch.phase.kind != PhaseKind::kEval) return;
    frozen = true;
    swarm.freeze(b);
  });
  ASSERT_TRUE(swarm.until([&] { return frozen; }));
  swarm.cluster().runtime().run_for(5s);
  swarm.thaw(b);
  expect_reference(swarm, config);
  const auto& lines = swarm.cluster().log_lines();
  EXPECT_TRUE(std::any_of(lines.begin(), lines.end(), [](const std::string& line) {
    return line.find("\"eval\"") != std::string::npos;
  }));
}

INSTANTIATE_TEST_SUITE_P(Delay, Stall, testing::Values(0U, 1U));

}  // namespace
}  // namespace swarmline
