#include "node/visible_gpus.h"

#include <filesystem>

#include <gtest/gtest.h>

#include "tests/store/temp_folder.h"

namespace swarmline {
namespace {

TEST(VisibleGpus, AreThoseThatTheVariableNames) {
  const std::string nowhere = "/nowhere";
  EXPECT_EQ(count_gpus("0,1,3", nowhere), 3U);
  EXPECT_EQ(count_gpus("GPU-8f2e, MIG-GPU-11/0/0", nowhere), 2U);
  EXPECT_EQ(count_gpus("0,-1,1", nowhere), 1U) << "as CUDA counts";
  EXPECT_EQ(count_gpus("", nowhere), 0U);
  EXPECT_EQ(count_gpus("-1", nowhere), 0U);
  EXPECT_EQ(count_gpus("0,,1", nowhere), 1U);
}

TEST(VisibleGpus, AreElseThoseOfTheDriver) {
  const TempFolder folder;
  EXPECT_EQ(count_gpus(nullptr, folder.path() + "/none"), 0U);
  EXPECT_EQ(count_gpus(nullptr, folder.path()), 0U);
  for (const char* const gpu : {"/0000:17:00.0", "/0000:65:00.0"})
    std::filesystem::create_directory(folder.path() + gpu);
  EXPECT_EQ(count_gpus(nullptr, folder.path()), 2U);
  EXPECT_EQ(count_gpus("1", folder.path()), 1U) << "the variable goes first";
}

TEST(VisibleGpus, PeersTakeThemInTurns) {
  const std::vector<std::string> wanted{"cuda:0", "cuda:1", "cuda:2", "cuda:0", "cuda:1"};
  EXPECT_EQ(spread_over_gpus(5, 3), wanted);
  EXPECT_TRUE(spread_over_gpus(5, 1).empty());
  EXPECT_TRUE(spread_over_gpus(5, 0).empty());
}

}  // namespace
}  // namespace swarmline
