// Host memory that a CUDA device copies to and from directly: its pages stay where they are. Other
// memory goes through a buffer of the driver's, at a third of the speed and less.
//   Ownership: the memory is the caller's, and outlives the lock.
//   Thread:    any. Errors: none; what can't be locked is copied as before.
//   Cost:      some tenths of a second a GiB, once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/bytes.h"

namespace swarmline {

// Pages stay locked while it lives.
using PageLock = std::shared_ptr<const void>;
// Null: they are not locked. Only where device_kernels() opened.
PageLock lock_pages_for_device(MutableBytes memory);

namespace cuda {
bool lock_pages(void* memory, std::size_t bytes);
void unlock_pages(void* memory);
// Bytes that device number `device` has left; 0: it does not say.
std::uint64_t free_memory(int device);
}  // namespace cuda

}  // namespace swarmline
