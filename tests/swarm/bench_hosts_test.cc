// Benchmarks between machines, as network namespaces: what is done on each of them, its user could
// do. Needs root and ip (iproute2); skips, with the reason, elsewhere.
#include <csignal>
#include <string>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "engine/store/files.h"
#include "tests/swarm/hosts.h"
#include "tests/swarm/swarm_process.h"

namespace swarmline {
namespace {

constexpr double kBenchSeconds = 60;

class BenchHosts : public HostsTest {
 protected:
  BenchHosts() : HostsTest(3) {}

  // The first host listens, and prints the line that the others type.
  Program listen(const std::string& what) {
    return hosts_->type(folder_, 0, "listens", "swarmline bench " + what);
  }
  Program join(int host, Program& listening, const std::string& more = "") {
    return hosts_->type(folder_, host, fmt::format("joins-{}", host),
                        printed_line(listening) + more);
  }
  static void expect_all_done(Program& listening, std::vector<Program>& joined) {
    EXPECT_EQ(listening.wait(kBenchSeconds), 0) << listening.output();
    for (Program& one : joined) {
      EXPECT_EQ(one.wait(), 0) << one.output();
      EXPECT_NE(one.output().find(": over\n"), std::string::npos) << one.output();
    }
  }
  static void expect_says(const Program& program, const std::vector<std::string>& texts) {
    const std::string output = program.output();
    for (const std::string& text : texts)
      EXPECT_NE(output.find(text), std::string::npos) << text << "\nis not in\n" << output;
  }

  const SwarmFolder folder_{std::vector<std::string>{}};
};

TEST_F(BenchHosts, LinksToTwoMachinesAreMeasuredBothWaysByThePrintedLineAlone) {
  Program listening =
      listen("links --listen 0.0.0.0:0 --members 3 --kib 64,1024 --rounds 1 --json links.json");
  std::vector<Program> joined;
  for (const int host : {1, 2}) joined.push_back(join(host, listening));
  expect_all_done(listening, joined);
  expect_says(listening,
              {"@10.77.0.1:", "has come, 3 of 3 machines are here", "with 10.77.0.2",
               "with 10.77.0.3", "tls           1 MiB  from", "tls           1 MiB    to"});
  EXPECT_EQ(listening.output().find("left out"), std::string::npos) << listening.output();
  const auto report = read_text_file(folder_.temp().at("links.json"), 1 * kMiB);
  ASSERT_TRUE(report.has_value());
  for (const char* key : {R"("host": "10.77.0.3")", R"("direction": "to")", "socket_seconds"})
    EXPECT_NE(report->find(key), std::string::npos) << key << *report;
}

TEST_F(BenchHosts, PlainLinksAreMeasuredOnBothEndsWord) {
  Program listening =
      listen("links --listen 0.0.0.0:0 --insecure --ways tcp,shm --kib 64 --rounds 1");
  std::vector<Program> joined;
  joined.push_back(join(1, listening));
  expect_all_done(listening, joined);
  expect_says(listening, {"--insecure", "tcp          64 KiB  from",
                          "shm with 10.77.0.2 is left out: the two machines do not meet that way"});
}

TEST_F(BenchHosts, ThreeMachinesReduceTogether) {
  Program listening = listen(
      "allreduce --listen 0.0.0.0:0 --members 3 --mib 1,4 --turns 2 --mbit 1000 --json all.json");
  std::vector<Program> joined;
  for (const int host : {1, 2}) joined.push_back(join(host, listening, " --mbit 500"));
  expect_all_done(listening, joined);
  expect_says(listening, {"member 2 is 10.77.0.", "behind lines of 1000, 500, 500 Mbit/s",
                          "ours, tls", "optimum"});
  const auto report = read_text_file(folder_.temp().at("all.json"), 1 * kMiB);
  ASSERT_TRUE(report.has_value());
  EXPECT_NE(report->find(R"("hosts": [)"), std::string::npos) << *report;
}

TEST_F(BenchHosts, AMachineThatIsLostEndsItForAllInOneSentence) {
  Program listening = listen("allreduce --listen 0.0.0.0:0 --members 3 --mib 16 --turns 1000");
  std::vector<Program> joined;
  for (const int host : {1, 2}) joined.push_back(join(host, listening));
  ASSERT_TRUE(listening.wait_for_output("member 2 is"));
  ::usleep(500'000);
  joined[0].signal(SIGKILL);
  EXPECT_EQ(listening.wait(kBenchSeconds), 1) << listening.output();
  expect_says(listening, {"swarmline: bench allreduce: 10.77.0.2 has left: "});
  EXPECT_EQ(joined[1].wait(), 1) << joined[1].output();
  expect_says(joined[1], {"swarmline: bench allreduce: 10.77.0.2 has left: "});
}

TEST_F(BenchHosts, AnEndThatNobodyReachesIsSaidSo) {
  Program listening = listen("links --listen 0.0.0.0:0 --wait 5");
  const std::string line = printed_line(listening);
  ASSERT_TRUE(hosts_->plug(1, false));
  Program joining = hosts_->type(folder_, 1, "joins", line);
  EXPECT_EQ(joining.wait(kBenchSeconds), 1) << joining.output();
  expect_says(joining, {"swarmline: bench links: can't join at 10.77.0.1:"});
  EXPECT_EQ(listening.wait(kBenchSeconds), 1) << listening.output();
  expect_says(listening, {"bench links: 1 of 2 machines were here after 5 s; see that the others "
                          "reach the address in the line, or wait longer with --wait"});
}

}  // namespace
}  // namespace swarmline
