#include "node/relay_node.h"

#include <utility>

#include "base/check.h"
#include "node/descriptors.h"

namespace swarmline {

RelayNode::RelayNode(AsioRuntime& runtime, RelayNodeOptions options,
                     std::function<void(int, const std::string&)> on_finished)
    : runtime_(runtime),
      options_(std::move(options)),
      on_finished_(std::move(on_finished)),
      door_(runtime_, options_.role.bounds) {}

Result<void> RelayNode::open() {
  raise_descriptors();  // two a link
  auto network = make_tcp_network(
      runtime_, {.name = options_.role.name, .slow_down = {}, .guard = options_.guard});
  if (!network) return std::unexpected(std::move(network).error());
  network_ = std::move(*network);
  role_.emplace(runtime_, *network_, door_, options_.role, on_finished_);
  return {};
}

void RelayNode::start() {
  SWARMLINE_CHECK(role_.has_value());
  role_->start();
}

void RelayNode::request_stop() {
  if (role_) role_->request_stop();
}

}  // namespace swarmline
