// A run's data on this machine: there, missing, or with other contents.
#include "tools/doctor/data_checks.h"

#include <gtest/gtest.h>

#include "node/run_data.h"
#include "node/run_folder.h"
#include "tests/store/temp_folder.h"

namespace swarmline {
namespace {

class Data : public ::testing::Test {
 protected:
  void SetUp() override {
    config.data.files = {folder.write("data/a.txt", text('a'))};
    config.batch = {.batch = 2, .microbatch = 1, .sequence = 16};
    config.model.layers = 2;
    config.model.d_model = 8;
    config.model.heads = 2;
    config.run.dir = folder.at("runs");
    config.pipeline.stages = 2;
    config.pipeline.peers = {1, 1};
    machine.data_root = folder.path();
    // What is remembered of files is this test's.
    ::setenv("XDG_CACHE_HOME", folder.at("cache").c_str(), 1);
  }
  static std::string text(char letter) { return std::string(10'000, letter); }
  DataManifest manifest() {
    auto data = open_run_data(config, false);
    EXPECT_TRUE(list_data(*data, {}).has_value());
    return *data->manifest;
  }

  TempFolder folder;
  RunConfig config;
  PeerConfig machine;
};

TEST_F(Data, ThatIsReadable) {
  const DataFacts facts = look_at_data(config);
  EXPECT_EQ(facts.files, 1U);
  EXPECT_EQ(judge_data(facts).verdict, CheckOutcome::kOk) << judge_data(facts).what;
}

TEST_F(Data, ThatIsMissing) {
  config.data.files = {folder.at("data/none.txt")};
  const Finding finding = judge_data(look_at_data(config));
  EXPECT_EQ(finding.verdict, CheckOutcome::kFail);
  EXPECT_NE(finding.what.find("none.txt"), std::string::npos) << finding.what;
}

TEST_F(Data, WithOtherContentsThanTheRunBeganWith) {
  const DataManifest began = manifest();
  folder.write("runs/" + config.run.name + "/data.json", to_json(began));
  EXPECT_EQ(judge_data(look_at_data(config)).verdict, CheckOutcome::kOk);
  folder.write("data/a.txt", text('b'));
  const Finding finding = judge_data(look_at_data(config));
  EXPECT_EQ(finding.verdict, CheckOutcome::kFail);
  EXPECT_NE(finding.what.find(began.fingerprint().substr(0, 12)), std::string::npos)
      << finding.what;
}

TEST_F(Data, OfAPeerThatHasTheSame) {
  EXPECT_EQ(judge_data(compare_with_run(manifest(), config, machine)).verdict, CheckOutcome::kOk);
}

TEST_F(Data, OfAPeerWithOtherContents) {
  const DataManifest run = manifest();
  folder.write("data/a.txt", text('b'));
  const Finding finding = judge_data(compare_with_run(run, config, machine));
  EXPECT_EQ(finding.verdict, CheckOutcome::kFail);
  EXPECT_NE(finding.what.find("a.txt"), std::string::npos) << finding.what;
}

TEST_F(Data, OfAPeerWithoutThem) {
  const DataManifest run = manifest();
  std::filesystem::remove(config.data.files.front());
  EXPECT_EQ(judge_data(compare_with_run(run, config, machine)).verdict, CheckOutcome::kWarn)
      << "it may serve the other stage";
  config.pipeline.stages = 1;
  EXPECT_EQ(judge_data(compare_with_run(run, config, machine)).verdict, CheckOutcome::kFail)
      << "the only stage reads it";
  machine.fetch_data = true;
  EXPECT_EQ(judge_data(compare_with_run(run, config, machine)).verdict, CheckOutcome::kOk);
}

}  // namespace
}  // namespace swarmline
