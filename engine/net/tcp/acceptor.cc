#include "engine/net/tcp/acceptor.h"

#include <fcntl.h>

#include <fmt/format.h>

#include "base/limits.h"

namespace swarmline {
namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

std::unexpected<Error> cannot_listen(const Address& address, const error_code& error,
                                     ErrorCode code = ErrorCode::kIo) {
  return fail(code, fmt::format("cannot listen on {}: {}", to_string(address), error.message()));
}

Result<tcp::endpoint> endpoint_of(tcp::acceptor& acceptor, const Address& address) {
  error_code error;
  const auto ip = asio::ip::make_address(address.host, error);  // a literal asks no name server
  if (!error) return tcp::endpoint(ip, address.port);
  const auto found = tcp::resolver(acceptor.get_executor())
                         .resolve(address.host, std::to_string(address.port), error);
  if (!error) return found.begin()->endpoint();
  return cannot_listen(address, error, ErrorCode::kNotFound);
}

}  // namespace

Result<Address> bind_only(tcp::acceptor& acceptor, const Address& address) {
  const auto wanted = endpoint_of(acceptor, address);
  if (!wanted) return std::unexpected(wanted.error());
  error_code error;
  acceptor.open(wanted->protocol(), error);
  if (!error) fcntl(acceptor.native_handle(), F_SETFD, FD_CLOEXEC);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(*wanted, error);
  const tcp::endpoint bound = error ? *wanted : acceptor.local_endpoint(error);
  if (!error) return Address{bound.address().to_string(), bound.port()};
  return cannot_listen(address, error);
}

Result<Address> bind_acceptor(tcp::acceptor& acceptor, const Address& address) {
  auto bound = bind_only(acceptor, address);
  if (!bound) return bound;
  error_code error;
  acceptor.listen(Limits::accept_backlog_max, error);
  if (error) return cannot_listen(address, error);
  return bound;
}

}  // namespace swarmline
