// The fabric between processes on real devices: CUDA's inter-process communication on one card, and
// NCCL between two. Each member is a process of its own, begun before this one has touched CUDA.
// Skips, with the reason, where the cards are not.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>
#include <numeric>
#include <optional>
#include <spawn.h>
#include <string>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

#include "engine/fabric/device_fabric.h"
#include "engine/runtime/asio_runtime.h"

extern char** environ;

namespace swarmline {
namespace {

using namespace std::chrono_literals;
using Way = FabricTransfer::Way;

constexpr int kMemberSocket = 20;                           // above what this process has open
constexpr const char* kMember = "SWARMLINE_FABRIC_MEMBER";  // "nccl" or "ipc", rank, device, socket

int devices() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

std::vector<std::uint32_t> pattern(std::uint32_t rank, std::size_t words) {
  std::vector<std::uint32_t> values(words);
  std::iota(values.begin(), values.end(), rank << 28);
  return values;
}

class Member {
 public:
  Member(const std::string& kind, std::uint32_t rank, const std::string& device, int socket)
      : kind_(kind == "nccl" ? FabricKind::kNccl : FabricKind::kIpc), rank_(rank), socket_(socket) {
    parts_ = device_fabric_parts(device, missing_);
    EXPECT_EQ(cudaSetDevice(std::stoi(device.substr(5))), cudaSuccess);
  }
  ~Member() {
    group_.reset();
    ::shutdown(socket_, SHUT_RDWR);
    if (reader_.joinable()) reader_.join();
  }

  const std::string& missing() const { return missing_; }

  bool begin() {
    fabric_ = std::make_unique<DeviceFabric>(runtime_, parts_);
    if (!fabric_->offers(kind_)) return false;
    group_ = fabric_->open(kind_, rank_, 2, [this](std::uint32_t, const Buffer& word) {
      const auto size = static_cast<std::uint32_t>(word.size());
      send(&size, sizeof size);
      send(word.data(), size);
    });
    reader_ = std::thread([this] { read_words(); });
    return true;
  }

