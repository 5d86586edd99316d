#include "engine/net/tcp/held_address.h"

#include <unistd.h>

#include "engine/net/tcp/acceptor.h"

namespace swarmline {

HeldAddress::~HeldAddress() {
  if (socket_ >= 0) ::close(socket_);
}

Result<Address> HeldAddress::hold(const Address& address) {
  SWARMLINE_CHECK(socket_ < 0);
  boost::asio::io_context nothing_runs;
  boost::asio::ip::tcp::acceptor bound_here(nothing_runs);
  auto bound = bind_only(bound_here, address);
  boost::system::error_code ignored;
  if (bound) socket_ = bound_here.release(ignored);
  return bound;
}

}  // namespace swarmline
