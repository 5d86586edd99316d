#include "pipeline/protocol/protocol_version.h"

#include <fmt/format.h>

namespace swarmline {

Result<void> check_protocol(std::uint32_t theirs) {
  if (theirs == kProtocolVersion) return {};
  const bool older = theirs < kProtocolVersion;
  return fail(ErrorCode::kRefused,
              fmt::format("it speaks protocol {}, this run speaks {}: its swarmline is {} than the "
                          "coordinator's; install the coordinator's version there{}",
                          theirs, kProtocolVersion, older ? "older" : "newer",
                          older ? "" : ", or start the coordinator again with the newer one"));
}

}  // namespace swarmline