  // Seconds, of both ways at once.
  double exchange(std::size_t bytes) {
    const std::size_t words = (bytes + 3) / 4;
    const auto mine = pattern(rank_, words), theirs = pattern(1 - rank_, words);
    std::byte *sent = nullptr, *received = nullptr;
    EXPECT_EQ(cudaMalloc(reinterpret_cast<void**>(&sent), 4 * words + 256), cudaSuccess);
    EXPECT_EQ(cudaMalloc(reinterpret_cast<void**>(&received), 4 * words), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(sent + 256, mine.data(), 4 * words, cudaMemcpyHostToDevice), cudaSuccess);
    EXPECT_EQ(cudaMemset(received, 0, 4 * words), cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    std::optional<Result<void>> result;
    const auto began = std::chrono::steady_clock::now();
    group_->exchange(
        {{Way::kSend, 1 - rank_, sent + 256, bytes}, {Way::kReceive, 1 - rank_, received, bytes}},
        [&](Result<void> done) { result = std::move(done); });
    EXPECT_TRUE(runtime_.run_until([&] { return result.has_value() || is_alone_; }, 60s));
    const auto ended = std::chrono::steady_clock::now();
    EXPECT_TRUE(result && *result) << (result ? result->error().what : "no answer");
    std::vector<std::uint32_t> got(words);
    EXPECT_EQ(cudaMemcpy(got.data(), received, 4 * words, cudaMemcpyDeviceToHost), cudaSuccess);
    EXPECT_EQ(std::memcmp(got.data(), theirs.data(), bytes), 0) << bytes;
    // What others have mapped stays until their groups are gone.
    kept_.push_back(sent);
    cudaFree(received);
    return std::chrono::duration<double>(ended - began).count();
  }

  // Nobody frees what another one still has mapped.
  void end() {
    say_and_hear_end(1);
    group_.reset();
    fabric_.reset();
    say_and_hear_end(2);
    for (std::byte* memory : kept_) cudaFree(memory);
  }

 private:
  void say_and_hear_end(int times) {
    const std::uint32_t end = 0;
    send(&end, sizeof end);
    EXPECT_TRUE(runtime_.run_until([&] { return ends_heard_ >= times || is_alone_; }, 20s));
    EXPECT_GE(ends_heard_, times);
  }
  // The other one may be gone.
  void send(const void* bytes, std::size_t size) {
    EXPECT_EQ(::send(socket_, bytes, size, MSG_NOSIGNAL), static_cast<ssize_t>(size));
  }

  void read_words() {
    read_until_alone();
    runtime_.post([this] { is_alone_ = true; });
  }

  void read_until_alone() {
    std::uint32_t size = 0;
    while (::recv(socket_, &size, sizeof size, MSG_WAITALL) == ssize_t{sizeof size}) {
      if (size == 0) {
        runtime_.post([this] { ++ends_heard_; });
        continue;
      }
      auto word = std::make_shared<Buffer>(size);
      if (::recv(socket_, word->data(), size, MSG_WAITALL) != ssize_t{size}) return;
      runtime_.post([this, word] {
        if (group_) EXPECT_TRUE(group_->on_word(1 - rank_, word->bytes()).has_value());
      });
    }
  }

  const FabricKind kind_;
  const std::uint32_t rank_;
  const int socket_;
  AsioRuntime runtime_;
  std::string missing_;
  DeviceFabricParts parts_;
  std::unique_ptr<DeviceFabric> fabric_;
  std::unique_ptr<FabricGroup> group_;
  std::thread reader_;
  int ends_heard_ = 0;
  bool is_alone_ = false;
  std::vector<std::byte*> kept_;
};

// Not a test by itself, so disabled: one process of the group, which the tests below start.
TEST(CudaFabricMember, DISABLED_TakesPart) {
  const char* const said = std::getenv(kMember);
  ASSERT_NE(said, nullptr);
  char kind[8], device[16];
  unsigned rank = 0;
  int socket = -1;
  ASSERT_EQ(std::sscanf(said, "%7s %u %15s %d", kind, &rank, device, &socket), 4);
  Member member(kind, rank, device, socket);
  ASSERT_TRUE(member.begin()) << member.missing();
  for (const std::size_t bytes : {1UL, 3UL, 4096UL, (1UL << 20) + 3, 256UL << 20, 256UL << 20}) {
    const double seconds = member.exchange(bytes);
    if (rank == 0)
      std::printf("fabric %s: %zu bytes each way in %.6f s, %.1f GB/s\n", kind, bytes, seconds,
                  static_cast<double>(bytes) / seconds / 1e9);
    ASSERT_FALSE(HasFailure()) << "of " << bytes << " bytes; nothing else is tried";
  }
  member.end();
}

// Both members; their exit codes.
void run_members(const std::string& kind, const std::vector<std::string>& on) {
  int sockets[2];
  // Each member has its own end alone, so that one that dies is heard of.
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
  std::vector<pid_t> members;
  for (unsigned rank = 0; rank < 2; ++rank) {
    const std::string member = std::string(kMember) + "=" + kind + " " + std::to_string(rank) +
                               " " + on[rank] + " " + std::to_string(kMemberSocket);
    std::vector<char*> environment;
    for (char** at = environ; *at != nullptr; ++at) environment.push_back(*at);
    environment.push_back(const_cast<char*>(member.c_str()));
    environment.push_back(nullptr);
    const std::vector<const char*> arguments = {
        "cuda_fabric_test", "--gtest_also_run_disabled_tests",
        "--gtest_filter=CudaFabricMember.DISABLED_TakesPart", "--gtest_brief=1", nullptr};
    posix_spawn_file_actions_t own;
    ASSERT_EQ(::posix_spawn_file_actions_init(&own), 0);
    ASSERT_EQ(::posix_spawn_file_actions_adddup2(&own, sockets[rank], kMemberSocket), 0);
    pid_t pid = 0;
    ASSERT_EQ(::posix_spawn(&pid, "/proc/self/exe", &own, nullptr,
                            const_cast<char* const*>(arguments.data()), environment.data()),
              0);
    ::posix_spawn_file_actions_destroy(&own);
    members.push_back(pid);
  }
  for (const int socket : sockets) ::close(socket);
  for (const pid_t member : members) {
    int status = 0;
    ASSERT_EQ(::waitpid(member, &status, 0), member);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << kind << ": status " << status;
  }
}

TEST(CudaFabric, ProcessesThatShareACardExchangeBytes) {
  if (devices() < 1) GTEST_SKIP() << "no CUDA device";
  run_members("ipc", {"cuda:0", "cuda:0"});
}

TEST(CudaFabric, ProcessesOnCardsThatReachEachOtherExchangeBytes) {
  if (devices() < 2) GTEST_SKIP() << "no second CUDA device";
  int reach = 0;
  if (cudaDeviceCanAccessPeer(&reach, 0, 1) != cudaSuccess || reach == 0)
    GTEST_SKIP() << "the cards do not reach each other";
  run_members("ipc", {"cuda:0", "cuda:1"});
}

TEST(CudaFabric, ProcessesWithCardsOfTheirOwnExchangeBytesOverNccl) {
  if (devices() < 2) GTEST_SKIP() << "no second CUDA device";
  run_members("nccl", {"cuda:0", "cuda:1"});
}

TEST(CudaFabric, ADeviceSaysWhichItIs) {
  if (devices() < 1) GTEST_SKIP() << "no CUDA device";
  std::string missing;
  const DeviceFabricParts parts = device_fabric_parts("cuda:0", missing);
  EXPECT_EQ(missing, "");
  EXPECT_NE(parts.nccl, nullptr);
  const GpuIdentity identity = gpu_identity("cuda:0", parts);
  EXPECT_EQ(identity.uuid.size(), 40U) << identity.uuid;
  EXPECT_TRUE(identity.uuid.starts_with("GPU-"));
  EXPECT_EQ(gpu_identity("cuda", parts), identity);
  EXPECT_GE(identity.nccl, 21400U);
  EXPECT_TRUE(identity.ipc);
}

}  // namespace
}  // namespace swarmline
