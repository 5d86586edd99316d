// A process's disk, full from one moment to the next, done to it from outside: a file size limit
// makes every write to a file fail (EFBIG for ENOSPC).
//   Thread:    any. Errors: kIo with the system's reason.
#pragma once

#include <sys/types.h>

#include "base/result.h"

namespace swarmline {

Result<void> set_disk_full(pid_t process, bool full);

}  // namespace swarmline
