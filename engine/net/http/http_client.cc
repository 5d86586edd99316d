#include "engine/net/http/http_client.h"

#include <chrono>
#include <optional>
#include <string>

#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <fmt/format.h>

#include "engine/runtime/asio_access.h"

namespace swarmline {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;

constexpr int kHttpVersion = 11;
constexpr std::uint16_t kHttpPort = 80;
constexpr std::string_view kScheme = "http://";

ErrorCode code_of(const beast::error_code& error) {
  if (error == beast::error::timeout || error == asio::error::operation_aborted)
    return ErrorCode::kDeadline;
  const bool no_http =
      error.category() == http::make_error_code(http::error::bad_version).category();
  return no_http && error != http::error::end_of_stream ? ErrorCode::kCorrupt
                                                        : ErrorCode::kPeerGone;
}

}  // namespace

Result<Address> parse_http_base(std::string_view url) {
  const auto mistake = [&](std::string_view why) {
    return fail(
        ErrorCode::kUserMistake,
        fmt::format("found \"{}\": {}; expected http://HOST or http://HOST:PORT", url, why));
  };
  if (!url.starts_with(kScheme)) return mistake("it does not begin with http://");
  std::string_view rest = url.substr(kScheme.size());
  if (rest.ends_with('/')) rest.remove_suffix(1);
  if (rest.empty() || rest.find('/') != rest.npos) return mistake("it is not only a host");
  const bool has_port = rest.ends_with(']') ? false : rest.find(':') != rest.npos;
  const auto address =
      parse_address(has_port ? std::string(rest) : fmt::format("{}:{}", rest, kHttpPort));
  if (!address || address->port == 0) return mistake("its host or port can't be read");
  return *address;
}

// Shared by what waits for the network, so that it outlives a client that drops it.
class HttpClient::Exchange : public std::enable_shared_from_this<Exchange> {
  template <typename Next>
  auto then(Next next) {
    return [self = shared_from_this(), next](beast::error_code error, auto&&...) {
      HandlerScope scope(self->runtime_);
      error ? self->end(error) : next();
    };
  }

 public:
  Exchange(AsioRuntime& runtime, Done done)
      : runtime_(runtime),
        done_(std::move(done)),
        resolver_(io_context_of(runtime)),
        stream_(io_context_of(runtime)) {}

  void begin(const Address& server, const HttpClientRequest& request, Duration patience) {
    make_request(server, request);
    parser_.body_limit(kAnswerBytesMax);
    parser_.header_limit(kHeaderBytesMax);
    timer_ = runtime_.call_after(patience, [self = shared_from_this()] { self->too_late(); });
    boost::system::error_code is_name;
    const auto host = asio::ip::make_address(server.host, is_name);
    if (!is_name) {  // a number needs no resolver, which is a thread
      stream_.async_connect(asio::ip::tcp::endpoint(host, server.port), then([this] { write(); }));
      return;
    }
    resolver_.async_resolve(server.host, std::to_string(server.port),
                            [self = shared_from_this()](auto error, auto found) {
                              HandlerScope scope(self->runtime_);
                              if (error) return self->end(error);
                              self->stream_.async_connect(found, [self](auto failed, const auto&) {
                                HandlerScope inner(self->runtime_);
                                failed ? self->end(failed) : self->write();
                              });
                            });
  }

  void drop() {
    done_ = nullptr;
    close();
  }

 private:
  void make_request(const Address& server, const HttpClientRequest& request) {
    request_.version(kHttpVersion);
    request_.method_string(request.method);
    request_.target(request.target);
    request_.set(http::field::host, server.port == kHttpPort ? server.host : to_string(server));
    request_.set(http::field::user_agent, "swarmline");
    request_.set(http::field::connection, "close");
    for (const auto& [name, value] : request.headers) request_.set(name, value);
    request_.body() = request.body;
    if (!request.body.empty() || request.method != "GET") request_.prepare_payload();
  }

  void write() {
    http::async_write(stream_, request_, then([this] {
                        http::async_read(stream_, buffer_, parser_, then([this] { answered(); }));
                      }));
  }

  void answered() {
    auto& got = parser_.get();
    HttpClientAnswer answer{.status = static_cast<int>(got.result_int()),
                            .etag = std::string(got[http::field::etag]),
                            .body = std::move(got.body())};
    finish(std::move(answer));
  }

  void too_late() { finish(fail(ErrorCode::kDeadline, "there was no answer in time")); }
  void end(const beast::error_code& error) { finish(fail(code_of(error), error.message())); }

  void finish(Result<HttpClientAnswer> result) {
    const Done done = std::exchange(done_, nullptr);
    close();
    if (done) done(std::move(result));
  }

  void close() {
    runtime_.cancel(timer_);
    resolver_.cancel();
    beast::error_code ignored;
    stream_.socket().close(ignored);
  }

  AsioRuntime& runtime_;
  Done done_;
  TimerId timer_;
  asio::ip::tcp::resolver resolver_;
  beast::tcp_stream stream_;
  http::request<http::string_body> request_;
  beast::flat_buffer buffer_{kHeaderBytesMax + kAnswerBytesMax};
  http::response_parser<http::string_body> parser_;
};

HttpClient::HttpClient(AsioRuntime& runtime) : runtime_(runtime) {}

HttpClient::~HttpClient() {
  drop();
}

void HttpClient::ask(const Address& server, const HttpClientRequest& request, Duration patience,
                     Done done) {
  drop();
  exchange_ = std::make_shared<Exchange>(runtime_, std::move(done));
  exchange_->begin(server, request, patience);
}

void HttpClient::drop() {
  if (exchange_) exchange_->drop();
  exchange_.reset();
}

}  // namespace swarmline
