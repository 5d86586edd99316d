// Runs whose links are between keys, within this machine: who gets in, and who does not.
#include <csignal>
#include <sys/stat.h>

#include <gtest/gtest.h>

#include "engine/store/journal.h"
#include "node/run_access.h"
#include "tests/swarm/keyed_swarm.h"

namespace swarmline {
namespace {

unsigned mode_of(const std::string& path) {
  struct stat info{};
  EXPECT_EQ(stat(path.c_str(), &info), 0) << path;
  return info.st_mode & 0777U;
}

TEST(SwarmKeys, AWholeRunEndsWithItsReferencesParameters) {
  const SwarmFolder swarm(keyed({"model.dtype=fp64", "pipeline.peers=2"}));
  const Ended ended = swarm.launch();
  ASSERT_EQ(ended.code, 0) << ended.output << swarm.logs();
  expect_reference(swarm);
  for (const std::string& path :
       {swarm.run().run_key(), swarm.run().invites(), swarm.run().join_string()})
    EXPECT_EQ(mode_of(path), 0600U) << path;
  EXPECT_EQ(mode_of(swarm.run().keys()), 0700U);
  const auto book = read_invites(swarm.run());
  ASSERT_TRUE(book.has_value());
  ASSERT_EQ(book->invites().size(), 1U);
  EXPECT_EQ(book->invites()[0].admitted.size(), 4U);
  const auto journal = open_sqlite_journal(swarm.run().journal());
  ASSERT_TRUE(journal.has_value());
  const auto seats = (*journal)->seats();
  ASSERT_TRUE(seats.has_value());
  EXPECT_EQ(seats->size(), 4U);
  for (const SeatRecord& seat : *seats) {
    const auto key = parse_key_hash(seat.key);
    EXPECT_TRUE(key && book->invites()[0].admitted.contains(*key)) << seat.key;
  }
}

TEST(SwarmKeys, PeersJoinByFileVariableAndInput) {
  const SwarmFolder swarm(keyed({"pipeline.stages=3"}));
  Program coordinator = swarm.start("coordinator");
  const std::string join = printed_join(coordinator);
  const std::string program = SWARMLINE_BINARY_DIR "/swarmline";
  Program by_file(
      swarm.temp(), "by-file",
      {"peer", "--data-root", "/", "--join", swarm.run().join_string(), "--name", "by-file"});
  Program by_variable(
      swarm.temp(), "by-variable", "/bin/sh",
      {"-c", "SWARMLINE_JOIN='" + join + "' exec " + program + " peer --data-root /"});
  Program by_input(swarm.temp(), "by-input", "/bin/sh",
                   {"-c", "echo '" + join + "' | " + program + " peer --data-root / --join -"});
  EXPECT_EQ(coordinator.wait(), 0)
      << coordinator.output() << by_file.output() << by_variable.output() << by_input.output();
  for (Program* peer : {&by_file, &by_variable, &by_input})
    EXPECT_EQ(peer->wait(), 0) << peer->output();
}

TEST(SwarmKeys, OnlyWhoIsInvitedGetsIn) {
  const SwarmFolder swarm(keyed({"pipeline.stages=1", "run.steps=1000000"}));
  const std::string folder = swarm.run().path();
  Program coordinator = swarm.start("coordinator");
  const std::string join = printed_join(coordinator);
  const auto peer = [&](const std::string& name, const std::string& with) {
    return Program(
        swarm.temp(), name,
        {"peer", "--data-root", "/", "--join", with, "--name", name, "--join-patience", "2"});
  };
  const auto invite = [&](const std::string& name, std::vector<std::string> more) {
    more.insert(more.begin(), "invite");
    const Ended made = run_program(swarm.temp(), name, std::move(more));
    EXPECT_EQ(made.code, 0) << made.output;
    const std::size_t begin = made.output.find('\'') + 1;
    return made.output.substr(begin, made.output.find('\'', begin) - begin);
  };
  Program honest = peer("honest", join);
  ASSERT_TRUE(swarm.wait_for_step(1)) << honest.output();

  const std::string address = join.substr(join.find('@') + 1);
  Program plain = peer("plain", address);
  EXPECT_EQ(plain.wait(), 1) << "in clear text";

  const std::string once = invite("once", {folder, "--uses", "1"});
  Program first = peer("first", once);
  ASSERT_TRUE(first.wait_for_output("seated at stage 0"));
  Program second = peer("second", once);
  EXPECT_EQ(second.wait(), 3) << second.output();
  EXPECT_NE(second.output().find("was for 1"), std::string::npos) << second.output();

  const std::string revoked = invite("to-revoke", {folder});
  const Ended list = run_program(swarm.temp(), "list", {"invite", "list", folder});
  EXPECT_NE(list.output.find("used up"), std::string::npos) << list.output;
  const std::string id =
      list.output.substr(list.output.rfind('\n', list.output.size() - 2) + 1, 16);
  EXPECT_EQ(run_program(swarm.temp(), "revoke", {"invite", "revoke", id, folder}).code, 0);
  Program late = peer("late", revoked);
  EXPECT_EQ(late.wait(), 3) << late.output();
  EXPECT_NE(late.output().find("revoked"), std::string::npos) << late.output();

  // Who may look at the run, may not serve or stop it.
  const std::string observer = invite("observer", {folder, "--scope", "observer"});
  const Ended looked = run_program(swarm.temp(), "looked", {"status", observer});
  EXPECT_EQ(looked.code, 0) << looked.output;
  EXPECT_EQ(run_program(swarm.temp(), "stops", {"stop", observer}).code, 3);
  EXPECT_EQ(run_program(swarm.temp(), "stops-too", {"stop", join}).code, 3) << "a peer's";
  Program serves = peer("serves", observer);
  EXPECT_EQ(serves.wait(), 3) << serves.output();

  const Ended keys = run_program(swarm.temp(), "keys", {"keys", folder});
  EXPECT_EQ(keys.code, 0);
  EXPECT_TRUE(keys.output.starts_with("run ")) << keys.output;
  EXPECT_EQ(keys.output.find("secret"), std::string::npos);

  const std::string admin = invite("admin", {folder, "--scope", "admin"});
  EXPECT_EQ(run_program(swarm.temp(), "stop", {"stop", admin}).code, 0);
  EXPECT_EQ(coordinator.wait(), 0) << coordinator.output();
  EXPECT_EQ(honest.wait(), 0) << honest.output();
  EXPECT_EQ(first.wait(), 0) << first.output();
}

// Its key is the run's, so that another at its address is somebody else.
TEST(SwarmKeys, AnotherRunsCoordinatorAtTheAddressIsNotJoined) {
  const SwarmFolder swarm(keyed({"pipeline.stages=1"})), other(keyed({"pipeline.stages=1"}));
  Program here = swarm.start("coordinator");
  const std::string join = printed_join(here);
  const std::string address = join.substr(join.find('@') + 1);
  here.signal(SIGKILL);
  here.wait();
  Program there = other.start("coordinator", {"--set", "net.listen=\"" + address + "\""});
  printed_join(there);
  const Ended peer = run_program(
      swarm.temp(), "peer", {"peer", "--data-root", "/", "--join", join, "--join-patience", "1"});
  EXPECT_EQ(peer.code, 1) << peer.output;
  EXPECT_NE(peer.output.find("another run's"), std::string::npos) << peer.output;
  there.signal(SIGTERM);
  there.wait();
}

// The same key and the same invites: who has come finds it again.
TEST(SwarmKeys, ACoordinatorThatIsBegunAgainHasItsPeersBack) {
  const SwarmFolder swarm(keyed({"pipeline.stages=2", "run.steps=1000000"}));
  std::optional<Program> coordinator(swarm.start("coordinator"));
  const std::string join = printed_join(*coordinator);
  Program one(swarm.temp(), "one", {"peer", "--data-root", "/", "--join", join, "--name", "one"});
  Program two(swarm.temp(), "two", {"peer", "--data-root", "/", "--join", join, "--name", "two"});
  ASSERT_TRUE(swarm.wait_for_step(2)) << one.output() << two.output();
  coordinator->signal(SIGKILL);
  coordinator->wait();
  coordinator.emplace(swarm.start("coordinator"));
  const auto status = swarm.wait_for_step(2);  // it answers
  ASSERT_TRUE(status);
  EXPECT_EQ(printed_join(*coordinator), join);
  ASSERT_TRUE(swarm.wait_for_step(status->step + 2));
  EXPECT_EQ(run_program(swarm.temp(), "stop", {"stop", swarm.run().path()}).code, 0);
  EXPECT_EQ(coordinator->wait(), 0) << coordinator->output();
  EXPECT_EQ(one.wait(), 0) << one.output();
  EXPECT_EQ(two.wait(), 0) << two.output();
  const auto journal = open_sqlite_journal(swarm.run().journal());
  ASSERT_TRUE(journal.has_value());
  const auto seats = (*journal)->seats();
  ASSERT_TRUE(seats.has_value());
  EXPECT_EQ(seats->size(), 2U);
  for (const SeatRecord& seat : *seats) EXPECT_EQ(seat.seat.incarnation.value, 1U);
}

}  // namespace
}  // namespace swarmline
