// What `swarmline memory` says beside what runs take: the largest resident set of each peer's
// process, as the kernel counts it (VmHWM), less that of a peer of a model of next to nothing.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/order_statistics.h"
#include "base/units.h"
#include "engine/config/load.h"
#include "node/stage_table.h"
#include "tests/harness/process_files.h"
#include "tests/harness/sanitized.h"
#include "tests/swarm/swarm_process.h"

namespace swarmline {
namespace {

constexpr double kTolerance = 0.05;
// How many microbatches a peer has at its worst moment differs from run to run: their median.
constexpr int kRuns = 3;

std::uint64_t peak_bytes(pid_t pid) {
  std::istringstream file(process_file(pid, "status"));
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("VmHWM:")) return std::strtoull(line.c_str() + 6, nullptr, 10) * kKiB;
  return 0;
}

// The word behind --name; empty: it is no peer.
std::string peer_name(const std::string& command) {
  if (command.find(" peer ") == std::string::npos) return {};
  const std::size_t begin = command.find("--name ");
  if (begin == std::string::npos) return {};
  return command.substr(begin + 7, command.find(' ', begin + 7) - begin - 7);
}

// Of a whole run by launch: the largest of each stage's peers.
std::vector<std::uint64_t> peaks_of(const SwarmFolder& swarm) {
  Program launch = swarm.start("launch");
  std::map<std::string, std::uint64_t> peaks;
  while (launch.running()) {
    for (const pid_t pid : descendants(launch.pid()))
      if (const std::string name = peer_name(command_line(pid)); !name.empty())
        peaks[name] = std::max(peaks[name], peak_bytes(pid));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_EQ(launch.wait(), 0) << launch.output();
  std::vector<std::uint64_t> of_stages;
  const auto status = swarm.status();
  if (!status) return of_stages;
  for (const StageStatus& stage : status->stages) {
    std::uint64_t most = 0;
    for (const PeerStatus& peer : stage.peers) most = std::max(most, peaks[peer.name]);
    of_stages.push_back(most);
  }
  return of_stages;
}

// Its one checkpoint is written when no microbatch is under way any more.
double of_a_short_run(const PeerMemory& memory) {
  const std::uint64_t computing = memory.activations + memory.payloads + memory.working;
  return static_cast<double>(memory.total() - std::min(memory.checkpoint, computing));
}

struct Shape {
  const char* what;
  std::vector<std::string> keys;
};

class SwarmMemory : public ::testing::TestWithParam<Shape> {
 protected:
  static void SetUpTestSuite() {
    if (kSanitized) return;
    const SwarmFolder tiny({"model.d_model=16", "run.steps=2"});
    const auto peaks = peaks_of(tiny);
    ASSERT_EQ(peaks.size(), 2U);
    base_bytes = std::min(peaks[0], peaks[1]);
  }
  inline static std::uint64_t base_bytes = 0;
};

TEST_P(SwarmMemory, IsWhatARunTakes) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer has memory of its own";
  std::vector<std::string> keys = GetParam().keys;
  keys.insert(keys.begin(), {"run.steps=2", "codec.forward=h8", "codec.backward=h8",
                             "net.peer_silence_seconds=60"});
  std::map<std::size_t, std::vector<double>> of_predicted;  // by stage
  for (int run = 0; run < kRuns; ++run) {
    const SwarmFolder swarm(keys);
    const auto peaks = peaks_of(swarm);
    const auto config = load_run_config(swarm.run().config());
    ASSERT_TRUE(config.has_value()) << config.error().what;
    const auto check = check_config(*config);
    ASSERT_TRUE(check.has_value()) << check.error().what;
    ASSERT_EQ(check->stages.size(), peaks.size());
    for (std::size_t stage = 0; stage < peaks.size(); ++stage) {
      const double predicted = of_a_short_run(check->stages[stage].memory);
      const auto taken = static_cast<double>(peaks[stage] - base_bytes);
      of_predicted[stage].push_back(taken / predicted);
      std::printf("%s, stage %zu: %.1f MiB taken, %.1f predicted: %.3f\n", GetParam().what, stage,
                  taken / double(kMiB), predicted / double(kMiB), taken / predicted);
    }
  }
  for (const auto& [stage, ratios] : of_predicted)
    EXPECT_NEAR(median(ratios), 1, kTolerance) << GetParam().what << ", stage " << stage;
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, SwarmMemory,
    ::testing::Values(Shape{"mostly state",
                            {"model.d_model=640", "model.heads=8", "batch.batch=4",
                             "batch.microbatch=1", "batch.sequence=64", "pipeline.in_flight=2"}},
                      Shape{"mostly activations",
                            {"model.d_model=256", "model.heads=4", "batch.batch=32",
                             "batch.microbatch=8", "batch.sequence=256", "pipeline.in_flight=4"}},
                      Shape{"activations of gpipe",
                            {"model.d_model=256", "model.heads=4", "batch.batch=32",
                             "batch.microbatch=8", "batch.sequence=256", "pipeline.in_flight=4",
                             "pipeline.wiring=static", "pipeline.order=gpipe"}},
                      Shape{"activations of llama",
                            {"model.d_model=256", "model.heads=8", "model.kv_heads=2",
                             "model.norm=rmsnorm", "model.activation=swiglu",
                             "model.positions=rotary", "batch.batch=32", "batch.microbatch=8",
                             "batch.sequence=256", "pipeline.in_flight=4"}}),
    [](const auto& info) {
      std::string name = info.param.what;
      std::ranges::replace(name, ' ', '_');
      return name;
    });

}  // namespace
}  // namespace swarmline
