#include <cstdlib>

#include "engine/net/ucx/ucx_backend.h"

namespace swarmline {

void set_ucx_environment() {
  constexpr int kKeep = 0;
  ::setenv("UCX_HANDLE_ERRORS", "none", kKeep);
  ::setenv("UCX_MEM_EVENTS", "n", kKeep);
  // Not /dev/stderr: that would be opened anew, and what is in it cut off where it is a file.
  ::setenv("UCX_LOG_FILE", "stderr", kKeep);
  ::setenv("UCX_LOG_LEVEL", "fatal", kKeep);
  ::setenv("UCX_WARN_UNUSED_ENV_VARS", "n", kKeep);
  // Or dialling another process would hold up the thread that answers heartbeats.
  ::setenv("UCX_TCP_CONN_NB", "y", kKeep);
}

}  // namespace swarmline
