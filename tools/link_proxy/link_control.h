// Steers a LinkProxy with lines of text, from a control port or a test:
//   set forward|backward|both SHAPE   e.g. "set both rate=100M delay=20ms"
//   cut   heal   reset                as in link_proxy.h
//   show                              shapes and counters
// Each line is answered by one line: "ok", "ok ..." or "error: ...".
//   Thread: control thread. Bounds: lines of at most kLineBytesMax bytes; a longer one ends its
//   connection.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "tools/link_proxy/link_proxy.h"

namespace swarmline {

std::string steer_link(LinkProxy& proxy, std::string_view line);

// The control port.
class LinkControl {
 public:
  static constexpr std::size_t kLineBytesMax = 4096;

  LinkControl(AsioRuntime& runtime, LinkProxy& proxy);  // both outlive it
  ~LinkControl();
  LinkControl(const LinkControl&) = delete;
  LinkControl& operator=(const LinkControl&) = delete;

  Result<Address> listen(const Address& address);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace swarmline
