#include "tests/oracle/process_runs.h"

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <thread>

#include <fmt/format.h>

#include "base/rng.h"
#include "engine/checkpoint/checkpoint_reader.h"
#include "engine/config/load.h"
#include "node/child_process.h"
#include "node/run_data.h"
#include "tests/oracle/oracle_log.h"

namespace swarmline::oracle {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr int kTextWords = 3000;

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

}  // namespace

std::string device_under_test() {
  const char* name = std::getenv("SWARMLINE_ORACLE_DEVICE");
  return name != nullptr ? name : "cpu";
}

void ProcessRuns::write_files(RunConfig config) {
  std::ofstream text(folder_ / "text.txt");
  constexpr const char* kWords[] = {"alpha", "beta", "gamma", "delta", "one", "two", "three"};
  Rng rng(5);
  for (int i = 0; i < kTextWords; ++i) text << kWords[rng.below(std::size(kWords))] << ' ';
  config_ = std::move(config);
  config_.run.name = "oracle";
  config_.run.dir = folder_.string();
  config_.data.files = {(folder_ / "text.txt").string()};
  config_.eval.sequences_max = kEvalSequences;
  config_.net.peer_silence_seconds = 60;  // a busy machine is no lost peer
  std::ofstream(folder_ / "run.toml") << to_toml(config_);
  std::ofstream(folder_ / "peer.toml")
      << "config_version = 1\n[peer]\ndevice = \"" << device_under_test() << "\"\n";
}

std::string ProcessRuns::run_program(std::vector<std::string> arguments) {
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

void ProcessRuns::run_swarm_process() {
  run_program({"launch", folder_ / "run.toml", "--peer-config", folder_ / "peer.toml"});
}

void ProcessRuns::run_reference_process() {
  run_program(
      {"launch", folder_ / "run.toml", "--peer-config", folder_ / "peer.toml", "--reference"});
}

Trace ProcessRuns::trace_of(const std::string& run, bool with_parameters) const {
  Trace trace;
  trace.dtype = config_.model.dtype;
  std::vector<std::string> lines = lines_of(folder_ / run / "log.jsonl");
  read_log(lines, trace);
  if (!with_parameters) return trace;
  const auto checkpoint = CheckpointReader::open((folder_ / run).string());
  if (!checkpoint) {
    ADD_FAILURE() << checkpoint.error().what;
    return trace;
  }
  for (const auto& [name, tensor] : checkpoint->tensors())
    trace.tensors[name] = to_doubles(tensor.bytes, trace.dtype);
  return trace;
}

ReferenceOptions ProcessRuns::reference_options() const {
  auto data = open_run_data(config_, false);
  if (!data) {
    ADD_FAILURE() << data.error().what;
    return {};
  }
  return {.config = config_,
          .model = data->model,
          .device = device_under_test(),
          .eval_sequences = data->eval_sequences};
}

MakeSource ProcessRuns::make_source() const {
  return [this] {
    auto dataset = open_dataset(config_);
    return make_dataset_source(config_, std::move(*dataset));
  };
}

}  // namespace swarmline::oracle
