#include "tools/measure/bench_allreduce.h"

#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/units.h"
#include "engine/net/ucx/ucx_backend.h"
#include "tests/golden/golden.h"
#include "tests/store/temp_folder.h"

namespace swarmline {
namespace {

AllReduceSide side_of(const std::string& name, std::initializer_list<double> seconds,
                      std::optional<double> ahead = {}) {
  AllReduceSide side{.name = name,
                     .seconds = *seconds.begin(),
                     .cpu_seconds = *seconds.begin() / 2,
                     .ahead = ahead};
  for (const double turn : seconds)
    side.turns.push_back({.seconds = turn, .cpu_seconds = turn / 2, .wire_bytes = 0});
  return side;
}

AllReduceReport small_report() {
  return {.machine = "A processor",
          .cores = 2,
          .wall_seconds = 1750000000,
          .spec = {.mib = {16},
                   .members = {2, 4},
                   .ways = {"tcp", "shm"},
                   .codec = {},
                   .turns = 3,
                   .busy = 1,
                   .gloo_python = {}},
          .rows = {{.mib = 16,
                    .members = 2,
                    .own = {side_of("tcp", {0.01, 0.009, 0.0125}, 1.5),
                            side_of("shm", {0.005, 0.006, 0.004}, 3)},
                    .gloo = side_of("gloo", {0.015, 0.0125, 0.0175}),
                    .sockets = side_of("sockets", {0.008, 0.0085, 0.0075}),
                    .copy_seconds = 0.002,
                    .wire_bytes = 2 * 16 * kMiB},
                   {.mib = 16,
                    .members = 4,
                    .own = {side_of("tcp", {0.03})},
                    .gloo = {},
                    .sockets = side_of("sockets", {0.02}),
                    .copy_seconds = 0.002,
                    .wire_bytes = 6 * 16 * kMiB,
                    .left_out = {{"shm", "processes here have no memory to share"}}}}};
}

TEST(BenchAllReduceReport, JsonAndTableAreTheGoldenOnes) {
  const AllReduceReport report = small_report();
  expect_golden("bench/allreduce.json", to_json(report));
  std::string table = allreduce_head(report.spec) + "\n";
  for (const AllReduceRow& row : report.rows) table += allreduce_line(report.spec, row) + "\n";
  expect_golden("bench/allreduce.txt", table);
}

// Whatever was started has been waited for.
void expect_no_children() {
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

// What a member of gloo's says, without one.
std::string member_program(const TempFolder& folder, const std::string& text) {
  const std::string path = folder.path() + "/member";
  std::ofstream(path) << "#!/bin/sh\n" << text;
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  return path;
}

AllReduceBenchSpec spec_of(int turns, const std::string& gloo = {}) {
  return {.mib = {},
          .members = {},
          .ways = {"tcp"},
          .codec = {},
          .turns = turns,
          .busy = 0,
          .gloo_python = gloo};
}

TEST(BenchAllReduce, OursAloneIsMeasuredAndEndsItsProcesses) {
  AllReduceBenchSpec spec = spec_of(3);
  spec.busy = 1;
  const auto row = measure_allreduce(spec, 1, 3);
  ASSERT_TRUE(row) << row.error().what;
  ASSERT_EQ(row->own.size(), 1U);
  EXPECT_EQ(row->own[0].name, "tcp");
  EXPECT_EQ(row->own[0].turns.size(), 3U);
  EXPECT_GT(row->own[0].seconds, 0);
  EXPECT_GT(row->own[0].cpu_seconds, 0);
  EXPECT_GT(row->copy_seconds, 0);
  EXPECT_FALSE(row->gloo || row->own[0].ahead);
  ASSERT_TRUE(row->sockets);
  EXPECT_GT(row->sockets->seconds, 0);
  EXPECT_GT(row->sockets->cpu_seconds, 0);
  // Two thirds of the vector to each of two others, less what does not divide.
  EXPECT_NEAR(static_cast<double>(row->sockets->turns[0].wire_bytes), 4.0 * kMiB, 16);
  // Each sends two thirds of its vector to be summed, and its own sum to two.
  EXPECT_GE(row->wire_bytes, 4 * kMiB);
  EXPECT_LE(row->wire_bytes, 4 * kMiB + 4 * kMiB / 100);
  expect_no_children();
}

// Each member checks its sums.
TEST(BenchAllReduce, ChunksGoOverMemoryThatMembersShare) {
  AllReduceBenchSpec spec = spec_of(2);
  spec.ways = {"shm", "tcp"};
  const auto row = measure_allreduce(spec, 1, 3);
  ASSERT_TRUE(row) << row.error().what;
  ASSERT_EQ(row->own.size(), 2U) << row->left_out.front().second;
  EXPECT_EQ(row->own[0].name, "shm");
  EXPECT_EQ(row->own[0].turns.size(), 2U);
  EXPECT_GT(row->own[0].seconds, 0);
  expect_no_children();
}

// Libraries that members load have their own ideas of where to log.
// Who has its sum goes on answering what others still send.
TEST(BenchAllReduce, ChunksGoOverSeveralConnections) {
  AllReduceBenchSpec spec = spec_of(3);
  spec.ways = {"streams"};
  const auto row = measure_allreduce(spec, 4, 3);
  ASSERT_TRUE(row.has_value()) << row.error().what;
  ASSERT_EQ(row->own.size(), 1U);
  EXPECT_EQ(row->own[0].name, "streams");
  EXPECT_GT(row->own[0].seconds, 0);
  expect_no_children();
}

TEST(BenchAllReduce, WhatStandardErrorHasIsNotCutOff) {
  const TempFolder folder;
  const std::string path = folder.path() + "/log";
  const pid_t pid = ::fork();
  if (pid == 0) {
    const int log = ::open(path.c_str(), O_WRONLY | O_CREAT, 0600);
    ::dup2(log, STDERR_FILENO);
    ::dprintf(STDERR_FILENO, "before\n");
    set_ucx_environment();
    const auto row = measure_allreduce({.ways = {"ucx"}, .turns = 1}, 1, 2);
    ::_exit(row ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0);
  std::string line;
  std::getline(std::ifstream(path) >> std::ws, line);
  EXPECT_EQ(line, "before");
}

TEST(BenchAllReduce, AWayThatCantBeHadIsLeftOutWithItsReason) {
  AllReduceBenchSpec spec = spec_of(1);
  spec.ways = {"tcp", "rdma"};
  const auto row = measure_allreduce(spec, 1, 2);
  ASSERT_TRUE(row) << row.error().what;
  if (row->own.size() == 2) GTEST_SKIP() << "this machine has RDMA";
  ASSERT_EQ(row->left_out.size(), 1U);
  EXPECT_EQ(row->left_out[0].first, "rdma");
  EXPECT_FALSE(row->left_out[0].second.empty());
  expect_no_children();
}

// Each member checks its sums.
TEST(BenchAllReduce, BehindLinesSlicesAreCutByTheirRates) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, for network namespaces";
  AllReduceBenchSpec spec = spec_of(1);
  spec.lines = {50, 200, 400};
  const auto row = measure_allreduce(spec, 4, 3);
  if (!row && row.error().code == ErrorCode::kUserMistake) GTEST_SKIP() << row.error().what;
  ASSERT_TRUE(row) << row.error().what;
  // The slowest one sends its vector once, and its small slice to two: 4 MiB and little more at
  // 50 Mbit/s, where equal slices would be a third more.
  const double once = 4 * kMiB * 8 / 50e6;
  EXPECT_GT(row->optimum_seconds, once);
  EXPECT_LT(row->optimum_seconds, 1.2 * once);
  EXPECT_GT(row->own.at(0).seconds, 0.9 * row->optimum_seconds) << "faster than its lines";
  EXPECT_NE(allreduce_head(spec).find(", behind lines of 50, 200, 400 Mbit/s: "),
            std::string::npos);
  EXPECT_TRUE(
      allreduce_line(spec, *row).ends_with(fmt::format("{:>9.2f}", row->optimum_seconds * 1e3)));
  expect_no_children();
}

TEST(BenchAllReduce, TheOthersTimeOverOursIsWhatWeAreAhead) {
  const TempFolder folder;
  const std::string slow =
      member_program(folder, "echo ready; while read rounds; do echo 3200 1600 0; done\n");
  const auto row = measure_allreduce(spec_of(3, slow), 1, 2);
  ASSERT_TRUE(row) << row.error().what;
  ASSERT_TRUE(row->gloo && row->own.at(0).ahead);
  EXPECT_EQ(row->gloo->seconds, 100);  // 32 rounds of 1 MiB a turn
  EXPECT_EQ(row->gloo->cpu_seconds, 50);
  EXPECT_GT(*row->own[0].ahead, 1);
  expect_no_children();
}

TEST(BenchAllReduce, AMemberThatEndsOrTalksNonsenseIsAnError) {
  const TempFolder folder;
  for (const char* text : {"exit 3\n", "echo ready; read rounds\n",
                           "echo ready; while read rounds; do echo nonsense; done\n"}) {
    const auto row = measure_allreduce(spec_of(1, member_program(folder, text)), 1, 2);
    ASSERT_FALSE(row) << text;
    EXPECT_EQ(row.error().code, ErrorCode::kIo);
    EXPECT_NE(row.error().what.find("a member of gloo's"), std::string::npos) << row.error().what;
    expect_no_children();
  }
}

TEST(BenchAllReduce, APythonWithoutTorchIsNone) {
  const TempFolder folder;
  EXPECT_EQ(find_gloo_python(member_program(folder, "exit 1\n")), "");
  EXPECT_EQ(find_gloo_python(folder.path() + "/nothing"), "");
  const std::string with = member_program(folder, "exit 0\n");
  EXPECT_EQ(find_gloo_python(with), with);
}

// The program that is built in, with PyTorch's gloo, where there is one.
TEST(BenchAllReduce, GlooItselfAnswers) {
  const std::string python =
      find_gloo_python(std::filesystem::exists(SWARMLINE_SOURCE_DIR "/.deps/compare/bin/python")
                           ? SWARMLINE_SOURCE_DIR "/.deps/compare/bin/python"
                           : "");
  if (python.empty())
    GTEST_SKIP() << "no Python with PyTorch is here: make compare-env ARGS=--minimal";
  const auto row = measure_allreduce(spec_of(1, python), 1, 2);
  ASSERT_TRUE(row) << row.error().what;
  EXPECT_GT(row->gloo->seconds, 0);
  EXPECT_GT(row->gloo->cpu_seconds, 0);
  expect_no_children();
}

}  // namespace
}  // namespace swarmline
