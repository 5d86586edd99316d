#include "node/network_factory.h"

#include <algorithm>
#include <utility>

#include "engine/net/tcp/tcp_network.h"
#include "node/descriptors.h"

namespace swarmline {
namespace {

constexpr std::uint64_t kDescriptorsOfAStranger = 8;  // one of so many may be one
constexpr std::size_t kStrangersMin = 64;

}  // namespace

Result<std::unique_ptr<Network>> make_tcp_network(AsioRuntime& runtime, NetworkUser user) {
  TcpOptions options{.guard = std::move(user.guard)};
  // Strangers are descriptors, too: the files and the peers of a run come first.
  options.strangers.connections_max = std::clamp<std::size_t>(
      raise_descriptors() / kDescriptorsOfAStranger, kStrangersMin, Limits::strangers_max);
  options.strangers.of_host_max =
      std::min(Limits::strangers_of_host_max, options.strangers.connections_max / 2);
  return std::make_unique<TcpNetwork>(runtime, std::move(options));
}

}  // namespace swarmline
