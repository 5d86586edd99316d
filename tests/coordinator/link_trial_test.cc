// What a machine that may join is told of its link, over simulated links.
#include "pipeline/coordinator/members/link_trial.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "pipeline/protocol/knobs.h"
#include "pipeline/protocol/protocol_version.h"
#include "tests/coordinator/parts_bench.h"
#include "tests/harness/all_marks_hit.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

const auto* const kMarks = expect_all_marks("link_trial.");

class Trial : public ::testing::Test {
 protected:
  Address listen() {
    return *bench.network.node(1).listen({"sim", 0}, [this](auto connection) {
      connection->start({.on_frame = [](Frame) {}, .on_closed = [](const Error&) {}});
      taken.push_back(std::move(connection));
    });
  }
  std::unique_ptr<FakeSession> comes_from(const std::string& remote) {
    auto caller = std::make_unique<FakeSession>();
    caller->channel->comes_from(remote);
    return caller;
  }
  void ask(const FakeSession& asker, const wire::TrialRequest& request) {
    trial.on_request(
        asker.session, make_frame(kTrialRequest, request),
        [this](Result<Frame> frame) { answers.push_back(*parse<wire::TrialReply>(*frame)); });
    bench.flush();
  }
  wire::TrialReply answer_after_a_second() {
    bench.clock.run_for(2s);
    bench.flush();
    EXPECT_FALSE(answers.empty());
    return answers.empty() ? wire::TrialReply() : answers.back();
  }

  PartsBench bench;
  std::shared_ptr<const DataManifest> manifest = std::make_shared<const DataManifest>(
      DataManifest{.folder = "data", .files = {{.name = "a.txt", .bytes = 3, .used = 3}}});
  DataDesk data{manifest, 2};
  LinkTrial trial{{.network = bench.network.node(0),
                   .alarms = bench.alarms,
                   .shape = bench.shape,
                   .data = data,
                   .outbox = bench.outbox}};
  std::vector<std::shared_ptr<Connection>> taken;
  std::vector<wire::TrialReply> answers;
};

TEST_F(Trial, TellsTheClockAndTheAddressThatTheLinkComesFrom) {
  const auto asker = comes_from("10.0.0.9:5000");
  ask(*asker, {});
  const wire::TrialReply answer = answers.at(0);
  EXPECT_EQ(answer.protocol(), kProtocolVersion);
  EXPECT_EQ(answer.seen_from(), "10.0.0.9:5000");
  EXPECT_DOUBLE_EQ(answer.wall_seconds(), bench.alarms.runtime().wall_seconds());
  EXPECT_TRUE(answer.reach().empty());
  EXPECT_TRUE(answer.config_toml().empty());
}

TEST_F(Trial, DialsTheAskersOwnAddressAndSaysWhetherItAnswers) {
  const auto asker = comes_from("sim:77");
  wire::TrialRequest request;
  request.set_dial_back(to_string(listen()));
  ask(*asker, request);
  EXPECT_TRUE(answers.empty()) << "it is being dialled";
  EXPECT_EQ(answer_after_a_second().reach(), "yes");
  EXPECT_EQ(taken.size(), 1U);

  request.set_dial_back("sim:9");
  ask(*asker, request);
  EXPECT_EQ(answer_after_a_second().reach(), "no");
  EXPECT_FALSE(answers.back().not_reached().empty());
}

// An asker may name any address: the coordinator is nobody's port scanner.
TEST_F(Trial, AnotherHostsAddressIsNeverDialled) {
  const auto asker = comes_from("10.0.0.9:5000");
  wire::TrialRequest request;
  request.set_dial_back(to_string(listen()));
  ask(*asker, request);
  EXPECT_EQ(answers.at(0).reach(), "elsewhere");
  bench.clock.run_for(5s);
  EXPECT_TRUE(taken.empty());
}

TEST_F(Trial, OneDialOfALinkIsUnderWayAtATime) {
  const auto asker = comes_from("sim:77");
  wire::TrialRequest request;
  request.set_dial_back(to_string(listen()));
  ask(*asker, request);
  ask(*asker, request);
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers.back().reach(), "unknown");
  EXPECT_EQ(answer_after_a_second().reach(), "yes");
  EXPECT_EQ(taken.size(), 1U);
}

TEST_F(Trial, TheRunIsToldToThoseWhoMayJoinItAlone) {
  wire::TrialRequest request;
  request.set_wants_run(true);
  const auto peer = comes_from("10.0.0.9:5000");
  ask(*peer, request);
  EXPECT_EQ(answers.back().config_toml(), "the config");
  EXPECT_EQ(answers.back().vocab(), 31U);
  EXPECT_EQ(answers.back().data().files_size(), 1);

  const auto observer = comes_from("10.0.0.9:5000");
  observer->channel->admit_as("observer");
  ask(*observer, request);
  EXPECT_TRUE(answers.back().config_toml().empty());
  EXPECT_EQ(answers.back().data().files_size(), 0);
  EXPECT_EQ(answers.back().protocol(), kProtocolVersion);
}

TEST_F(Trial, FillerIsBounded) {
  const auto asker = comes_from("10.0.0.9:5000");
  wire::TrialRequest request;
  request.set_answer_bytes(1000);
  ask(*asker, request);
  EXPECT_EQ(answers.back().filler().size(), 1000U);
  request.set_answer_bytes(UINT32_MAX);
  ask(*asker, request);
  EXPECT_EQ(answers.back().filler().size(), kTrialFillerBytesMax);
}

}  // namespace
}  // namespace swarmline
