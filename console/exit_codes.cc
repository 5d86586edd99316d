#include "console/exit_codes.h"

#include <cstdio>

#include "base/printable.h"

namespace swarmline {

int report_error(const Error& error) {
  std::fflush(stdout);
  // It may be another process that says so.
  std::fprintf(stderr, "swarmline: %s\n", printable_lines(error.what).c_str());
  return exit_code_of(error);
}

}  // namespace swarmline
