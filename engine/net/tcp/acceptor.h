// Binding a listening socket, for whatever listens through Asio. Only .cc files of backends see it.
#pragma once

#include <boost/asio/ip/tcp.hpp>

#include "base/result.h"
#include "engine/net/network.h"

namespace swarmline {

// Opens, binds and listens; port 0 takes any free one. Returns the bound address.
//   kNotFound: no such name; kIo: the address can't be had. Both with a sentence.
Result<Address> bind_acceptor(boost::asio::ip::tcp::acceptor& acceptor, const Address& address);

// The same without listening: several may have bound an address while nobody listens there.
Result<Address> bind_only(boost::asio::ip::tcp::acceptor& acceptor, const Address& address);

}  // namespace swarmline
