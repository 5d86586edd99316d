#include "engine/net/shm/shm_segment.h"

#include <cerrno>
#include <fcntl.h>
#include <new>
#include <sys/mman.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

#include <fmt/format.h>

namespace swarmline {
namespace {

constexpr std::size_t kHeadBytes = 4096;  // of one ring
static_assert(sizeof(ShmRingHead) <= kHeadBytes);
constexpr std::size_t kSegmentBytes = 2 * (kHeadBytes + kShmRingBytes);
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

std::unexpected<Error> no_memory(const char* what) {
  return fail(ErrorCode::kIo, fmt::format("this machine gives no shared memory ({}: {})", what,
                                          std::generic_category().message(errno)));
}

}  // namespace

Result<std::unique_ptr<ShmSegment>> ShmSegment::map(int descriptor) {
  void* const at =
      ::mmap(nullptr, kSegmentBytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (at == MAP_FAILED) {
    auto error = no_memory("mmap");
    ::close(descriptor);
    return error;
  }
  return std::unique_ptr<ShmSegment>(new ShmSegment(descriptor, static_cast<std::byte*>(at)));
}

Result<std::unique_ptr<ShmSegment>> ShmSegment::make() {
  const int descriptor = ::memfd_create("swarmline-link", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (descriptor < 0) return no_memory("memfd_create");
  if (::ftruncate(descriptor, static_cast<off_t>(kSegmentBytes)) != 0 ||
      ::fcntl(descriptor, F_ADD_SEALS, kSeals) != 0) {
    auto error = no_memory("memfd");
    ::close(descriptor);
    return error;
  }
  auto made = map(descriptor);
  if (made)
    for (const bool first : {true, false}) new (&(*made)->head(first)) ShmRingHead{};
  return made;
}

Result<std::unique_ptr<ShmSegment>> ShmSegment::open(int descriptor) {
  struct stat facts{};
  const int seals = ::fcntl(descriptor, F_GET_SEALS);
  if (::fstat(descriptor, &facts) != 0 || seals < 0 || (seals & kSeals) != kSeals ||
      facts.st_size != static_cast<off_t>(kSegmentBytes)) {
    ::close(descriptor);
    return fail(ErrorCode::kCorrupt, "what was handed over is no shared memory of a link");
  }
  return map(descriptor);
}

ShmSegment::~ShmSegment() {
  ::munmap(at_, kSegmentBytes);
  ::close(descriptor_);
}

ShmRingHead& ShmSegment::head(bool first) {
  return *reinterpret_cast<ShmRingHead*>(at_ + (first ? 0 : kHeadBytes));
}

MutableBytes ShmSegment::ring(bool first) {
  return {at_ + 2 * kHeadBytes + (first ? 0 : kShmRingBytes), kShmRingBytes};
}

}  // namespace swarmline
