#include "engine/store/run_lock.h"

#include <cerrno>
#include <fcntl.h>
#include <sys/file.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "engine/store/files.h"

namespace swarmline {

namespace {

constexpr std::uint64_t kHolderBytesMax = 4096;

std::unexpected<Error> failed(const std::string& path) {
  return fail(ErrorCode::kIo,
              fmt::format("cannot lock {}: {}", path, std::generic_category().message(errno)));
}

}  // namespace

Result<bool> RunLock::try_acquire(const std::string& who) {
  if (held()) return true;
  const int descriptor = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (descriptor < 0) return failed(path_);
  if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    const bool taken = errno == EWOULDBLOCK;
    auto why = failed(path_);
    ::close(descriptor);
    if (taken) return false;
    return why;
  }
  descriptor_ = descriptor;
  if (::ftruncate(descriptor, 0) != 0 ||
      ::pwrite(descriptor, who.data(), who.size(), 0) != static_cast<ssize_t>(who.size())) {
    auto why = failed(path_);
    release();
    return why;
  }
  return true;
}

Result<std::optional<std::string>> RunLock::holder() {
  if (!held()) {
    const int descriptor = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0 && errno == ENOENT) return std::nullopt;
    if (descriptor < 0) return failed(path_);
    const bool is_free = ::flock(descriptor, LOCK_SH | LOCK_NB) == 0;
    ::close(descriptor);
    if (is_free) return std::nullopt;
  }
  auto who = read_text_file(path_, kHolderBytesMax);
  if (!who) return std::unexpected(std::move(who).error());
  return std::move(*who);
}

void RunLock::release() {
  if (held()) ::close(std::exchange(descriptor_, -1));
}

}  // namespace swarmline
