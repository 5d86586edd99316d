#include "tools/fleet_files/fleet_files.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace swarmline {
namespace {

FleetFilesPlan plan() {
  return {.run = "tiny",
          .config = "tiny.toml",
          .image = "swarmline:1",
          .wheel = "swarmline.whl",
          .classes = {{.name = "t4", .count = 3, .price = 0.12, .egress_price = 0.09},
                      {.name = "a100", .count = 2}}};
}

const FleetFile& find(const std::vector<FleetFile>& files, const std::string& name) {
  const auto found = std::ranges::find(files, name, &FleetFile::name);
  EXPECT_NE(found, files.end()) << name;
  return found == files.end() ? files.front() : *found;
}

TEST(FleetFiles, NothingIsLeftToFillInAndEachClassHasAFile) {
  for (const std::string_view name : fleet_target_names()) {
    const auto files = make_fleet_files(*parse_fleet_target(name), plan());
    std::size_t of_classes = 0;
    for (const FleetFile& file : files) {
      EXPECT_EQ(file.text.find("{{"), std::string::npos) << name << " " << file.name;
      EXPECT_EQ(file.name.find("{{"), std::string::npos) << file.name;
      of_classes +=
          file.name.find("t4") != file.name.npos || file.name.find("a100") != file.name.npos;
    }
    EXPECT_EQ(of_classes, 2U) << name;
    EXPECT_NE(find(files, "README.md").text.find("5 peers, 0.36 an hour"), std::string::npos);
  }
}

TEST(FleetFiles, PeersSayWhatTheyCostAndHowManyThereAre) {
  const auto slurm = make_fleet_files(FleetTarget::kSlurm, plan());
  EXPECT_NE(find(slurm, "peers-t4.sbatch").text.find("--array=0-2\n"), std::string::npos);
  EXPECT_NE(find(slurm, "peers-t4.sbatch").text.find(" --price 0.12 --egress-price 0.09\n"),
            std::string::npos);
  EXPECT_EQ(find(slurm, "peers-a100.sbatch").text.find("--price"), std::string::npos);
  EXPECT_TRUE(find(slurm, "peers-t4.sbatch").is_program);
  const auto sky = make_fleet_files(FleetTarget::kSkypilot, plan());
  EXPECT_NE(find(sky, "peer-a100.sky.yaml").text.find("accelerators: A100:1"), std::string::npos);
  EXPECT_NE(find(sky, "peer-a100.sky.yaml").text.find("# count: 2\n"), std::string::npos);
}

TEST(FleetFiles, WithoutADeviceNoneIsAskedFor) {
  FleetFilesPlan cpu = plan();
  cpu.device = "cpu";
  for (const FleetFile& file : make_fleet_files(FleetTarget::kKubernetes, cpu))
    EXPECT_EQ(file.text.find("nvidia.com/gpu: 1"), std::string::npos) << file.name;
  for (const FleetFile& file : make_fleet_files(FleetTarget::kSlurm, cpu))
    EXPECT_EQ(file.text.find("--gres"), std::string::npos) << file.name;
}

TEST(FleetFiles, AnUnknownTargetIsToldWhatThereIs) {
  const auto target = parse_fleet_target("nomad");
  ASSERT_FALSE(target);
  EXPECT_EQ(target.error().code, ErrorCode::kUserMistake);
  EXPECT_NE(target.error().what.find("kubernetes"), std::string::npos);
}

TEST(FillInDeathTest, ANameWithoutAValueIsABrokenTemplate) {
  EXPECT_EQ(fill_in("a {{b}} c", {{"b", "1"}}), "a 1 c");
  EXPECT_DEATH((void)fill_in("{{c}}", {{"b", "1"}}), "");
}

}  // namespace
}  // namespace swarmline
