#include "node/descriptors.h"

#include <numeric>
#include <sys/resource.h>

#include <fmt/format.h>

namespace swarmline {

std::uint64_t raise_descriptors() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  rlimit raised = limit;
  raised.rlim_cur = limit.rlim_max;
  return ::setrlimit(RLIMIT_NOFILE, &raised) == 0 ? raised.rlim_cur : limit.rlim_cur;
}

Result<void> enough_descriptors(const RunConfig& config, std::uint64_t allowed) {
  const auto& peers = config.pipeline.peers;
  const std::uint64_t wanted = std::accumulate(peers.begin(), peers.end(), std::uint64_t{0});
  if (wanted + kDescriptorsBesides <= allowed) return {};
  return fail(ErrorCode::kUserMistake,
              fmt::format("pipeline.peers: {} peers take a coordinator that may have {} files and "
                          "connections open; this one may have {}: raise the hard limit (ulimit "
                          "-Hn, or LimitNOFILE= of its service), or take fewer peers",
                          wanted, wanted + kDescriptorsBesides, allowed));
}

}  // namespace swarmline
