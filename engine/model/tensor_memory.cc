#include "engine/model/tensor_memory.h"

#include <cstdint>
#include <cstring>
#include <mutex>

#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>

#include "base/block_cache.h"

namespace swarmline {
namespace {

// Above that of libtorch's own, which is 0.
constexpr std::uint8_t kPriority = 1;

// Libtorch frees some of its memory by its address alone, so that one function frees all.
void free_tensor(void* memory) {
  if (!BlockCache::shared().give_back(static_cast<std::byte*>(memory))) c10::free_cpu(memory);
}

class TensorMemory final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t size) override {
    void* const memory =
        size < BlockCache::kBlockBytesMin ? c10::alloc_cpu(size) : BlockCache::shared().take(size);
    return {memory, memory, &free_tensor, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_tensor; }
  void copy_data(void* to, const void* from, std::size_t count) const override {
    std::memcpy(to, from, count);
  }
};

}  // namespace

void keep_tensors_in_blocks() {
  static std::once_flag once;
  // Never destroyed: tensors of static objects may outlive main().
  std::call_once(once, [] { c10::SetCPUAllocator(new TensorMemory, kPriority); });
}

}  // namespace swarmline
