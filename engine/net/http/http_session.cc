#include "engine/net/http/http_session.h"

#include <array>
#include <deque>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>

#include "base/log.h"
#include "engine/net/http/http_head.h"
#include "engine/runtime/asio_access.h"

namespace swarmline {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;
using TlsSocket = asio::ssl::stream<tcp::socket>;

constexpr std::size_t kDrainedBytesMax = 64 * 1024;  // that nobody asked for, before a close
constexpr std::size_t kPiecesAtOnce = 64;            // of a stream, in one write

// 0: the other end is gone, or says nothing that could be answered.
int status_of(const error_code& error) {
  if (error == http::error::header_limit || error == http::error::buffer_overflow) return 431;
  const bool bad = error.category() == http::make_error_code(http::error::bad_target).category();
  return bad && error != http::error::end_of_stream ? 400 : 0;
}

template <typename Stream>
class Session final : public HttpSession,
                      public HttpStream,
                      public std::enable_shared_from_this<Session<Stream>> {
 public:
  static constexpr bool kTls = !std::is_same_v<Stream, tcp::socket>;

  Session(HttpSessionParts parts, Stream stream)
      : runtime_(parts.runtime),
        options_(std::move(parts.options)),
        hooks_(std::move(parts.hooks)),
        id_(parts.id),
        stream_(std::move(stream)),
        buffer_(kHttpRequestBytesMax) {}

  void start() override {
    idle_since_ = runtime_.now();
    set_deadline(options_.request_max);
    if constexpr (kTls) {
      stream_.async_handshake(asio::ssl::stream_base::server,
                              guarded([](Session& self, const error_code& error) {
                                error ? self.end() : self.read();
                              }));
    } else {
      read();
    }
  }

  void close() override {
    closed_ = true;
    runtime_.cancel(deadline_);
    error_code ignored;  // it is given up anyway
    stream_.lowest_layer().close(ignored);
    pieces_.clear();
  }

  std::optional<Instant> idle_since() const override { return idle_since_; }
  bool is_stream() const override { return streams_; }

  // ---- As a stream ----

  void send(std::shared_ptr<const std::string> bytes) override {
    if (closed_ || finishing_) return;
    if (unsent_ > options_.stream_bytes_max) {
      ++hooks_.counters->slow_readers;
      return end();
    }
    unsent_ += bytes->size();
    pieces_.push_back(std::move(bytes));
    if (!writing_) write_pieces();
  }

  void finish() override {
    finishing_ = true;
    if (!closed_ && !writing_) shut_down();
  }

  std::size_t unsent() const override { return unsent_; }
  bool closed() const override { return closed_; }

 private:
  // `then` as an Asio handler: on time, and not of a session that is closed.
  template <typename Then>
  auto guarded(Then then) {
    return [self = this->shared_from_this(), then = std::move(then)](const error_code& error,
                                                                     auto... rest) {
      if (self->closed_) return;
      const HandlerScope scope(self->runtime_);
      then(*self, error, rest...);
    };
  }

  void set_deadline(Duration wait) {
    runtime_.cancel(deadline_);
    deadline_ = runtime_.call_after(wait, [weak = this->weak_from_this()] {
      const auto self = weak.lock();
      if (!self || self->closed_) return;
      ++self->hooks_.counters->timed_out;
      self->end();
    });
  }

  void end() {
    if (closed_) return;
    close();
    hooks_.end(id_);
  }

  void read() {
    parser_.emplace();
    parser_->header_limit(static_cast<std::uint32_t>(kHttpRequestBytesMax));
    http::async_read_header(stream_, buffer_, *parser_,
                            guarded([](Session& self, const error_code& error, std::size_t) {
                              self.idle_since_.reset();
                              error ? self.not_read(error) : self.answer();
                            }));
  }

  void not_read(const error_code& error) {
    const int status = status_of(error);
    if (status == 0) return error == http::error::end_of_stream ? shut_down() : end();
    ++hooks_.counters->bad_requests;
    log(LogLevel::kDebug, "page: bytes that are no request: {}", error.message());
    write(http_text(status, status == 400 ? "expected an HTTP/1.1 request"
                                          : "expected a request of at most 16 KiB"),
          false, false);
  }

  void answer() {
    const BeastRequest& message = parser_->get();
    const bool is_head = message.method() == http::verb::head;
    if (auto refusal = refusal_of(message)) {
      ++hooks_.counters->bad_requests;
      return write(std::move(*refusal), is_head, false);
    }
    HttpAnswer answer = hooks_.answer(request_of(message));
    if (answer.stream && !is_head && !hooks_.may_stream())
      answer = http_text(503, "too many streams are open; close another page of this run");
    ++hooks_.counters->answered;
    write(std::move(answer), is_head, message.keep_alive());
  }

  void write(HttpAnswer answer, bool is_head, bool keep_alive) {
    const bool keeps = keep_alive && !answer.stream;
    head_ = head_of(answer, keeps);
    body_ = is_head ? nullptr : std::move(answer.body);
    begin_stream_ = is_head ? nullptr : std::move(answer.stream);
    streams_ = begin_stream_ != nullptr;
    set_deadline(options_.answer_max);
    std::array<asio::const_buffer, 2> buffers{asio::buffer(head_), asio::const_buffer()};
    if (body_) buffers[1] = asio::buffer(*body_);
    asio::async_write(stream_, buffers,
                      guarded([keeps](Session& self, const error_code& error, std::size_t) {
                        self.written(error, keeps);
                      }));
  }

  void written(const error_code& error, bool keeps) {
    if (error) return end();
    body_.reset();
    if (streams_) return stream();
    if (!keeps) return shut_down();
    idle_since_ = runtime_.now();
    set_deadline(options_.idle_max);
    read();
  }

  void stream() {
    runtime_.cancel(deadline_);
    ++hooks_.counters->streams;
    watch();
    std::exchange(begin_stream_, nullptr)(this->shared_from_this());
  }

  // Whoever closes is noticed before something is sent; a client has nothing more to say.
  void watch() {
    stream_.async_read_some(asio::buffer(drained_), guarded([](Session& self, const error_code&,
                                                               std::size_t) { self.end(); }));
  }

  void write_pieces() {
    std::vector<asio::const_buffer> buffers;
    for (const auto& piece : pieces_) {
      if (buffers.size() == kPiecesAtOnce) break;
      buffers.push_back(asio::buffer(*piece));
    }
    writing_ = true;
    set_deadline(options_.answer_max);
    const std::size_t count = buffers.size();
    asio::async_write(stream_, buffers,
                      guarded([count](Session& self, const error_code& error, std::size_t bytes) {
                        self.pieces_written(error, count, bytes);
                      }));
  }

  void pieces_written(const error_code& error, std::size_t count, std::size_t bytes) {
    if (error) return end();
    writing_ = false;
    runtime_.cancel(deadline_);
    unsent_ -= bytes;
    pieces_.erase(pieces_.begin(), pieces_.begin() + static_cast<std::ptrdiff_t>(count));
    if (!pieces_.empty()) return write_pieces();
    if (finishing_) shut_down();
  }

  // What the client still sends is read away for a while: a reset would take the answer from it.
  void shut_down() {
    set_deadline(options_.linger_max);
    if constexpr (kTls) {
      stream_.async_shutdown(guarded([](Session& self, const error_code&) { self.end(); }));
    } else {
      error_code ignored;  // the other end may have gone
      stream_.shutdown(tcp::socket::shutdown_send, ignored);
      if (!streams_) drain();
    }
  }

  void drain() {
    stream_.async_read_some(
        asio::buffer(drained_), guarded([](Session& self, const error_code& error, std::size_t n) {
          self.drained_bytes_ += n;
          error || self.drained_bytes_ > kDrainedBytesMax ? self.end() : self.drain();
        }));
  }

  AsioRuntime& runtime_;
  const HttpOptions options_;
  const Hooks hooks_;
  const std::uint64_t id_;
  Stream stream_;
  boost::beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::empty_body>> parser_;
  std::string head_;
  std::shared_ptr<const std::string> body_;
  std::function<void(std::shared_ptr<HttpStream>)> begin_stream_;
  std::deque<std::shared_ptr<const std::string>> pieces_;  // of a stream, unsent
  std::size_t unsent_ = 0;                                 // bytes of those
  std::array<char, 4096> drained_{};
  std::size_t drained_bytes_ = 0;
  std::optional<Instant> idle_since_;
  TimerId deadline_;
  bool streams_ = false, writing_ = false, finishing_ = false, closed_ = false;
};

}  // namespace

std::shared_ptr<HttpSession> make_http_session(HttpSessionParts parts, tcp::socket socket,
                                               asio::ssl::context* tls) {
  if (tls == nullptr)
    return std::make_shared<Session<tcp::socket>>(std::move(parts), std::move(socket));
  return std::make_shared<Session<TlsSocket>>(std::move(parts), TlsSocket(std::move(socket), *tls));
}

}  // namespace swarmline
