#include "tools/chaos/disk_faults.h"

#include <cerrno>
#include <cstring>
#include <sys/resource.h>

#include <fmt/format.h>

namespace swarmline {

Result<void> set_disk_full(pid_t process, bool full) {
  rlimit limit{};
  if (::prlimit(process, RLIMIT_FSIZE, nullptr, &limit) == 0) {
    limit.rlim_cur = full ? 0 : limit.rlim_max;
    if (::prlimit(process, RLIMIT_FSIZE, &limit, nullptr) == 0) return {};
  }
  return fail(ErrorCode::kIo,
              fmt::format("can't limit the files of process {}: {}", process, strerror(errno)));
}

}  // namespace swarmline
