// That the oracles of simulated runs see what they are there to see: each is shown a run, or a
// state, in which its rule is broken.
#include <memory>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "pipeline/coordinator/steps/commit_round.h"
#include "sim/cluster/fake_stage_model.h"
#include "sim/cluster/model_wrapper.h"
#include "sim/oracles/swarm_oracles.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

using MakeModel = decltype(SimClusterOptions::make_model);

SimClusterOptions small_swarm(MakeModel make_model = make_fake_model) {
  SimClusterOptions options;
  options.config.run.steps = 8;
  options.config.model.layers = 2;
  options.config.model.d_model = 8;
  options.config.model.heads = 2;
  options.config.model.dtype = DType::kF64;
  options.config.data.files = {"synthetic"};
  options.config.batch = {.batch = 16, .microbatch = 2, .sequence = 4};
  options.config.pipeline.stages = 2;
  options.config.pipeline.peers = {1, 2};
  options.make_model = std::move(make_model);
  return options;
}

// The run under the oracles; what they found, a line each.
std::string findings_of(SimClusterOptions options) {
  SimCluster cluster(std::move(options));
  SwarmOracles oracles(cluster);
  cluster.run_until(
      [&] {
        oracles.look();
        return cluster.outcome().has_value();
      },
      3600s);
  oracles.look_all();
  std::string all;
  for (const OracleFinding& finding : oracles.findings())
    all += std::string(to_string(finding.rule)) + ": " + finding.what + "\n";
  return all;
}

// The model that is made as the `which`-th is spoilt.
template <typename Spoilt>
MakeModel spoiling(int which) {
  return [which, made = std::make_shared<int>(0)](
             const ModelSpec& spec, const StageSpec& stage,
             const StageModelOptions& options) -> Result<std::unique_ptr<StageModel>> {
    auto model = make_fake_model(spec, stage, options);
    if (!model || (*made)++ != which) return model;
    return std::make_unique<Spoilt>(std::move(*model));
  };
}

TEST(SwarmOracles, FindNothingInARunThatNothingHappensTo) {
  EXPECT_EQ(findings_of(small_swarm()), "");
}

// One bit of its parameters changes while it serves: two replicas differ, nobody knows which is
// right, and the run goes back although both are there.
class ForgetfulModel final : public ModelWrapper {
 public:
  using ModelWrapper::ModelWrapper;
  void parameters_changed() override {
    if (++changes_ == 4) parameters()[0] ^= std::byte{1};
    ModelWrapper::parameters_changed();
  }

 private:
  int changes_ = 0;
};

TEST(SwarmOracles, SeeAnEraThatBeginsWhileEveryStageIsHeld) {
  const std::string found = findings_of(small_swarm(spoiling<ForgetfulModel>(2)));
  EXPECT_NE(found.find("era: the run goes back from version"), std::string::npos) << found;
  EXPECT_NE(found.find("hold different parameters"), std::string::npos) << found;
}

class BreakingModel final : public ModelWrapper {
 public:
  using ModelWrapper::ModelWrapper;
  Result<BackwardOutput> backward(const BackwardInput& input) override {
    if (++passes_ == 5) return fail(ErrorCode::kDevice, "planted");
    return ModelWrapper::backward(input);
  }

 private:
  int passes_ = 0;
};

TEST(SwarmOracles, SeeThatSomebodyEndsWhomNothingHurt) {
  const std::string found = findings_of(small_swarm(spoiling<BreakingModel>(2)));
  EXPECT_NE(found.find("was not hurt and ends with 1"), std::string::npos) << found;
}

TEST(SwarmOracles, SeeThatSomebodyIsFencedWhomNothingHurt) {
  SimClusterOptions options = small_swarm();
  options.config.wiring.hop_timeout_seconds = 0.3;
  options.peers = {{}, {}, {.forward = 1h, .backward = 1h}};
  const std::string found = findings_of(std::move(options));
  EXPECT_NE(found.find("fence: node 3 was not hurt and is fenced"), std::string::npos) << found;
}

constexpr MicrobatchId kOne{.phase = {}, .index = 1}, kTwo{.phase = {}, .index = 2};

// In the place of a coordinator's guard: it asks nobody for anything, or takes nobody.
class Doorman final : public LinkGuard {
 public:
  Doorman(std::shared_ptr<LinkGuard> guard, bool opens) : guard_(std::move(guard)), opens_(opens) {}
  const Identity& identity() const override { return guard_->identity(); }
  std::optional<KeyHash> pinned(const Address&) override { return std::nullopt; }
  std::string opening(const Address&, const LinkFacts&) override { return {}; }
  Result<std::string> judge(const Address& dialled, const LinkFacts& facts,
                            const std::string& answer) override {
    return guard_->judge(dialled, facts, answer);
  }
  void admit(const LinkFacts&, const std::string&, Verdict verdict) override {
    if (opens_) return verdict(Admission{.as = "peer", .answer = {}});
    verdict(fail(ErrorCode::kRefused, "nobody comes in"));
  }

 private:
  std::shared_ptr<LinkGuard> guard_;
  bool opens_;
};

