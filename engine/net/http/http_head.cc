#include "engine/net/http/http_head.h"

#include <utility>

#include <fmt/format.h>

namespace swarmline {
namespace {

namespace http = boost::beast::http;

std::string text(boost::beast::string_view view) {
  return {view.data(), view.size()};
}

// Of a header that a request may have once.
std::string only(const BeastRequest& message, http::field name) {
  return message.count(name) == 1 ? text(message[name]) : std::string();
}

void read_query(std::string_view rest, HttpRequest& request) {
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('&'), rest.size());
    const std::string_view pair = rest.substr(0, end);
    const std::size_t equals = std::min(pair.find('='), pair.size());
    request.query.emplace(pair.substr(0, equals),
                          equals < pair.size() ? pair.substr(equals + 1) : std::string_view());
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
}

constexpr std::string_view kBearer = "bearer ";

bool is_bearer(std::string_view value) {
  return value.size() > kBearer.size() &&
         boost::beast::iequals({value.data(), kBearer.size()}, {kBearer.data(), kBearer.size()});
}

}  // namespace

HttpAnswer http_text(int status, std::string text) {
  HttpAnswer answer;
  answer.status = status;
  answer.body = std::make_shared<const std::string>(std::move(text) + "\n");
  return answer;
}

HttpRequest request_of(const BeastRequest& message) {
  HttpRequest request;
  request.method = text(message.method_string());
  const std::string target = text(message.target());
  const std::size_t query = std::min(target.find('?'), target.size());
  request.path = target.substr(0, query);
  if (query < target.size()) read_query(std::string_view(target).substr(query + 1), request);
  request.host = only(message, http::field::host);
  request.origin = text(message[http::field::origin]);
  request.fetch_site = text(message["Sec-Fetch-Site"]);
  const std::string credentials = only(message, http::field::authorization);
  if (is_bearer(credentials)) request.bearer = credentials.substr(kBearer.size());
  return request;
}

std::optional<HttpAnswer> refusal_of(const BeastRequest& message) {
  const bool has_body = message.count(http::field::transfer_encoding) > 0 ||
                        (message.count(http::field::content_length) > 0 &&
                         message[http::field::content_length] != "0");
  if (has_body) return http_text(413, "expected a request without a body");
  if (message.method() == http::verb::get || message.method() == http::verb::head)
    return std::nullopt;
  HttpAnswer refusal = http_text(405, "expected GET or HEAD");
  refusal.headers["Allow"] = "GET, HEAD";
  return refusal;
}

std::string head_of(const HttpAnswer& answer, bool keeps) {
  const auto reason = http::obsolete_reason(static_cast<http::status>(answer.status));
  std::string head = fmt::format("HTTP/1.1 {} {}\r\nContent-Type: {}\r\n", answer.status,
                                 text(reason), answer.content_type);
  // A stream ends with its connection.
  if (!answer.stream)
    head += fmt::format("Content-Length: {}\r\n", answer.body ? answer.body->size() : 0);
  for (const auto& [name, value] : answer.headers) head += fmt::format("{}: {}\r\n", name, value);
  head += keeps ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
  return head;
}

}  // namespace swarmline
