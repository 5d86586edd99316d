#include "engine/store/etcd_client.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <optional>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/json/serialize.hpp>
#include <fmt/format.h>
#include <openssl/evp.h>

#include "base/check.h"
#include "engine/store/strict_json.h"

namespace swarmline {

namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
namespace json = boost::json;

// One endpoint's share of the deadline, so that a dead one leaves time for the next.
constexpr int kTriesPerDeadline = 3;
constexpr std::size_t kReadBytes = 65'536;

std::string to_base64(std::string_view bytes) {
  std::string text(4 * ((bytes.size() + 2) / 3), '\0');
  EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                  reinterpret_cast<const unsigned char*>(bytes.data()),
                  static_cast<int>(bytes.size()));
  return text;
}

Result<std::string> from_base64(std::string_view text) {
  if (text.empty()) return std::string();
  std::string bytes(text.size() / 4 * 3, '\0');
  const int size = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()),
                                   reinterpret_cast<const unsigned char*>(text.data()),
                                   static_cast<int>(text.size()));
  if (size < 0 || text.size() % 4 != 0) return fail(ErrorCode::kCorrupt, "etcd sent no base64");
  const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  bytes.resize(static_cast<std::size_t>(size) - padding);
  return bytes;
}

// The gateway writes 64-bit numbers as strings and leaves out zeros.
std::int64_t number_at(const json::object& object, std::string_view name) {
  const json::value* found = object.if_contains(name);
  const json::string* text = found != nullptr ? found->if_string() : nullptr;
  std::int64_t number = 0;
  if (text != nullptr) std::from_chars(text->data(), text->data() + text->size(), number);
  return number;
}

bool true_at(const json::object& object, std::string_view name) {
  const json::value* found = object.if_contains(name);
  return found != nullptr && found->is_bool() && found->get_bool();
}

const json::object* object_at(const json::object& object, std::string_view name) {
  const json::value* found = object.if_contains(name);
  return found != nullptr ? found->if_object() : nullptr;
}

Result<std::string> text_at(const json::object& object, std::string_view name) {
  const json::value* found = object.if_contains(name);
  if (found == nullptr) return std::string();
  if (!found->is_string()) return fail(ErrorCode::kCorrupt, "etcd sent something else than text");
  return from_base64(found->get_string());
}

constexpr std::int64_t kDeadlineExceeded = 4, kNotFound = 5, kUnavailable = 14;  // of gRPC

std::int64_t grpc_code(const json::object& answer) {
  const json::value* code = answer.if_contains("code");
  return code != nullptr && code->is_int64() ? code->get_int64() : 0;
}

// The cluster has no leader now, or was too slow: another member may do better.
bool is_unavailable(const json::object& answer) {
  const std::int64_t code = grpc_code(answer);
  return code == kDeadlineExceeded || code == kUnavailable;
}

}  // namespace

EtcdWrites& EtcdWrites::put(const std::string& key, const std::string& value, std::int64_t lease) {
  requests_.push_back(
      {{"request_put",
        {{"key", to_base64(key)}, {"value", to_base64(value)}, {"lease", std::to_string(lease)}}}});
  return *this;
}

EtcdWrites& EtcdWrites::remove(const std::string& key) {
  requests_.push_back({{"request_delete_range", {{"key", to_base64(key)}}}});
  return *this;
}

EtcdWrites& EtcdWrites::remove_range(const std::string& first, const std::string& end) {
  requests_.push_back(
      {{"request_delete_range", {{"key", to_base64(first)}, {"range_end", to_base64(end)}}}});
  return *this;
}

std::string etcd_prefix_end(std::string prefix) {
  while (!prefix.empty() && static_cast<unsigned char>(prefix.back()) == 0xFF) prefix.pop_back();
  SWARMLINE_CHECK(!prefix.empty());
  prefix.back() = static_cast<char>(static_cast<unsigned char>(prefix.back()) + 1);
  return prefix;
}

namespace {

// A connection in clear text, or TLS over it: one type, so that HTTP is instantiated once.
class MaybeTlsStream {
 public:
  using executor_type = beast::tcp_stream::executor_type;
  explicit MaybeTlsStream(asio::io_context& context) : plain_(context) {}

  executor_type get_executor() { return plain_.get_executor(); }
  beast::tcp_stream& plain() { return plain_; }
  void use_plain() { sealed_.reset(); }
  asio::ssl::stream<beast::tcp_stream&>& use_tls(asio::ssl::context& tls) {
    return sealed_.emplace(plain_, tls);
  }
  template <typename Buffers, typename Handler>
  auto async_read_some(const Buffers& buffers, Handler&& handler) {
    return sealed_ ? sealed_->async_read_some(buffers, std::forward<Handler>(handler))
                   : plain_.async_read_some(buffers, std::forward<Handler>(handler));
  }
  template <typename Buffers, typename Handler>
  auto async_write_some(const Buffers& buffers, Handler&& handler) {
    return sealed_ ? sealed_->async_write_some(buffers, std::forward<Handler>(handler))
                   : plain_.async_write_some(buffers, std::forward<Handler>(handler));
  }

