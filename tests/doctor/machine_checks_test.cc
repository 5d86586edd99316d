// Faults of this machine that are real: a port that is taken, a disk that is full, a limit that is
// lowered.
#include "tools/doctor/machine_checks.h"

#include <cstdlib>
#include <fcntl.h>
#include <functional>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "engine/net/tcp/tcp_network.h"
#include "engine/runtime/asio_runtime.h"
#include "node/descriptors.h"
#include "tests/store/temp_folder.h"
#include "tools/doctor/machine_facts.h"

namespace swarmline {
namespace {

// In a process of its own, so that what is changed there ends with it. 77: it can't be done here.
constexpr int kCant = 77;
int in_another_process(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(Port, IsFreeOrTaken) {
  AsioRuntime runtime;
  TcpNetwork network(runtime, {});
  const auto bound = network.listen({"127.0.0.1", 0}, [](const auto&) {});
  ASSERT_TRUE(bound.has_value());
  const Finding taken = judge_port(look_at_port("[net] listen", to_string(*bound)));
  EXPECT_EQ(taken.verdict, CheckOutcome::kFail);
  EXPECT_NE(taken.what.find(to_string(*bound)), std::string::npos) << taken.what;
  EXPECT_NE(taken.what.find("in use"), std::string::npos) << taken.what;
  EXPECT_FALSE(taken.advice.empty());
  network.stop_listening();
  EXPECT_EQ(judge_port(look_at_port("[net] listen", to_string(*bound))).verdict, CheckOutcome::kOk);
  EXPECT_EQ(judge_port(look_at_port("[net] listen", "127.0.0.1:0")).verdict, CheckOutcome::kOk);
  EXPECT_EQ(judge_port(look_at_port("[net] listen", "192.0.2.1:7400")).verdict, CheckOutcome::kFail)
      << "no address of this machine";
}

TEST(Descriptors, EnoughOrTooFew) {
  DescriptorFacts facts = look_at_descriptors();
  EXPECT_GT(facts.hard, 0U);
  facts.what_for = "a coordinator of 8 peers";
  facts.needed = 8;
  EXPECT_EQ(judge_descriptors(facts).verdict, CheckOutcome::kOk);
  const int code = in_another_process([] {
    const rlimit low{.rlim_cur = 64, .rlim_max = 64};
    if (::setrlimit(RLIMIT_NOFILE, &low) != 0) return kCant;
    DescriptorFacts lowered = look_at_descriptors();
    lowered.what_for = "a coordinator of 8 peers";
    lowered.needed = kDescriptorsBesides + 8;
    return judge_descriptors(lowered).verdict == CheckOutcome::kFail && lowered.hard == 64 ? 0 : 1;
  });
  EXPECT_EQ(code, 0);
}

TEST(Disk, AFolderThatIsThereOrNotYet) {
  const TempFolder folder;
  const DiskFacts facts = look_at_disk(folder.at("runs/not/yet"));
  EXPECT_EQ(facts.folder, folder.path());
  EXPECT_TRUE(facts.reason.empty()) << facts.reason;
  EXPECT_GT(facts.free_bytes, 0U);
  EXPECT_EQ(judge_disk(facts).verdict, CheckOutcome::kOk);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path())) << "it leaves nothing behind";
}

TEST(Disk, CheckpointsThatDoNotFit) {
  const TempFolder folder;
  DiskFacts facts = look_at_disk(folder.path());
  facts.needed_bytes = facts.free_bytes + 1;
  facts.needed_for = "4 checkpoints";
  const Finding finding = judge_disk(facts);
  EXPECT_EQ(finding.verdict, CheckOutcome::kFail);
  EXPECT_NE(finding.what.find("4 checkpoints"), std::string::npos);
}

TEST(Disk, ASlowSyncIsAWarning) {
  EXPECT_EQ(judge_disk({.folder = "/x", .reason = "", .sync_seconds = 2, .free_bytes = 1}).verdict,
            CheckOutcome::kWarn);
}

TEST(Disk, AFullOne) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root mounts a disk of its own";
  const TempFolder folder;
  const int code = in_another_process([&] {
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", folder.path().c_str(), "tmpfs", 0, "size=256k") != 0)
      return kCant;
    const DiskFacts facts = look_at_disk(folder.path());
    const bool said = judge_disk(facts).verdict == CheckOutcome::kFail && !facts.reason.empty();
    return said && std::filesystem::is_empty(folder.path()) ? 0 : 1;
  });
  if (code == kCant) GTEST_SKIP() << "no disk can be mounted here";
  EXPECT_EQ(code, 0);
}

