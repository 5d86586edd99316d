#include "node/notices/notice_command.h"

#include <fstream>
#include <optional>

#include <gtest/gtest.h>

#include "engine/runtime/asio_runtime.h"
#include "node/notices/cloud_vendor.h"
#include "tests/store/temp_folder.h"

namespace swarmline {
namespace {

TEST(NoticeCommandResult, TheFirstNumberIsHowLongIsLeft) {
  const auto notice = read_notice_command(0, "spot: 25 seconds, then 7\n");
  ASSERT_TRUE(notice);
  EXPECT_EQ(notice->kind, Notice::Kind::kLeave);
  EXPECT_EQ(notice->left, std::chrono::seconds(25));
  EXPECT_EQ(notice->words, "spot: 25 seconds, then 7");
  EXPECT_EQ(read_notice_command(0, "")->left, std::chrono::seconds(30));
  EXPECT_EQ(read_notice_command(0, "99999999")->left, std::chrono::seconds(3600));
}

TEST(NoticeCommandResult, TenIsARiskAndOtherCodesAreFailures) {
  EXPECT_EQ(read_notice_command(10, "")->kind, Notice::Kind::kAtRisk);
  EXPECT_FALSE(read_notice_command(1, "5"));
  EXPECT_FALSE(read_notice_command(127, ""));
  EXPECT_FALSE(read_notice_command(137, ""));
}

TEST(NoticeCommandTest, WaitsForItsEndAndTellsWhatItSaid) {
  AsioRuntime runtime;
  std::optional<Notice> told;
  NoticeCommand command(runtime, "sleep 0.2; echo taken in 12", [&](const Notice& n) { told = n; });
  ASSERT_TRUE(command.start());
  EXPECT_TRUE(runtime.run_until([&] { return told.has_value(); }, std::chrono::seconds(30)));
  EXPECT_EQ(told->left, std::chrono::seconds(12));
}

TEST(NoticeCommandTest, OneThatFailsIsStartedAgain) {
  const TempFolder folder;
  const std::string seen = folder.path() + "/seen";
  AsioRuntime runtime;
  std::optional<Notice> told;
  NoticeCommand command(runtime,
                        "if [ -e " + seen + " ]; then echo 3; else touch " + seen + "; exit 1; fi",
                        [&](const Notice& n) { told = n; });
  ASSERT_TRUE(command.start());
  EXPECT_TRUE(runtime.run_until([&] { return told.has_value(); }, std::chrono::seconds(30)));
  EXPECT_EQ(told->left, std::chrono::seconds(3));
}

TEST(NoticeCommandTest, OneThatTellsOfARiskGoesOn) {
  AsioRuntime runtime;
  int told = 0;
  NoticeCommand command(runtime, "exit 10", [&](const Notice& n) {
    EXPECT_EQ(n.kind, Notice::Kind::kAtRisk);
    ++told;
  });
  ASSERT_TRUE(command.start());
  EXPECT_TRUE(runtime.run_until([&] { return told >= 2; }, std::chrono::seconds(30)));
}

// What the firmware of each cloud's machines says, and of others.
TEST(CloudVendor, IsKnownByTheFirmware) {
  const TempFolder folder;
  EXPECT_EQ(detect_notices(folder.path()), NoticeSource::kNone);
  const auto says = [&](const char* file, const char* text) {
    std::ofstream(folder.path() + "/" + file) << text << "\n";
  };
  says("sys_vendor", "QEMU");
  says("product_name", "Standard PC");
  EXPECT_EQ(detect_notices(folder.path()), NoticeSource::kNone);
  says("product_name", "Google Compute Engine");
  EXPECT_EQ(detect_notices(folder.path()), NoticeSource::kGcp);
  says("sys_vendor", "Amazon EC2");
  EXPECT_EQ(detect_notices(folder.path()), NoticeSource::kAws);
  says("chassis_asset_tag", "7783-7084-3265-9085-8269-3286-77");
  EXPECT_EQ(detect_notices(folder.path()), NoticeSource::kAzure);
}

}  // namespace
}  // namespace swarmline