 private:
  beast::tcp_stream plain_;
  std::optional<asio::ssl::stream<beast::tcp_stream&>> sealed_;
};

}  // namespace

// Blocking calls with a deadline: asynchronous ones on an io_context of their own.
class EtcdClient::Connection {
 public:
  Connection(EtcdEndpoint endpoint, EtcdTls tls)
      : endpoint_(std::move(endpoint)),
        tls_(std::move(tls)),
        resolver_(context_),
        stream_(context_) {}

  Result<std::string> post(std::string_view path, std::string_view body, Duration time) {
    stream_.plain().expires_after(time);
    if (!connected_) {
      if (auto made = connect(time); !made) return std::unexpected(made.error());
    }
    return exchange(
        fmt::format("POST {} HTTP/1.1\r\nHost: {}:{}\r\nContent-Type: application/json\r\n"
                    "Content-Length: {}\r\n\r\n{}",
                    path, endpoint_.host, endpoint_.port, body.size(), body));
  }

 private:
  // Runs what was begun until it has ended; false: with an error.
  bool wait() {
    context_.restart();
    context_.run();
    return error_ && !*error_;
  }
  // One type for all that ends: what is composed of it is instantiated once.
  struct Ended {
    Connection* of;
    void operator()(const beast::error_code& code, std::size_t bytes = 0) const {
      of->error_ = code;
      of->moved_ = bytes;
    }
    void operator()(const beast::error_code& code, const asio::ip::tcp::endpoint&) const {
      of->error_ = code;
    }
  };
  Ended ends() {
    error_.reset();
    return {this};
  }

  Result<void> connect(Duration time) {
    asio::ip::tcp::resolver::results_type found;
    error_.reset();
    resolver_.async_resolve(endpoint_.host, endpoint_.port, [&](auto code, auto results) {
      error_ = code;
      found = std::move(results);
    });
    context_.restart();
    context_.run_for(time);
    if (!error_) resolver_.cancel(), context_.run();
    if (*error_) return std::unexpected(failed());
    stream_.use_plain();
    stream_.plain().async_connect(found, ends());
    if (!wait()) return std::unexpected(failed());
    if (tls_) {
      auto& sealed = stream_.use_tls(*tls_);
      sealed.set_verify_callback(asio::ssl::host_name_verification(endpoint_.host));
      SSL_set_tlsext_host_name(sealed.native_handle(), endpoint_.host.c_str());
      sealed.async_handshake(asio::ssl::stream_base::client, ends());
      if (!wait()) return std::unexpected(failed());
    }
    connected_ = true;
    return {};
  }

  Result<std::string> exchange(std::string_view request) {
    asio::async_write(stream_, asio::buffer(request), ends());
    if (!wait()) return std::unexpected(failed());
    http::response_parser<http::string_body> answer;
    answer.body_limit(kAnswerBytesMax);
    answer.eager(true);
    while (!answer.is_done()) {
      stream_.async_read_some(buffer_.prepare(kReadBytes), ends());
      const bool more = wait();
      if (more) buffer_.commit(moved_);
      if (!(more ? parse(answer) : ends_here(answer))) return std::unexpected(failed());
    }
    if (!answer.keep_alive()) connected_ = false;
    // The gateway gives errors as JSON with a sentence; what is none has one in its status line.
    const auto status = answer.get().result_int();
    if (status / 100 == 5 && answer.get().body().empty())
      return fail(ErrorCode::kIo, fmt::format("it answers with status {}", status));
    return std::move(answer.get().body());
  }

  bool parse(http::response_parser<http::string_body>& answer) {
    while (!answer.is_done() && buffer_.size() > 0) {
      const std::size_t used = answer.put(buffer_.data(), *error_);
      buffer_.consume(used);
      if (*error_ == http::error::need_more) *error_ = {};
      if (*error_ || used == 0) break;
    }
    return !*error_;
  }

  // An answer without a length ends with its connection.
  bool ends_here(http::response_parser<http::string_body>& answer) {
    if (error_ != beast::error_code(asio::error::eof) || !answer.got_some()) return false;
    answer.put_eof(*error_);
    return !*error_;
  }

  Error failed() {
    connected_ = false;
    const beast::error_code code = error_.value_or(beast::error::timeout);
    return {ErrorCode::kIo, code == beast::error::timeout || code == asio::error::operation_aborted
                                ? "no answer in time"
                                : code.message()};
  }

  EtcdEndpoint endpoint_;
  EtcdTls tls_;
  asio::io_context context_;
  asio::ip::tcp::resolver resolver_;
  MaybeTlsStream stream_;
  beast::flat_buffer buffer_;
  std::optional<beast::error_code> error_;  // of what ended last
  std::size_t moved_ = 0;                   // bytes that it read or wrote
  bool connected_ = false;
};

EtcdClient::EtcdClient(std::vector<EtcdEndpoint> endpoints, Duration deadline, EtcdTls tls)
    : endpoints_(std::move(endpoints)), deadline_(deadline), tls_(std::move(tls)) {
  SWARMLINE_CHECK(!endpoints_.empty());
}
EtcdClient::~EtcdClient() = default;

