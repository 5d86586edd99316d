// What an HTTP server is asked, and what it answers.
//   Ownership: values. Thread: any, one at a time.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

namespace swarmline {

struct HttpRequest {
  std::string method;  // GET or HEAD
  std::string path;    // as it came, without the query: "/api/status"
  // Of the query, as they came (nothing is unescaped); the first of several of one name.
  std::map<std::string, std::string, std::less<>> query;
  std::string host;        // the header Host; empty: there is none, or several
  std::string origin;      // the header Origin
  std::string fetch_site;  // the header Sec-Fetch-Site
  std::string bearer;      // of the header Authorization, where its scheme is Bearer

  std::string_view query_value(std::string_view name) const {
    const auto found = query.find(name);
    return found == query.end() ? std::string_view() : std::string_view(found->second);
  }
};

// An answer without an end: what is sent goes to the client as it comes.
//   Thread: control thread. Errors: none; once it is closed, what is sent is dropped.
//   Bounds: HttpOptions::stream_bytes_max unsent bytes, and one piece more; beyond, it is closed.
class HttpStream {
 public:
  virtual ~HttpStream() = default;
  virtual void send(std::shared_ptr<const std::string> bytes) = 0;
  virtual void finish() = 0;               // once all of it is sent
  virtual std::size_t unsent() const = 0;  // bytes
  virtual bool closed() const = 0;
};

struct HttpAnswer {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::shared_ptr<const std::string> body;
  std::map<std::string, std::string> headers;  // further ones
  // Set: there is no body; called once, and the stream is what follows.
  std::function<void(std::shared_ptr<HttpStream>)> stream = {};
};

HttpAnswer http_text(int status, std::string text);  // with a line's end

}  // namespace swarmline
