#include "engine/net/tcp/acceptor.h"

#include <fcntl.h>

#include <fmt/format.h>

#include "base/limits.h"

namespace swarmline {
namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

Result<tcp::endpoint> endpoint_of(tcp::acceptor& acceptor, const Address& address) {
  error_code error;
  const auto ip = asio::ip::make_address(address.host, error);  // a literal asks no name server
  if (!error) return tcp::endpoint(ip, address.port);
  const auto found = tcp::resolver(acceptor.get_executor())
                         .resolve(address.host, std::to_string(address.port), error);
  if (!error) return found.begin()->endpoint();
  return fail(ErrorCode::kNotFound,
              fmt::format("cannot listen on {}: {}", to_string(address), error.message()));
}

}  // namespace

Result<Address> bind_acceptor(tcp::acceptor& acceptor, const Address& address) {
  const auto wanted = endpoint_of(acceptor, address);
  if (!wanted) return std::unexpected(wanted.error());
  error_code error;
  acceptor.open(wanted->protocol(), error);
  if (!error) fcntl(acceptor.native_handle(), F_SETFD, FD_CLOEXEC);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(*wanted, error);
  if (!error) acceptor.listen(Limits::accept_backlog_max, error);
  const tcp::endpoint bound = error ? *wanted : acceptor.local_endpoint(error);
  if (!error) return Address{bound.address().to_string(), bound.port()};
  return fail(ErrorCode::kIo,
              fmt::format("cannot listen on {}: {}", to_string(address), error.message()));
}

}  // namespace swarmline