Result<json::value> EtcdClient::call(std::string_view path, const json::value& request) {
  const std::string body = json::serialize(request);
  const std::size_t tries = std::max<std::size_t>(kTriesPerDeadline, endpoints_.size());
  std::string why;
  for (std::size_t i = 0; i < tries; ++i) {
    const EtcdEndpoint& endpoint = endpoints_[current_];
    if (!connection_) connection_ = std::make_unique<Connection>(endpoint, tls_);
    auto text = connection_->post(path, body, deadline_ / tries);
    if (text) {
      auto answer = parse_strict_json(*text, "etcd's answer");
      if (!answer || !answer->is_object())
        return fail(ErrorCode::kCorrupt, fmt::format("{}:{} does not answer as etcd does",
                                                     endpoint.host, endpoint.port));
      const json::value* error = answer->get_object().if_contains("error");
      if (error == nullptr) return std::move(*answer);
      const std::string said =
          error->is_string() ? std::string(error->get_string().c_str()) : json::serialize(*error);
      // Nothing but a lease is looked up by name: without it this process may lead no more.
      if (!is_unavailable(answer->get_object()))
        return fail(
            grpc_code(answer->get_object()) == kNotFound ? ErrorCode::kRefused : ErrorCode::kIo,
            fmt::format("etcd at {}:{}: {}", endpoint.host, endpoint.port, said));
      text = fail(ErrorCode::kIo, said);
    }
    why = fmt::format("etcd at {}:{}: {}", endpoint.host, endpoint.port, text.error().what);
    connection_.reset();
    current_ = (current_ + 1) % endpoints_.size();
  }
  return fail(ErrorCode::kIo, why);
}

Result<EtcdClient::Outcome> EtcdClient::write_if(const std::string& key,
                                                 std::int64_t create_revision, EtcdWrites writes) {
  const json::value request = {
      {"compare", json::array{{{"key", to_base64(key)},
                               {"target", "CREATE"},
                               {"result", "EQUAL"},
                               {"create_revision", std::to_string(create_revision)}}}},
      {"success", writes.take()}};
  auto answer = call("/v3/kv/txn", request);
  if (!answer) return std::unexpected(answer.error());
  Outcome outcome;
  outcome.succeeded = true_at(answer->get_object(), "succeeded");
  if (const json::object* header = object_at(answer->get_object(), "header"))
    outcome.revision = number_at(*header, "revision");
  return outcome;
}

Result<EtcdClient::Found> EtcdClient::range(const std::string& first, const std::string& end,
                                            std::size_t count_max, bool newest_first) {
  json::object request = {{"key", to_base64(first)},
                          {"limit", std::to_string(count_max)},
                          {"sort_target", "KEY"},
                          {"sort_order", newest_first ? "DESCEND" : "ASCEND"}};
  if (!end.empty()) request["range_end"] = to_base64(end);
  auto answer = call("/v3/kv/range", request);
  if (!answer) return std::unexpected(answer.error());
  Found found;
  found.more = true_at(answer->get_object(), "more");
  const json::value* entries = answer->get_object().if_contains("kvs");
  if (entries == nullptr || !entries->is_array()) return found;
  for (const json::value& each : entries->get_array()) {
    const json::object* entry = each.if_object();
    if (entry == nullptr) return fail(ErrorCode::kCorrupt, "etcd sent something else than entries");
    auto key = text_at(*entry, "key");
    auto value = text_at(*entry, "value");
    if (!key || !value) return std::unexpected(key ? value.error() : key.error());
    if (found.entries.empty()) {
      found.create_revision = number_at(*entry, "create_revision");
      found.lease = number_at(*entry, "lease");
    }
    found.entries.push_back({std::move(*key), std::move(*value)});
  }
  return found;
}

Result<std::int64_t> EtcdClient::grant_lease(Duration time) {
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(time).count();
  auto answer = call("/v3/lease/grant", {{"TTL", std::to_string(seconds)}});
  if (!answer) return std::unexpected(answer.error());
  const std::int64_t lease = number_at(answer->get_object(), "ID");
  if (lease == 0) return fail(ErrorCode::kCorrupt, "etcd granted no lease");
  return lease;
}

Result<void> EtcdClient::keep_alive(std::int64_t lease) {
  auto answer = call("/v3/lease/keepalive", {{"ID", std::to_string(lease)}});
  if (!answer) return std::unexpected(answer.error());
  const json::object* result = object_at(answer->get_object(), "result");
  if (result == nullptr || number_at(*result, "TTL") <= 0)
    return fail(ErrorCode::kRefused, "the lease at etcd is over");
  return {};
}

Result<void> EtcdClient::revoke_lease(std::int64_t lease) {
  auto answer = call("/v3/lease/revoke", {{"ID", std::to_string(lease)}});
  if (!answer) return std::unexpected(answer.error());
  return {};
}

Result<void> EtcdClient::compact(std::int64_t revision) {
  auto answer = call("/v3/kv/compaction", {{"revision", std::to_string(revision)}});
  if (!answer) return std::unexpected(answer.error());
  return {};
}

}  // namespace swarmline