TEST(Disk, AFolderThatNobodyMayWrite) {
  if (::geteuid() == 0) GTEST_SKIP() << "root writes everywhere";
  EXPECT_EQ(judge_disk(look_at_disk("/proc")).verdict, CheckOutcome::kFail);
}

TEST(Memory, OfThisMachine) {
  const MemoryFacts facts = look_at_memory("cpu");
  EXPECT_GT(facts.free_bytes, 0U);
  EXPECT_GE(facts.total_bytes, facts.free_bytes);
  EXPECT_EQ(judge_memory(facts).verdict, CheckOutcome::kSkipped) << "no stage is planned";
}

TEST(Memory, OneStageOrAllThatDoNotFit) {
  MemoryFacts facts = look_at_memory("cpu");
  facts.whole_swarm = true;
  const std::uint64_t free = facts.free_bytes;
  facts.stages = {{.stage = 0, .peers = 2, .bytes = free / 8},
                  {.stage = 1, .peers = 2, .bytes = free / 4}};
  EXPECT_EQ(judge_memory(facts).verdict, CheckOutcome::kOk);
  facts.stages[0].bytes = free / 2;
  EXPECT_EQ(judge_memory(facts).verdict, CheckOutcome::kWarn) << "two of these and two of those";
  facts.stages[1].bytes = free + 1;
  const Finding finding = judge_memory(facts);
  EXPECT_EQ(finding.verdict, CheckOutcome::kFail);
  EXPECT_NE(finding.what.find("stage 1"), std::string::npos) << finding.what;
}

TEST(Memory, SaysWhetherAT4WouldDo) {
  MemoryFacts facts{.of = "this machine", .free_bytes = 100 * kGiB, .total_bytes = 100 * kGiB};
  facts.stages = {{.stage = 0, .peers = 1, .bytes = 20 * kGiB, .device_bytes = 18 * kGiB}};
  const Finding finding = judge_memory(facts);
  EXPECT_NE(finding.what.find("fits a T4 16 GB: no, 18.0 GiB"), std::string::npos) << finding.what;
}

TEST(Compute, ADeviceThatDoesNotCompute) {
  ComputeFacts facts = look_at_cpu();
  EXPECT_GE(facts.cores, 1U);
  EXPECT_FALSE(facts.kernels.empty());
  facts.threads = 1;
  EXPECT_EQ(judge_cpu(facts).verdict, CheckOutcome::kOk);
  facts.threads = facts.cores + 1;
  EXPECT_EQ(judge_cpu(facts).verdict, CheckOutcome::kWarn);
  facts.device = "cuda";
  EXPECT_EQ(judge_compute(facts).verdict, CheckOutcome::kOk);
  facts.error = "this machine has no CUDA";
  EXPECT_EQ(judge_compute(facts).verdict, CheckOutcome::kFail);
}

TEST(Driver, IsMissed) {
  EXPECT_EQ(judge_driver(look_at_driver("cpu")).verdict, CheckOutcome::kSkipped);
  const DriverFacts facts = look_at_driver("cuda");
  EXPECT_EQ(judge_driver(facts).verdict,
            facts.driver.empty() ? CheckOutcome::kFail : CheckOutcome::kOk);
}

}  // namespace
}  // namespace swarmline
