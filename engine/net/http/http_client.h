// One HTTP/1.1 request at a time, in clear text: for what answers on the machine itself or on its
// link-local address, such as a cloud's metadata server. Each request has a connection of its own.
//   Ownership: the runtime outlives it. Destroying it drops a request under way without a word.
//   Thread:    control thread; `done` never runs inside ask().
//   Errors:    kUserMistake of a base address that can't be read; kDeadline, kPeerGone, kCorrupt of
//              a request. A status that is no success is an answer, not an error.
//   Bounds:    kAnswerBytesMax of an answer's body, kHeaderBytesMax of its header; `patience` for
//              all of it: looking the name up, connecting, asking and reading.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "engine/net/network.h"
#include "engine/runtime/asio_runtime.h"

namespace swarmline {

struct HttpClientRequest {
  std::string method = "GET";
  std::string target = "/";
  std::vector<std::pair<std::string, std::string>> headers = {};
  std::string body = {};
};

struct HttpClientAnswer {
  int status = 0;
  std::string etag;
  std::string body;
};

// "http://HOST[:PORT]", without a path.
Result<Address> parse_http_base(std::string_view url);

class HttpClient {
 public:
  static constexpr std::size_t kAnswerBytesMax = 256 * kKiB;
  static constexpr std::size_t kHeaderBytesMax = 16 * kKiB;
  using Done = std::function<void(Result<HttpClientAnswer>)>;

  explicit HttpClient(AsioRuntime& runtime);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // Whatever is under way is dropped.
  void ask(const Address& server, const HttpClientRequest& request, Duration patience, Done done);
  void drop();

 private:
  class Exchange;
  AsioRuntime& runtime_;
  std::shared_ptr<Exchange> exchange_;
};

}  // namespace swarmline
