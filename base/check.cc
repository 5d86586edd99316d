#include "base/check.h"

#include <cstdio>
#include <cstdlib>
#include <execinfo.h>
#include <unistd.h>

namespace swarmline {

void check_failed(const char* file, int line, const char* condition, const std::string& detail) {
  std::fprintf(stderr, "%s:%d: invariant broken: %s%s%s\n", file, line, condition,
               detail.empty() ? "" : ": ", detail.c_str());
  void* frames[64];
  const int count = backtrace(frames, 64);
  backtrace_symbols_fd(frames, count, STDERR_FILENO);
  std::abort();
}

}  // namespace swarmline
