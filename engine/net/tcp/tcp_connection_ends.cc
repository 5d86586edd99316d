// Who is at the two ends of a TcpConnection.
#include "engine/net/tcp/tcp_connection.h"

namespace swarmline {

std::optional<KeyHash> TcpConnection::peer_key() const {
  return secured_ ? std::optional(secured_->key) : std::nullopt;
}

std::string TcpConnection::admitted_as() const {
  return secured_ ? secured_->admitted_as : std::string();
}

std::string TcpConnection::local_host() const {
  boost::system::error_code error;
  const auto local = socket_.local_endpoint(error);
  return error ? std::string() : local.address().to_string();
}

Connection::Ends TcpConnection::ends() const {
  boost::system::error_code error;
  const auto own = socket_.local_endpoint(error);
  const auto other = error ? own : socket_.remote_endpoint(error);
  const auto text = [](const auto& end) {
    return to_string(Address{end.address().to_string(), end.port()});
  };
  return error ? Ends{} : Ends{.own = text(own), .other = text(other)};
}

}  // namespace swarmline
