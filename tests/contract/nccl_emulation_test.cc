// The fabric's calls of NCCL over a stand-in for its library: what it is asked, and what is made of
// its answers.

#include <algorithm>
#include <functional>
#include <string>

#include <gtest/gtest.h>

#include "engine/fabric/device_fabric_entry.h"
#include "tests/contract/nccl_library_stand_in.h"

extern "C" {
extern const swarmline::DeviceFabricEntry swarmline_cuda_fabric;
}

namespace swarmline {
namespace {

struct NamedStream final : DeviceStream {
  void* native() override { return reinterpret_cast<void*>(std::uintptr_t{33}); }
  Result<bool> has_ended() override { return true; }
};

class NcclEmulation : public ::testing::Test {
 protected:
  void SetUp() override {
    nccl_library_stand_in = {};
    auto made = swarmline_cuda_fabric.make_nccl(0);
    ASSERT_TRUE(made) << made.error().what;
    nccl_ = std::move(*made);
  }
  std::string last() { return nccl_library_stand_in.asked.back(); }

  std::unique_ptr<NcclApi> nccl_;
  NamedStream stream_;
  NcclCommunicator communicator_ = nullptr;
};

TEST_F(NcclEmulation, ACommunicatorIsAskedForAndDoesNotBlock) {
  EXPECT_EQ(nccl_->version(), 22809);
  const auto id = nccl_->make_id();
  ASSERT_TRUE(id);
  EXPECT_TRUE(std::ranges::all_of(*id, [](std::byte at) { return at == std::byte{7}; }));
  nccl_library_stand_in.answer = ncclInProgress;
  EXPECT_EQ(nccl_->init(communicator_, *id, 1, 3), NcclState::kUnderWay);
  EXPECT_EQ(last(), "init 1 of 3, id 7, blocking 0");
  EXPECT_NE(communicator_, nullptr);
  nccl_library_stand_in.answer = ncclSuccess;
  nccl_library_stand_in.state = ncclInProgress;
  EXPECT_EQ(nccl_->state(communicator_), NcclState::kUnderWay);
  nccl_library_stand_in.state = ncclSuccess;
  EXPECT_EQ(nccl_->state(communicator_), NcclState::kDone);
}

TEST_F(NcclEmulation, BytesAreAskedForAsBytes) {
  ASSERT_TRUE(nccl_->init(communicator_, {}, 0, 2));
  auto* const memory = reinterpret_cast<DeviceAddress>(std::uintptr_t{640});
  EXPECT_TRUE(nccl_->group_start());
  EXPECT_TRUE(nccl_->send(communicator_, stream_, 1, memory, (std::uint64_t{1} << 33) + 5));
  EXPECT_EQ(last(), "send 8589934597 of type 0 at 640, rank 1 in 4096, stream 33");
  EXPECT_TRUE(nccl_->receive(communicator_, stream_, 1, memory, 3));
  EXPECT_EQ(last(), "receive 3 of type 0 at 640, rank 1 in 4096, stream 33");
  nccl_library_stand_in.answer = ncclInProgress;
  EXPECT_EQ(nccl_->group_end(communicator_), NcclState::kUnderWay);
  EXPECT_TRUE(nccl_->send(communicator_, stream_, 1, memory, 3)) << "its state will say";
  EXPECT_EQ(nccl_->finalize(communicator_), NcclState::kUnderWay);
}

TEST_F(NcclEmulation, EachCallThatFailsIsSaidInItsWords) {
  ASSERT_TRUE(nccl_->init(communicator_, {}, 0, 2));
  const auto said = [](const auto& result) {
    EXPECT_FALSE(result);
    if (result) return std::string();
    EXPECT_EQ(result.error().code, ErrorCode::kDevice);
    return result.error().what;
  };
  const std::pair<const char*, std::function<std::string()>> calls[] = {
      {"making an id", [&] { return said(nccl_->make_id()); }},
      {"making a communicator", [&] { return said(nccl_->init(communicator_, {}, 0, 2)); }},
      {"asking a communicator", [&] { return said(nccl_->state(communicator_)); }},
      {"a group", [&] { return said(nccl_->group_start()); }},
      {"sending", [&] { return said(nccl_->send(communicator_, stream_, 1, nullptr, 1)); }},
      {"receiving", [&] { return said(nccl_->receive(communicator_, stream_, 1, nullptr, 1)); }},
      {"an exchange", [&] { return said(nccl_->group_end(communicator_)); }},
      {"closing a communicator", [&] { return said(nccl_->finalize(communicator_)); }},
      {"closing a communicator", [&] { return said(nccl_->destroy(communicator_)); }},
      {"aborting a communicator", [&] { return said(nccl_->abort(communicator_)); }}};
  nccl_library_stand_in.answer = ncclRemoteError;
  for (const auto& [what, call] : calls) {
    nccl_library_stand_in.last_error = "";
    EXPECT_EQ(call(), std::string("NCCL: ") + what + ": remote process exited");
    nccl_library_stand_in.last_error = "socket\nclosed";
    EXPECT_EQ(call(), std::string("NCCL: ") + what + ": remote process exited (socket closed)");
  }
  nccl_library_stand_in.answer = ncclSuccess;
  nccl_library_stand_in.state = ncclRemoteError;
  EXPECT_EQ(said(nccl_->state(communicator_)),
            "NCCL: in a communicator: remote process exited (socket closed)");
}

}  // namespace
}  // namespace swarmline
