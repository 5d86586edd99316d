// The fabric's CUDA side over stand-ins for CUDA's runtime and driver, its members in one process:
// what it copies and maps, and what it says of each call that fails.

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/fabric/device_fabric_entry.h"
#include "engine/fabric/ipc_member.h"
#include "tests/contract/cuda_driver_stand_in.h"
#include "tests/contract/fabric_pair.h"
#include "tests/kernels/cuda_stand_in.h"
#include "tests/kernels/cuda_stand_in_device.h"
#include "tests/kernels/device_array.h"

extern "C" {
extern const swarmline::DeviceFabricEntry swarmline_cuda_fabric;
}

namespace swarmline {
namespace {

using testing::CudaFault;
using testing::DeviceBytes;
using testing::FaultKind;
using testing::Locked;
using Way = FabricTransfer::Way;

constexpr std::size_t kBytes = 1000, kBefore = 96;

bool allocation_of(std::uintptr_t at, std::uintptr_t* base, std::size_t* bytes) {
  const Locked all;
  const auto found = all->allocation_of(reinterpret_cast<const void*>(at));
  if (!found) return false;
  *base = reinterpret_cast<std::uintptr_t>(found->data());
  *bytes = found->size();
  return true;
}

std::shared_ptr<IpcApi> make_ipc() {
  auto made = swarmline_cuda_fabric.make_ipc(0);
  EXPECT_TRUE(made) << made.error().what;
  return made ? std::move(*made) : nullptr;
}
std::size_t mappings() {
  return Locked()->mapped.size();
}

// What one member sends and where the other receives, within larger allocations.
class Places {
 public:
  explicit Places(std::byte value) {
    const std::vector<std::byte> values(kBytes, value);
    EXPECT_EQ(cudaMemcpy(sent(), values.data(), kBytes, cudaMemcpyHostToDevice), cudaSuccess);
    EXPECT_EQ(cudaMemset(received(), 0, kBytes), cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
  DeviceAddress sent() { return reinterpret_cast<DeviceAddress>(from_.data()) + kBefore; }
  DeviceAddress received() { return reinterpret_cast<DeviceAddress>(to_.data()); }
  std::vector<FabricTransfer> transfers(std::uint32_t with) {
    return {{Way::kSend, with, sent(), kBytes}, {Way::kReceive, with, received(), kBytes}};
  }
  std::vector<std::byte> got() {
    std::vector<std::byte> here(kBytes);
    EXPECT_EQ(cudaMemcpy(here.data(), received(), kBytes, cudaMemcpyDeviceToHost), cudaSuccess);
    return here;
  }

 private:
  DeviceBytes from_{kBefore + kBytes}, to_{kBytes};
};

class CudaFabricEmulation : public ::testing::Test {
 protected:
  void SetUp() override {
    cuda_driver_stand_in = {.allocation = allocation_of};
    ASSERT_EQ(mappings(), 0U);
  }
  void TearDown() override { EXPECT_EQ(mappings(), 0U); }
};

TEST_F(CudaFabricEmulation, BytesGoFromMemoryToMemory) {
  Places of_0(std::byte{1}), of_1(std::byte{2});
  FabricPair pair(FabricKind::kIpc, make_ipc);
  const testing::Crossed before = testing::crossed();
  pair.open_groups();
  for (std::size_t turn = 1; turn <= 3; ++turn) {
    pair.exchange(0, of_0.transfers(1));
    pair.exchange(1, of_1.transfers(0));
    ASSERT_TRUE(pair.have_results(turn));
    EXPECT_EQ(pair.results_[0].back(), "well");
    EXPECT_EQ(pair.results_[1].back(), "well");
    EXPECT_EQ(mappings(), 2U) << "each maps the other's once";
  }
  EXPECT_EQ(testing::crossed() - before, testing::Crossed{});
  EXPECT_EQ(of_0.got(), std::vector<std::byte>(kBytes, std::byte{2}));
  EXPECT_EQ(of_1.got(), std::vector<std::byte>(kBytes, std::byte{1}));
  EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "left behind";
  pair.close();
}

// Of each call that a member makes, one after the other: by whichever it is, the exchange fails in
// CUDA's words at one end at least, or the call is the other end's to make.
TEST_F(CudaFabricEmulation, EachCallThatFailsIsSaid) {
  for (const FaultKind kind : {FaultKind::kOnce, FaultKind::kLost}) {
    std::uint64_t behind = 0;
    for (bool has_happened = true; has_happened; ++behind) {
      SCOPED_TRACE(std::to_string(behind) + (kind == FaultKind::kLost ? ", lost" : ""));
      ASSERT_LT(behind, 200U);
      Places of_0(std::byte{1}), of_1(std::byte{2});
      FabricPair pair(FabricKind::kIpc, make_ipc);
      {
        const CudaFault fault(behind, cudaErrorIllegalAddress, kind);
        pair.open_groups();
        pair.exchange(0, of_0.transfers(1));
        pair.exchange(1, of_1.transfers(0));
        ASSERT_TRUE(pair.have_results(1));
        has_happened = fault.has_happened();
        const auto& said_0 = pair.results_[0].front();
        const auto& said_1 = pair.results_[1].front();
        const auto says = [](const std::string& said) {
          return said.starts_with("CUDA: ") &&
                 said.ends_with(": an illegal memory access was encountered");
        };
        if (has_happened)
          EXPECT_TRUE(says(said_0) || says(said_1)) << said_0 << " / " << said_1;
        else
          EXPECT_EQ(said_0 + said_1, "wellwell");
        if (kind == FaultKind::kOnce) EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "left behind";
        pair.close();
      }
      EXPECT_EQ(mappings(), 0U);
    }
    EXPECT_GT(behind, 10U);
  }
}

TEST_F(CudaFabricEmulation, MemoryThatCanNotBeSharedIsSaid) {
  Places places(std::byte{1});
  const auto ipc = make_ipc();
  const auto refused = [&](DeviceAddress memory, std::uint64_t bytes) {
    const auto shared = ipc->share(memory, bytes);
    EXPECT_FALSE(shared);
    return shared ? std::string() : shared.error().what;
  };
  EXPECT_TRUE(ipc->share(places.sent(), kBytes));
  EXPECT_NE(refused(places.sent(), kBytes + 2), "") << "past the allocation";
  std::byte on_host[8];
  EXPECT_EQ(refused(on_host, 8), "CUDA: memory of the fabric is no device's memory");
  cuda_driver_stand_in.can_share = false;
  EXPECT_NE(refused(places.sent(), kBytes).find("take expandable_segments out of"),
            std::string::npos);
}

TEST_F(CudaFabricEmulation, AMappingThatNobodyKnowsIsGivenBack) {
  Places places(std::byte{1});
  const auto ipc = make_ipc();
  const auto shared = ipc->share(places.sent(), kBytes);
  ASSERT_TRUE(shared);
  EXPECT_EQ(shared->offset, kBefore);
  cuda_driver_stand_in.allocation = [](auto, auto*, auto*) { return false; };
  EXPECT_FALSE(ipc->map(shared->handle));
}

// CUDA cuts small allocations out of larger blocks, and the driver may name the block.
TEST_F(CudaFabricEmulation, MemoryInALargerBlockIsReadFromWhereItIs) {
  Places places(std::byte{1});
  const auto ipc = make_ipc();
  const auto shared = ipc->share(places.sent(), kBytes);
  ASSERT_TRUE(shared);
  cuda_driver_stand_in.allocation = [](std::uintptr_t at, std::uintptr_t* base,
                                       std::size_t* bytes) {
    if (!allocation_of(at, base, bytes)) return false;
    *base -= kBefore;
    *bytes += kBefore;
    return true;
  };
  const auto mapped = ipc->map(shared->handle);
  ASSERT_TRUE(mapped) << mapped.error().what;
  EXPECT_EQ(mapped->memory + shared->offset, places.sent());
  const auto allocation = Locked()->allocation_of(mapped->memory);
  ASSERT_TRUE(allocation);
  EXPECT_EQ(mapped->bytes, allocation->size()) << "no byte past the block";
  ipc->unmap(mapped->memory);
}

TEST_F(CudaFabricEmulation, ADeviceSaysWhichItIs) {
  EXPECT_EQ(swarmline_cuda_fabric.uuid(0).value_or(""), "GPU-64656667-6869-6a6b-6c6d-6e6f70717273");
  cuda_driver_stand_in.knows_device = false;
  const auto unknown = swarmline_cuda_fabric.uuid(0);
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().what, "CUDA does not say which device this is");
}

}  // namespace
}  // namespace swarmline
