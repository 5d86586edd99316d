#include "tools/link_proxy/link_control.h"

#include <utility>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>
#include <fmt/format.h>

#include "engine/net/tcp/acceptor.h"
#include "engine/runtime/asio_access.h"

namespace swarmline {
namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

std::string_view next_word(std::string_view& text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  const std::string_view word = text.substr(0, text.find_first_of(" \t"));
  text.remove_prefix(word.size());
  return word;
}

std::string set_shape(LinkProxy& proxy, std::string_view rest) {
  const std::string_view way = next_word(rest);
  const bool forward = way == "forward" || way == "both";
  const bool backward = way == "backward" || way == "both";
  if (!forward && !backward)
    return "error: expected \"set forward|backward|both rate=100M delay=20ms ...\"";
  for (const auto& [chosen, which] :
       {std::pair(forward, LinkWay::kForward), std::pair(backward, LinkWay::kBackward)}) {
    if (!chosen) continue;
    auto shape = parse_link_shape(rest, proxy.shape(which));
    if (!shape) return "error: " + shape.error().what;
    proxy.set(which, *shape);
  }
  return "ok";
}

std::string show(const LinkProxy& proxy) {
  const LinkProxyCounters counters = proxy.counters();
  return fmt::format(
      "ok forward: {}; backward: {}; {}; {} open of {} connections; {} bytes forward, {} backward, "
      "{} corrupted",
      to_string(proxy.shape(LinkWay::kForward)), to_string(proxy.shape(LinkWay::kBackward)),
      proxy.is_cut() ? "cut" : "whole", counters.open, counters.connections, counters.forward_bytes,
      counters.backward_bytes, counters.corrupted_bytes);
}

}  // namespace

std::string steer_link(LinkProxy& proxy, std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  const std::string_view command = next_word(line);
  if (command == "set") return set_shape(proxy, line);
  if (command == "show") return show(proxy);
  if (command == "cut") {
    proxy.cut();
  } else if (command == "heal") {
    proxy.heal();
  } else if (command == "reset") {
    proxy.reset();
  } else {
    return fmt::format("error: \"{}\": expected set, cut, heal, reset or show", command);
  }
  return "ok";
}

struct LinkControl::State : std::enable_shared_from_this<State> {
  State(AsioRuntime& r, LinkProxy& p) : runtime(r), proxy(p), acceptor(io_context_of(r)) {}

  struct Talk {
    explicit Talk(tcp::socket s) : socket(std::move(s)) {}
    tcp::socket socket;
    std::string input;
    std::string answer;
  };

  void accept_next() {
    acceptor.async_accept([self = shared_from_this()](const error_code& error, tcp::socket socket) {
      if (!self->acceptor.is_open()) return;
      HandlerScope scope(self->runtime);
      if (!error) self->read(std::make_shared<Talk>(std::move(socket)));
      self->accept_next();
    });
  }
  void read(const std::shared_ptr<Talk>& talk) {
    asio::async_read_until(
        talk->socket, asio::dynamic_buffer(talk->input, kLineBytesMax), '\n',
        [self = shared_from_this(), talk](const error_code& error, std::size_t n) {
          if (error || !self->acceptor.is_open()) return;  // gone, or too long
          HandlerScope scope(self->runtime);
          self->answer(talk, n);
        });
  }
  void answer(const std::shared_ptr<Talk>& talk, std::size_t bytes) {
    const std::string line = talk->input.substr(0, bytes - 1);
    talk->input.erase(0, bytes);
    talk->answer = steer_link(proxy, line) + "\n";
    asio::async_write(talk->socket, asio::buffer(talk->answer),
                      [self = shared_from_this(), talk](const error_code& error, std::size_t) {
                        if (!error) self->read(talk);
                      });
  }

  AsioRuntime& runtime;
  LinkProxy& proxy;
  tcp::acceptor acceptor;
};

LinkControl::LinkControl(AsioRuntime& runtime, LinkProxy& proxy)
    : state_(std::make_shared<State>(runtime, proxy)) {}

LinkControl::~LinkControl() {
  error_code ignored;
  state_->acceptor.close(ignored);
}

Result<Address> LinkControl::listen(const Address& address) {
  auto bound = bind_acceptor(state_->acceptor, address);
  if (bound) state_->accept_next();
  return bound;
}

}  // namespace swarmline
