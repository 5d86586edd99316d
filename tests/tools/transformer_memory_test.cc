// The calculator's every row, as its public original gives it.
#include "tools/memory/transformer_memory.h"

#include <array>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/units.h"

namespace swarmline {
namespace {

constexpr std::size_t kRows = 5184;

std::vector<std::map<std::string, std::string>> golden_rows() {
  std::ifstream file(SWARMLINE_SOURCE_DIR "/tests/golden/memory/training_memory.tsv");
  std::vector<std::map<std::string, std::string>> rows;
  std::vector<std::string> names;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) continue;
    std::vector<std::string> cells;
    std::istringstream parts(line);
    for (std::string cell; std::getline(parts, cell, '\t');) cells.push_back(cell);
    if (names.empty()) {
      names = cells;
      continue;
    }
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (i == 0) rows.emplace_back();
      rows.back()[names[i]] = cells.at(i);
    }
  }
  return rows;
}

TrainingSetup setup_of(const std::map<std::string, std::string>& row) {
  TrainingSetup setup;
  for (const auto optimizer : {TrainingOptimizer::kAdam, TrainingOptimizer::k16BitAdam,
                               TrainingOptimizer::kAdafactor, TrainingOptimizer::k8BitAdam})
    if (row.at("optimizer") == to_string(optimizer)) setup.optimizer = optimizer;
  for (const auto precision :
       {TrainingPrecision::kO0, TrainingPrecision::kO1, TrainingPrecision::kO3})
    if (row.at("fp16") == to_string(precision)) setup.precision = precision;
  setup.batch = std::stoull(row.at("bsz"));
  setup.checkpointing = row.at("ckpt") == "1";
  setup.offload = row.at("offload") == "1";
  setup.groups = std::stoull(row.at("groups"));
  return setup;
}

// As the table has them: GB of 2^30 bytes, nine digits.
std::string gb(double bytes) {
  return fmt::format("{:.9g}", bytes / static_cast<double>(kGiB));
}

TEST(TrainingMemory, EveryRowOfThePublicCalculatorsTable) {
  const auto rows = golden_rows();
  ASSERT_EQ(rows.size(), kRows);
  for (const auto& row : rows) {
    const TransformerShape* const shape = find_transformer(row.at("model"));
    ASSERT_NE(shape, nullptr) << row.at("model");
    const TrainingSetup setup = setup_of(row);
    ASSERT_EQ(to_string(setup.optimizer), row.at("optimizer"));
    ASSERT_EQ(to_string(setup.precision), row.at("fp16"));
    const TrainingMemory memory = training_memory(*shape, setup);
    const bool off = setup.offload;
    const std::string got =
        fmt::format("{:.0f} {} {} {} {} {} {} {:.9g}", memory.parameters, gb(memory.weight_bytes),
                    gb(memory.activation_bytes), gb(off ? 0 : memory.optimizer_bytes),
                    gb(off ? 0 : memory.gradient_bytes), gb(memory.device_bytes),
                    gb(memory.host_bytes), memory.transfer_seconds);
    const std::string expected =
        fmt::format("{:.0f} {} {} {} {} {} {} {}", std::stod(row.at("params")),
                    row.at("weights_GB"), row.at("act_GB"), row.at("optim_GB"), row.at("wgrad_GB"),
                    row.at("gpu_total_GB"), row.at("cpu_GB"), row.at("xfer_s"));
    ASSERT_EQ(got, expected) << row.at("model") << " " << row.at("optimizer") << " "
                             << row.at("fp16") << " batch " << row.at("bsz");
  }
}

TEST(TrainingMemory, TheTableHasEveryKnownModel) {
  std::map<std::string, std::size_t> count;
  for (const auto& row : golden_rows()) ++count[row.at("model")];
  for (const TransformerShape& shape : known_transformers())
    EXPECT_EQ(count[std::string(shape.name)], kRows / known_transformers().size()) << shape.name;
  EXPECT_EQ(find_transformer("gpt5"), nullptr);
}

}  // namespace
}  // namespace swarmline
