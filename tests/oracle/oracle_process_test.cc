// The oracle with real processes over loopback TCP: `swarmline launch` against `swarmline launch
// --reference`, by `swarmline checkpoint diff --json` and both log.jsonl. Every pair of levels of
// any two factors meets in some run. The noise is measured in this process, on the same data.
// SWARMLINE_ORACLE_DEVICE=cuda: all of it on that device, several peers on one (scripts/gpu-check).
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "engine/config/load.h"
#include "engine/store/json_value.h"
#include "node/child_process.h"
#include "node/run_data.h"
#include "tests/oracle/oracle_case.h"
#include "tests/oracle/oracle_log.h"
#include "tests/store/temp_folder.h"

namespace swarmline::oracle {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr auto kProcessLimit = 150s;  // a run takes a few seconds on idle cores
constexpr int kTextWords = 3000;

std::string device_under_test() {
  const char* name = std::getenv("SWARMLINE_ORACLE_DEVICE");
  return name != nullptr ? name : "cpu";
}

struct Cell {
  Factors factors;
  DType dtype = DType::kF64;
};

constexpr OptimizerKind kAdamW = OptimizerKind::kAdamW;
constexpr OptimizerKind kLamb = OptimizerKind::kLamb;

// {stages, peers, delay, optimizer, tied, dropout}
std::vector<Factors> pairwise() {
  return {{1, 1, 1, kLamb, false, true},   {1, 2, 0, kLamb, true, true},
          {1, 3, 0, kAdamW, false, false}, {2, 1, 0, kLamb, true, false},
          {2, 2, 1, kAdamW, false, true},  {2, 3, 1, kAdamW, true, false},
          {4, 1, 1, kAdamW, false, true},  {4, 2, 0, kAdamW, false, false},
          {4, 3, 1, kLamb, true, true}};
}

std::vector<Cell> cells() {
  std::vector<Cell> all;
  for (const Factors& factors : pairwise()) all.push_back({factors, DType::kF64});
  all.push_back({{2, 3, 1, kAdamW, true, false}, DType::kF32});
  all.push_back({{4, 2, 0, kLamb, true, true}, DType::kF32});
  return all;
}

using Levels = std::vector<int>;
Levels levels(const Factors& f) {
  return {static_cast<int>(f.stages),
          static_cast<int>(f.peers),
          static_cast<int>(f.delay),
          static_cast<int>(f.optimizer),
          f.tied ? 1 : 0,
          f.dropout ? 1 : 0};
}

std::set<Levels> pairs_of(const std::vector<Factors>& table) {
  std::set<Levels> pairs;  // {factor, level, other factor, its level}
  for (const Factors& row : table) {
    const Levels of_row = levels(row);
    for (int a = 0; a < 6; ++a)
      for (int b = a + 1; b < 6; ++b) {
        pairs.insert(
            {a, of_row[static_cast<std::size_t>(a)], b, of_row[static_cast<std::size_t>(b)]});
      }
  }
  return pairs;
}

TEST(ProcessOracleTable, HasEveryPairOfLevels) {
  EXPECT_EQ(pairs_of(pairwise()), pairs_of(full_product()));
}

std::string text_of(const fs::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<std::string> lines_of(const fs::path& file) {
  std::ifstream in(file);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

class ProcessOracle : public ::testing::TestWithParam<Cell> {
 protected:
  void SetUp() override {
    std::ofstream text(folder_ / "text.txt");
    constexpr const char* kWords[] = {"alpha", "beta", "gamma", "delta", "one", "two", "three"};
    Rng rng(5);
    for (int i = 0; i < kTextWords; ++i) text << kWords[rng.below(std::size(kWords))] << ' ';
    config_ = config_of(GetParam().factors, GetParam().dtype);
    config_.run.name = "oracle";
    config_.run.dir = folder_.string();
    config_.data.files = {(folder_ / "text.txt").string()};
    config_.eval.sequences_max = kEvalSequences;
    config_.net.peer_silence_seconds = 60;  // a busy machine is no lost peer
    std::ofstream(folder_ / "run.toml") << to_toml(config_);
    std::ofstream(folder_ / "peer.toml")
        << "config_version = 1\n[peer]\ndevice = \"" << device_under_test() << "\"\n";
  }

  // Its output; fails the test when it does not end well within kProcessLimit.
  std::string run_program(std::vector<std::string> arguments);
  References references() const;
  Trace read_losses(const std::string& run) const {
    Trace trace;
    std::vector<std::string> lines = lines_of(folder_ / run / "log.jsonl");
    read_log(lines, trace);
    return trace;
  }

  const TempFolder temp_;
  const fs::path folder_ = temp_.path();
  RunConfig config_;
};

std::string ProcessOracle::run_program(std::vector<std::string> arguments) {
  const fs::path output = folder_ / fmt::format("output-of-{}", arguments.front());
  fs::remove(output);
  auto child = ChildProcess::start({.program = SWARMLINE_BINARY_DIR "/swarmline",
                                    .arguments = std::move(arguments),
                                    .output_file = output.string()});
  if (!child) {
    ADD_FAILURE() << child.error().what;
    return {};
  }
  const auto end = std::chrono::steady_clock::now() + kProcessLimit;
  while (!child->poll() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(10ms);
  }
  const std::string said = text_of(output);
  if (!child->poll()) {
    ADD_FAILURE() << "still running:\n" << said;
  } else {
    EXPECT_EQ(*child->poll(), 0) << said;
  }
  return said;
}

References ProcessOracle::references() const {
  auto data = open_run_data(config_, false);
  if (!data) {
    ADD_FAILURE() << data.error().what;
    return {};
  }
  const auto make_source = [this] {
    auto dataset = open_dataset(config_);
    return make_dataset_source(config_, std::move(*dataset));
  };
  return run_references({.config = config_,
                         .model = data->model,
                         .device = device_under_test(),
                         .eval_sequences = data->eval_sequences},
                        make_source);
}

TEST_P(ProcessOracle, SwarmEqualsReference) {
  const std::string peer_config = folder_ / "peer.toml";
  run_program({"launch", folder_ / "run.toml", "--peer-config", peer_config});
  run_program({"launch", folder_ / "run.toml", "--peer-config", peer_config, "--reference"});
  const std::string json = run_program(
      {"checkpoint", "diff", folder_ / "oracle-reference", folder_ / "oracle", "--json"});
  if (HasFailure()) return;
  const auto diff = parse_json(json);
  ASSERT_TRUE(diff.has_value()) << json;

  Distances apart = distances(read_losses("oracle-reference"), read_losses("oracle"));
  EXPECT_EQ(apart.losses.size(), config_.run.steps);
  for (const JsonValue& tensor : (*diff)["tensors"].items) {
    ASSERT_TRUE(tensor["max_abs"].is_number()) << json;
    apart.tensors[tensor["name"].string] = tensor["max_abs"].number;
  }
  EXPECT_FALSE(apart.tensors.empty());
  const Comparison worst = judge(apart, references().bound);
  EXPECT_LE(worst.ratio, 1) << worst.sentence();
  report(GetParam().factors.name(), GetParam().dtype, worst);
}

INSTANTIATE_TEST_SUITE_P(Pairwise, ProcessOracle, ::testing::ValuesIn(cells()),
                         [](const auto& info) {
                           return info.param.factors.name() +
                                  (info.param.dtype == DType::kF64 ? "Float64" : "Float32");
                         });

}  // namespace
}  // namespace swarmline::oracle
