// Attacks on what steers a run: over a simulated network against a running swarm, and against the
// files of a real run folder.
#include <filesystem>
#include <optional>
#include <sys/stat.h>

#include <gtest/gtest.h>

#include "engine/identity/shared_secret.h"
#include "engine/store/files.h"
#include "pipeline/protocol/admin_proof.h"
#include "tests/attacks/attacker.h"
#include "tests/harness/mark_expected.h"
#include "tests/store/temp_folder.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

const std::string kSecret(kSecretBytes, 's');

class AdminAttack : public SwarmUnderAttack {
 protected:
  AdminAttack() { options.admin_secret = kSecret; }

  static wire::StopRequest stop_now(const std::string& proof = {}) {
    wire::StopRequest stop;
    stop.set_now(true);
    stop.set_proof(proof);
    return stop;
  }
  std::string nonce(Attacker& attacker) {
    const auto reply = attacker.ask(MessageKind::kChallengeRequest, wire::ChallengeRequest());
    return reply ? parse<wire::ChallengeReply>(*reply)->nonce() : "";
  }
  std::string proof_of(Attacker& attacker, const std::string& secret) {
    return admin_proof(secret, nonce(attacker), MessageKind::kStopRequest, stop_now());
  }
  void expect_refused(Attacker& attacker, const wire::StopRequest& stop) {
    const auto reply = attacker.ask(MessageKind::kStopRequest, stop);
    ASSERT_FALSE(reply.has_value());
    EXPECT_EQ(reply.error().code, ErrorCode::kRefused);
    EXPECT_NE(reply.error().what.find("name the folder"), std::string::npos) << reply.error().what;
    EXPECT_FALSE(cluster().outcome().has_value());
  }
};

TEST_F(AdminAttack, OneFrameDoesNotStopARun) {
  begin();
  const MarkExpected mark("admin_gate.refused");
  Attacker attacker(cluster());
  expect_refused(attacker, stop_now());
  expect_ends_well();
}

TEST_F(AdminAttack, GuessedReplayedAndBorrowedProofsDoNotEither) {
  begin();
  Attacker attacker(cluster()), other(cluster());
  expect_refused(attacker, stop_now(std::string(32, '\0')));
  expect_refused(attacker, stop_now(proof_of(attacker, std::string(kSecretBytes, 'x'))));
  expect_refused(attacker, stop_now(proof_of(attacker, "")));
  expect_refused(attacker, stop_now(proof_of(other, kSecret)));  // over another connection
  wire::StopRequest drain;
  drain.set_proof(proof_of(attacker, kSecret));  // of the other request
  expect_refused(attacker, drain);
  const std::string status_proof =
      admin_proof(kSecret, nonce(attacker), MessageKind::kStatusRequest, wire::StatusRequest());
  expect_refused(attacker, stop_now(status_proof));
  expect_ends_well();
}

TEST_F(AdminAttack, AProofIsGoodOnce) {
  begin();
  Attacker attacker(cluster());
  wire::StatusRequest status;
  status.set_proof(
      admin_proof(kSecret, nonce(attacker), MessageKind::kStatusRequest, wire::StatusRequest()));
  {
    const MarkExpected proved("admin_gate.proved");
    ASSERT_TRUE(attacker.ask(MessageKind::kStatusRequest, status).has_value());
  }
  const auto* const proved = Mark::find("admin_gate.proved");
  const auto before = proved->hits();
  ASSERT_TRUE(attacker.ask(MessageKind::kStatusRequest, status).has_value());
  EXPECT_EQ(proved->hits(), before) << "it looks like a stranger again";
  expect_ends_well();
}

TEST_F(AdminAttack, WhoKnowsTheSecretStopsTheRun) {
  begin();
  Attacker user(cluster());
  ASSERT_TRUE(user.ask(MessageKind::kStopRequest, stop_now(proof_of(user, kSecret))).has_value());
  const auto outcome = cluster().run(10s);
  ASSERT_TRUE(outcome.has_value());
  EXPECT_EQ(outcome->exit_code, 130);
}

TEST_F(AdminAttack, WhoAsksForNothingMoreIsClosed) {
  options.config.run.steps = 200;
  begin();
  Attacker idle(cluster());
  ASSERT_TRUE(idle.ask(MessageKind::kStatusRequest, wire::StatusRequest()).has_value());
  const MarkExpected mark("reign.nobodys_link");
  cluster().run_until([&] { return idle.was_closed(); }, 60s);
  EXPECT_TRUE(idle.was_closed());
  EXPECT_FALSE(cluster().outcome().has_value());
}

// [Each cost the coordinator a status: one link took nine of ten steps from a run.]
TEST_F(AdminAttack, AFloodOfStatusRequestsIsAnsweredWithOneStatus) {
  begin();
  Attacker flood(cluster());
  const auto* const made = Mark::find("reign.status_made");
  const std::uint64_t before = made == nullptr ? 0 : made->hits();
  constexpr std::uint64_t kAsked = 5000;
  for (std::uint64_t i = 1; i <= kAsked; ++i) {
    Frame frame = make_frame(MessageKind::kStatusRequest, wire::StatusRequest());
    frame.request = i;
    flood.send(std::move(frame));
  }
  ASSERT_TRUE(cluster().run_until([&] { return flood.frames().size() == kAsked; }, 10s));
  EXPECT_LE(Mark::find("reign.status_made")->hits() - before, 100U);
  expect_ends_well();
}

TEST_F(AdminAttack, ARunWithoutASecretIsStoppedByNobody) {
  options.admin_secret = "";
  begin();
  Attacker attacker(cluster());
  expect_refused(attacker, stop_now(proof_of(attacker, "")));
  expect_ends_well();
}

TEST(AdminSecret, IsForItsUserAlone) {
  const TempFolder temp;
  const std::string path = temp.path() + "/admin.key";
  const auto made = make_shared_secret(path);
  ASSERT_TRUE(made.has_value()) << made.error().what;
  EXPECT_EQ(made->size(), kSecretBytes);
  EXPECT_EQ(*make_shared_secret(path), *made) << "a run that goes on keeps it";
  struct stat about{};
  ASSERT_EQ(::stat(path.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777U, 0600U);
  ASSERT_EQ(::chmod(path.c_str(), 0640), 0);
  const auto shown = read_shared_secret(path);
  ASSERT_FALSE(shown.has_value());
  EXPECT_EQ(shown.error().code, ErrorCode::kUserMistake);
  EXPECT_NE(shown.error().what.find("chmod 600"), std::string::npos);
  ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
  ASSERT_TRUE(write_text_file_atomically(path, "nothing\n"));
  ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
  EXPECT_FALSE(read_shared_secret(path).has_value());
  EXPECT_EQ(list_folder(temp.path())->size(), 1U) << "nothing lies beside it";
}

}  // namespace
}  // namespace swarmline
