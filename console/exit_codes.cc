#include "console/exit_codes.h"

#include <cstdio>

namespace swarmline {

int report_error(const Error& error) {
  std::fflush(stdout);
  std::fprintf(stderr, "swarmline: %s\n", error.what.c_str());
  return exit_code_of(error);
}

}  // namespace swarmline
