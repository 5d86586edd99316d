// The key of a run of real processes changes: while it trains, and while its coordinator is away.
#include <algorithm>
#include <csignal>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "engine/store/files.h"
#include "engine/store/journal.h"
#include "engine/store/secret_file.h"
#include "node/admission/run_key.h"
#include "tests/swarm/keyed_swarm.h"

namespace swarmline {
namespace {

std::vector<EventRecord> events(const SwarmFolder& swarm) {
  const auto journal = open_sqlite_journal(swarm.run().journal());
  auto events = journal ? (*journal)->events(1000) : Result<std::vector<EventRecord>>();
  EXPECT_TRUE(events.has_value());
  return events ? std::move(*events) : std::vector<EventRecord>();
}

std::size_t events_of(const SwarmFolder& swarm, const std::string& kind) {
  return static_cast<std::size_t>(std::ranges::count(events(swarm), kind, &EventRecord::kind));
}

std::string history(const SwarmFolder& swarm) {
  std::string text;
  for (const EventRecord& event : events(swarm))
    text += fmt::format("{:.3f} {} {}\n", event.wall_seconds, event.kind, event.detail);
  return text;
}

TEST(SwarmRotation, ALivingRunsKeyIsChangedAndNoStepIsLost) {
  const SwarmFolder swarm(keyed({"model.dtype=fp64", "pipeline.peers=2", "run.steps=1000000",
                                 "optimizer.lr_decay_steps=60", "balance.moves=false"}));
  Program coordinator = swarm.start("coordinator");
  const std::string old_join = printed_join(coordinator);
  std::vector<std::string> slow = swarm.emulating(4, 8);
  slow.front() = "--config";  // as a peer calls it
  const auto start = [&](const std::string& name, const std::string& program_name) {
    std::vector<std::string> command = {"peer",   "--data-root", "/",
                                        "--join", old_join,      "--name",
                                        name,     "--key",       swarm.temp().at(name + ".key")};
    command.insert(command.end(), slow.begin(), slow.end());
    return Program(swarm.temp(), program_name, std::move(command));
  };
  std::vector<Program> peers;
  for (const char* name : {"one", "two", "three", "four"}) peers.push_back(start(name, name));
  ASSERT_TRUE(swarm.wait_for_step(2)) << coordinator.output();

  const std::string folder = swarm.run().path();
  const Ended rotated = run_program(swarm.temp(), "rotate", {"keys", "rotate", folder});
  EXPECT_EQ(rotated.code, 0) << rotated.output;
  EXPECT_NE(rotated.output.find(" shows it;"), std::string::npos) << rotated.output;
  for (Program& peer : peers) EXPECT_TRUE(peer.wait_for_output("certified its seat anew"));
  const auto status = swarm.status();
  ASSERT_TRUE(status);
  peers.back().signal(SIGKILL);
  peers.back().wait();
  ASSERT_TRUE(swarm.wait_for_step(status->step + 2)) << coordinator.output();
  // It knows the key of before, and nobody has told it anything.
  Program back = start("four", "four-again");
  EXPECT_TRUE(back.wait_for_output("seated at stage")) << coordinator.output();
  EXPECT_EQ(run_program(swarm.temp(), "again", {"keys", "rotate", folder}).code, 0);
  const Ended now = run_program(swarm.temp(), "now", {"checkpoint", "now", folder});
  EXPECT_EQ(now.code, 0) << now.output;
  EXPECT_NE(now.output.find("a checkpoint will be written as step-"), std::string::npos)
      << now.output;
  const auto later = swarm.status();
  ASSERT_TRUE(later);
  ASSERT_TRUE(swarm.wait_for_step(later->step + 2)) << coordinator.output();
  EXPECT_EQ(run_program(swarm.temp(), "stop", {"stop", folder}).code, 0);
  EXPECT_EQ(coordinator.wait(), 0) << coordinator.output();
  peers.pop_back();
  for (Program& peer : peers) EXPECT_EQ(peer.wait(), 0) << peer.output();
  EXPECT_EQ(back.wait(), 0) << back.output();
  expect_reference_as_far_as_it_got(swarm);
  EXPECT_EQ(events_of(swarm, "key_changed"), 3U) << "the first one, and both after it";
  EXPECT_EQ(events_of(swarm, "peer_joined"), 5U) << "nobody but the killed one came anew\n"
                                                 << history(swarm);
  const Ended keys = run_program(swarm.temp(), "keys", {"keys", folder});
  EXPECT_NE(keys.output.find("\nbefore  "), std::string::npos) << keys.output;
}

// Whoever leads next has the key that the run has come to, and no other.
TEST(SwarmRotation, ACoordinatorThatIsBegunAgainShowsTheNewKey) {
  const SwarmFolder swarm(keyed({"pipeline.stages=2", "run.steps=1000000"}));
  std::optional<Program> coordinator(swarm.start("coordinator"));
  const std::string join = printed_join(*coordinator);
  Program one(swarm.temp(), "one", {"peer", "--data-root", "/", "--join", join, "--name", "one"});
  Program two(swarm.temp(), "two", {"peer", "--data-root", "/", "--join", join, "--name", "two"});
  ASSERT_TRUE(swarm.wait_for_step(2)) << one.output() << two.output();
  const std::string old_key = *read_text_file(swarm.run().run_key(), 10'000);
  coordinator->signal(SIGKILL);
  coordinator->wait();
  const Ended rotated = run_program(swarm.temp(), "rotate", {"keys", "rotate", swarm.run().path()});
  EXPECT_EQ(rotated.code, 0) << rotated.output;
  const std::string new_key = *read_text_file(swarm.run().run_key(), 10'000);
  coordinator.emplace(swarm.start("coordinator"));
  const auto status = swarm.wait_for_step(2);
  ASSERT_TRUE(status);
  EXPECT_NE(*read_text_file(swarm.run().join_string(), 5000), join + "\n");
  ASSERT_TRUE(swarm.wait_for_step(status->step + 2)) << one.output() << coordinator->output();
  EXPECT_EQ(events_of(swarm, "peer_joined"), 2U) << "they came back to their seats\n"
                                                 << history(swarm);

  // A copy of the key from before: nobody would come to a coordinator that shows it.
  coordinator->signal(SIGKILL);
  coordinator->wait();
  ASSERT_TRUE(replace_secret_file(swarm.run().run_key(), old_key));
  Program stale = swarm.start("coordinator");
  EXPECT_EQ(stale.wait(), 2);
  EXPECT_NE(stale.output().find("not the key of this run any more"), std::string::npos)
      << stale.output();
  ASSERT_TRUE(replace_secret_file(swarm.run().run_key(), new_key));
  coordinator.emplace(swarm.start("coordinator"));
  ASSERT_TRUE(swarm.wait_for_step(status->step + 3));
  EXPECT_EQ(run_program(swarm.temp(), "stop", {"stop", swarm.run().path()}).code, 0);
  EXPECT_EQ(coordinator->wait(), 0) << coordinator->output();
  EXPECT_EQ(one.wait(), 0) << one.output();
  EXPECT_EQ(two.wait(), 0) << two.output();
}

TEST(SwarmRotation, AKeyIsMadeAheadAndTheAddressAloneTellsWhatToDo) {
  const SwarmFolder swarm(keyed({"pipeline.stages=1", "run.steps=1000000"}));
  const std::string folder = swarm.run().path();
  const Ended made = run_program(swarm.temp(), "make", {"keys", "make", folder});
  EXPECT_EQ(made.code, 0) << made.output;
  const auto key = load_run_key(swarm.run().run_key());
  ASSERT_TRUE(key.has_value());
  EXPECT_NE(made.output.find(to_string(key->identity.hash())), std::string::npos) << made.output;
  Program coordinator = swarm.start("coordinator");
  const std::string join = printed_join(coordinator);
  EXPECT_EQ(parse_join_string(join)->run_key, key->identity.hash());
  const std::string address = join.substr(join.find('@') + 1);
  for (const char* command : {"status", "stop"}) {
    const Ended told = run_program(swarm.temp(), command, {command, address});
    EXPECT_EQ(told.code, 2) << told.output;
    EXPECT_NE(told.output.find("invite RUN_FOLDER --scope observer"), std::string::npos)
        << told.output;
  }
  const Ended asked =
      run_program(swarm.temp(), "long", {"keys", "rotate", folder, "--overlap", "8d"});
  EXPECT_EQ(asked.code, 2) << asked.output;
  EXPECT_NE(asked.output.find("at most 7 days"), std::string::npos) << asked.output;
  // Only the one way changes it.
  const RunKey another{.identity = Identity::make()};
  ASSERT_TRUE(replace_secret_file(swarm.run().run_key(), to_text(another)));
  EXPECT_TRUE(coordinator.wait_for_output("the run's key has not signed"));
  ASSERT_TRUE(replace_secret_file(swarm.run().run_key(), to_text(*key)));
  EXPECT_EQ(run_program(swarm.temp(), "ends", {"stop", folder}).code, 0);
  EXPECT_EQ(coordinator.wait(), 0) << coordinator.output();
}

}  // namespace
}  // namespace swarmline
