// `swarmline doctor` against real runs, with real faults: a coordinator that can't be reached, or
// can't reach back, the key of another run, a file with other contents.
#include <optional>
#include <string>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

#include "engine/identity/identity.h"
#include "engine/store/json_value.h"
#include "node/admission/join_string.h"
#include "tests/swarm/hosts.h"
#include "tests/swarm/keyed_swarm.h"
#include "tests/swarm/swarm_process.h"

namespace swarmline {
namespace {

// The verdict on a check, in what `doctor --json` printed.
std::string verdict(const Ended& ended, const std::string& check) {
  const std::size_t begin = ended.output.find('{');
  const auto json = parse_json(begin == std::string::npos ? "" : ended.output.substr(begin));
  if (!json) return "no JSON: " + ended.output;
  for (const JsonValue& found : (*json)["checks"].items)
    if (found["check"].string == check) return found["verdict"].string;
  return "no such check: " + ended.output;
}

Ended doctor(const SwarmFolder& swarm, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"doctor", "--json"});
  return run_program(swarm.temp(), "doctor", std::move(arguments));
}

TEST(SwarmDoctor, AMachineThatCanJoin) {
  const SwarmFolder swarm(kKeyed);
  Program coordinator = swarm.start("coordinator");
  const std::string join = printed_join(coordinator);
  const Ended ended = doctor(swarm, {"--join", join, "--data-root", swarm.temp().path()});
  EXPECT_EQ(ended.code, 0) << ended.output;
  for (const char* const check : {"port", "coordinator", "key", "version", "clock", "reach", "data",
                                  "memory", "disk", "descriptors", "libtorch"})
    EXPECT_EQ(verdict(ended, check), "ok") << check << "\n" << ended.output;
  EXPECT_EQ(verdict(ended, "driver"), "skipped");
  coordinator.signal(SIGINT);
  coordinator.wait();
}

TEST(SwarmDoctor, TheKeyOfAnotherRun) {
  const SwarmFolder swarm(kKeyed);
  Program coordinator = swarm.start("coordinator");
  auto join = parse_join_string(printed_join(coordinator));
  ASSERT_TRUE(join.has_value());
  join->run_key = Identity::make().hash();
  const Ended ended = doctor(swarm, {"--join", *to_text(*join)});
  EXPECT_EQ(ended.code, 1) << ended.output;
  EXPECT_EQ(verdict(ended, "key"), "fail") << ended.output;
  EXPECT_EQ(verdict(ended, "coordinator"), "ok") << ended.output;
  coordinator.signal(SIGINT);
  coordinator.wait();
}

TEST(SwarmDoctor, AFileWithOtherContents) {
  const SwarmFolder swarm(kKeyed);
  Program coordinator = swarm.start("coordinator");
  const std::string join = printed_join(coordinator);
  std::string text = slurp(swarm.temp().at("text"));
  ASSERT_FALSE(text.empty());
  text[text.size() / 2] ^= 1;
  swarm.temp().write("copy/text", text);
  const Ended ended = doctor(swarm, {"--join", join, "--data", swarm.temp().at("copy")});
  EXPECT_EQ(ended.code, 1) << ended.output;
  EXPECT_EQ(verdict(ended, "data"), "fail") << ended.output;
  coordinator.signal(SIGINT);
  coordinator.wait();
}

TEST(SwarmDoctor, ALivingRun) {
  const SwarmFolder swarm({});
  Program coordinator = swarm.start("coordinator");
  EXPECT_TRUE(coordinator.wait_for_output("swarmline peer --join"));
  const Ended ended = doctor(swarm, {"--status", swarm.run().path()});
  EXPECT_EQ(ended.code, 0) << ended.output;
  EXPECT_EQ(verdict(ended, "run"), "warn") << "it waits for peers: " << ended.output;
  EXPECT_EQ(verdict(ended, "journal"), "ok") << ended.output;
  coordinator.signal(SIGINT);
  coordinator.wait();
}

TEST(SwarmDoctor, UsersMistakes) {
  const SwarmFolder swarm({});
  EXPECT_EQ(doctor(swarm, {"--join", "swarm1nonsense@127.0.0.1:1"}).code, 2);
  EXPECT_EQ(doctor(swarm, {"--status", swarm.temp().at("none.json")}).code, 2);
  EXPECT_EQ(doctor(swarm, {swarm.temp().at("none.toml")}).code, 2);
  EXPECT_EQ(doctor(swarm, {"--set", "run.steps=1"}).code, 2);
}

class DoctorHosts : public HostsTest {
 protected:
  DoctorHosts() : HostsTest(2) {}
  Ended doctor_on(const SwarmFolder& swarm, int host, const std::string& join) const {
    Program program = hosts_->start(swarm, host, "doctor-on-" + std::to_string(host),
                                    {SWARMLINE_BINARY_DIR "/swarmline", "doctor", "--json",
                                     "--join", join, "--data-root", swarm.temp().path()});
    const int code = program.wait();
    return {.code = code, .output = program.output()};
  }
};

const std::vector<std::string> kOpen = {"net.listen=\"0.0.0.0:0\""};

TEST_F(DoctorHosts, AnotherMachineThatReachesAndIsReached) {
  const SwarmFolder swarm(kOpen);
  Program coordinator = start_coordinator(swarm);
  const Ended ended = doctor_on(swarm, 1, printed_join(coordinator));
  EXPECT_EQ(ended.code, 0) << ended.output;
  EXPECT_EQ(verdict(ended, "reach"), "ok") << ended.output;
  EXPECT_EQ(verdict(ended, "key"), "ok") << ended.output;
  coordinator.signal(SIGINT);
  coordinator.wait();
}

TEST_F(DoctorHosts, AMachineBehindAFirewall) {
  if (::access(kTc, X_OK) != 0) GTEST_SKIP() << "there is no " << kTc;
  const SwarmFolder swarm(kOpen);
  if (!hosts_->close_ports_of(1))
    GTEST_SKIP() << "this kernel has not the queues that a firewall is made of here";
  Program coordinator = start_coordinator(swarm);
  const Ended ended = doctor_on(swarm, 1, printed_join(coordinator));
  EXPECT_EQ(ended.code, 0) << ended.output;
  EXPECT_EQ(verdict(ended, "reach"), "warn") << ended.output;
  coordinator.signal(SIGINT);
  coordinator.wait();
}

TEST_F(DoctorHosts, AMachineWhoseCableIsOut) {
  const SwarmFolder swarm(kOpen);
  Program coordinator = start_coordinator(swarm);
  const std::string join = printed_join(coordinator);
  ASSERT_TRUE(hosts_->plug(1, false));
  const Ended ended = doctor_on(swarm, 1, join);
  EXPECT_EQ(ended.code, 1) << ended.output;
  EXPECT_EQ(verdict(ended, "coordinator"), "fail") << ended.output;
  coordinator.signal(SIGINT);
  coordinator.wait();
}

}  // namespace
}  // namespace swarmline