std::string findings_at_the_door(bool opens, SimTicket ticket) {
  SimClusterOptions options = small_swarm();
  options.keys = true;
  options.config.run.steps = 1000;  // it goes on while somebody comes
  SimCluster cluster(std::move(options));
  SwarmOracles oracles(cluster);
  auto& guard = cluster.network().wire().guards.at(kCoordinatorNode);
  cluster.runtime().run_for(1s);
  guard = std::make_shared<Doorman>(guard, opens);
  cluster.add_peer({.ticket = ticket});
  cluster.runtime().run_for(1s);
  std::string all;
  for (const OracleFinding& finding : oracles.findings())
    all += std::string(to_string(finding.rule)) + ": " + finding.what + "\n";
  return all;
}

TEST(SwarmOracles, SeeWhoComesInThatMayNot) {
  const std::string findings = findings_at_the_door(true, SimTicket::kExpired);
  EXPECT_NE(findings.find("door: node 0 takes a link of the stranger at node 4"), std::string::npos)
      << findings;
  EXPECT_NE(findings.find("is given to a stranger"), std::string::npos) << findings;
}

TEST(SwarmOracles, SeeWhoIsRefusedThatMayComeIn) {
  const std::string findings = findings_at_the_door(false, SimTicket::kGood);
  EXPECT_NE(findings.find("door: node 0 refuses node 4"), std::string::npos) << findings;
  EXPECT_EQ(findings_at_the_door(false, SimTicket::kExpired).find("door: "), std::string::npos);
}

TEST(OrphanWatch, SeesAMicrobatchThatNobodyTries) {
  OrphanWatch watch(10s);
  const Instant start{};
  EXPECT_EQ(watch.sample(start, {kOne, kTwo}, {kOne}, true), std::nullopt);
  EXPECT_EQ(watch.sample(start + 10s, {kOne, kTwo}, {kOne}, true), std::nullopt) << "on its way";
  EXPECT_EQ(watch.sample(start + 11s, {kOne, kTwo}, {kOne}, true), kTwo);
}

TEST(OrphanWatch, CountsFromTheLastTimeThatItWasTriedOrHeldUp) {
  OrphanWatch watch(10s);
  const Instant start{};
  watch.sample(start, {kTwo}, {}, true);
  watch.sample(start + 9s, {kTwo}, {kTwo}, true);
  EXPECT_EQ(watch.sample(start + 12s, {kTwo}, {}, true), std::nullopt);
  EXPECT_EQ(watch.sample(start + 20s, {kTwo}, {}, false), std::nullopt);
  EXPECT_EQ(watch.sample(start + 29s, {kTwo}, {}, true), std::nullopt);
  EXPECT_EQ(watch.sample(start + 40s, {kTwo}, {}, true), kTwo);
}

TEST(SizeWatch, SeesWhatIsBeyondItsBound) {
  SizeWatch watch;
  const NamedSize fits{"fences", 3, 3}, grown{"fences", 4, 3};
  EXPECT_EQ(watch.sample("the coordinator", {&fits, 1}), std::nullopt);
  EXPECT_EQ(watch.sample("the coordinator", {&grown, 1}),
            "fences of the coordinator is 4, its bound is 3");
  EXPECT_EQ(watch.peaks().at("fences"), 4U);
}

TEST(OwnersOutside, AreThoseWhoseContributionsWouldBeInNoSum) {
  const Phase phase;
  const StageId stage{0};
  const Seat member{.peer = PeerId{1}, .stage = stage}, joiner{.peer = PeerId{2}, .stage = stage};
  Ledger ledger;
  ledger.begin_term(Term{1});
  ledger.open(phase, Version{0}, 2, 1);
  ledger.lease(phase, member, 2);
  ledger.report(phase, stage, 0, member, Attempt{0});
  ledger.report(phase, stage, 1, joiner, Attempt{0});
  EXPECT_TRUE(owners_outside(ledger, phase, stage, {member}).empty()) << "nothing is sealed yet";
  ledger.begin_close(phase, stage);
  EXPECT_EQ(owners_outside(ledger, phase, stage, {member}), std::vector{joiner});
  EXPECT_TRUE(owners_outside(ledger, phase, stage, {member, joiner}).empty());
}

TEST(Ledger, SaysWhichMicrobatchesRelyOnSomebody) {
  const Phase phase;
  const StageId stage{0};
  const Seat seat{.peer = PeerId{1}, .stage = stage};
  Ledger ledger;
  ledger.begin_term(Term{1});
  ledger.open(phase, Version{0}, 3, 1);
  EXPECT_TRUE(ledger.relying_on_tries(phase).empty()) << "nothing is leased";
  ledger.lease(phase, seat, 2);
  EXPECT_EQ(ledger.relying_on_tries(phase), (std::vector<std::uint32_t>{0, 1}));
  ledger.report(phase, stage, 0, seat, Attempt{0});
  EXPECT_EQ(ledger.relying_on_tries(phase), std::vector<std::uint32_t>{1});
  ledger.expire(phase, 1);
  EXPECT_TRUE(ledger.relying_on_tries(phase).empty()) << "it can be leased again";
}

}  // namespace
}  // namespace swarmline
