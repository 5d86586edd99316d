#include "engine/net/tcp/tls_handshake.h"

#include <cerrno>
#include <cstring>
#include <sys/uio.h>
#include <utility>

#include <fmt/format.h>

namespace swarmline {
namespace {

constexpr std::size_t kLengthBytes = 2;
constexpr char kAdmitted = 0, kRefused = 1, kNotNow = 2;

std::string with_length(const std::string& words) {
  std::string text;
  text.push_back(static_cast<char>(words.size() >> 8U));
  text.push_back(static_cast<char>(words.size() & 255U));
  return text + words;
}

std::size_t length_of(std::string_view head) {
  return static_cast<unsigned char>(head[0]) * std::size_t{256} +
         static_cast<unsigned char>(head[1]);
}

}  // namespace

TlsHandshake::TlsHandshake(AsioRuntime& runtime, std::shared_ptr<TlsContext> context,
                           LinkGuard& guard, Duration time_max, Socket socket, std::string remote,
                           std::optional<Address> dialled, Done on_done)
    : runtime_(runtime),
      guard_(guard),
      time_max_(time_max),
      socket_(std::move(socket)),
      remote_(std::move(remote)),
      dialled_(std::move(dialled)),
      stream_(std::make_unique<TlsStream>(std::move(context), socket_.native_handle(), dials(),
                                          guard, dials() ? guard.pinned(*dialled_) : std::nullopt)),
      on_done_(std::move(on_done)) {}

void TlsHandshake::start() {
  timer_ = runtime_.call_after(time_max_, [weak = weak_from_this()] {
    if (const auto self = weak.lock())
      self->over(ErrorCode::kDeadline,
                 fmt::format("no handshake within {:.3g} s", to_seconds(self->time_max_)));
  });
  advance();
}

void TlsHandshake::stop() {
  on_done_ = {};
  finish(fail(ErrorCode::kStopped, "stopped"));
}

void TlsHandshake::advance() {
  if (advancing_) return;  // a verdict that came at once: the loop goes on with it
  advancing_ = true;
  const auto self = shared_from_this();
  while (state_ != State::kOver && step()) {
  }
  advancing_ = false;
  if (state_ != State::kOver) wait();
}

bool TlsHandshake::step() {
  if (stream_->holds_unsent() && stream_->send_sealed() < 0 && errno != EAGAIN)
    return over(ErrorCode::kDeadline, std::strerror(errno));
  switch (state_) {
    case State::kShakes:
      return shake();
    case State::kHearsOpening:
      return hear(0) && take_opening();
    case State::kHearsAnswer:
      return hear(1) && take_answer();
    case State::kSays: {
      if (stream_->holds_unsent()) return false;
      if (refused_) return over(refused_->code, refused_->what);
      boost::system::error_code ignored;
      socket_.cancel(ignored);  // what still waits
      finish(TlsLink{.socket = std::move(socket_),
                     .stream = std::move(stream_),
                     .facts = std::move(facts_),
                     .admitted_as = std::move(admitted_as_)});
      return false;
    }
    case State::kJudges:
    case State::kOver:
      return false;
  }
  return false;
}

bool TlsHandshake::shake() {
  const int shaken = stream_->shake();
  answered_ = answered_ || (!dials() && (shaken > 0 || stream_->holds_unsent()));
  if (shaken < 0) {
    // The other end is told why, as TLS has it.
    static_cast<void>(stream_->send_sealed());
    return over(ErrorCode::kCorrupt, stream_->problem());
  }
  if (shaken == 0) return stream_->holds_unsent() && stream_->send_sealed() == 0;
  facts_ = {.key = *hash_of_public_key(stream_->public_key()),
            .public_key = stream_->public_key(),
            .binding = stream_->binding(),
            .remote = remote_,
            .vouchers = stream_->vouchers()};
  state_ = dials() ? State::kHearsAnswer : State::kHearsOpening;
  return dials() ? say(with_length(guard_.opening(*dialled_, facts_))) : true;
}

// `head` bytes, a length, and that many: exactly, for a frame may come next.
bool TlsHandshake::hear(std::size_t head) {
  while (true) {
    const std::size_t begins = head + kLengthBytes;
    const bool knows = heard_.size() >= begins;
    const std::size_t words = knows ? length_of(std::string_view(heard_).substr(head)) : 0;
    if (words > kLinkWordsMax)
      return over(ErrorCode::kCorrupt, fmt::format("it has {} bytes to say", words));
    const std::size_t wanted = begins + words - heard_.size();
    if (knows && wanted == 0) return true;
    std::string more(wanted, '\0');
    const iovec part{more.data(), more.size()};
    const ssize_t got = stream_->receive(&part, 1);
    if (got < 0 && errno == EAGAIN) return false;
    if (got == 0) return over(ErrorCode::kDeadline, "it closed the connection");
    if (got < 0)
      return over(errno == EBADMSG ? ErrorCode::kCorrupt : ErrorCode::kDeadline,
                  errno == EBADMSG ? stream_->problem() : std::strerror(errno));
    heard_ += more.substr(0, static_cast<std::size_t>(got));
  }
}

bool TlsHandshake::take_opening() {
  state_ = State::kJudges;
  guard_.admit(facts_, heard_.substr(kLengthBytes),
               [weak = weak_from_this()](Result<LinkGuard::Admission> verdict) {
                 if (const auto self = weak.lock()) self->take_verdict(std::move(verdict));
               });
  return true;  // it may have come at once
}

void TlsHandshake::take_verdict(Result<LinkGuard::Admission> verdict) {
  if (state_ != State::kJudges) return;
  state_ = State::kSays;
  if (verdict) {
    admitted_as_ = verdict->as;
    say(kAdmitted + with_length(verdict->answer));
  } else {
    refused_ = verdict.error();
    const char how = refused_->code == ErrorCode::kRefused ? kRefused : kNotNow;
    say(how + with_length(refused_->what.substr(0, kLinkWordsMax)));
  }
  advance();
}

bool TlsHandshake::take_answer() {
  const std::string answer = heard_.substr(1 + kLengthBytes);
  if (heard_.front() != kAdmitted)
    return over(heard_.front() == kRefused ? ErrorCode::kRefused : ErrorCode::kDeadline, answer);
  auto as = guard_.judge(*dialled_, facts_, answer);
  if (!as) return over(as.error().code, as.error().what);
  admitted_as_ = std::move(*as);
  state_ = State::kSays;
  return true;
}

bool TlsHandshake::say(const std::string& words) {
  // It is shorter than what a stream takes at once.
  const iovec part{const_cast<char*>(words.data()), words.size()};
  if (stream_->send(&part, 1) == static_cast<ssize_t>(words.size())) return true;
  return over(ErrorCode::kDeadline, "nothing can be said to it");
}

void TlsHandshake::wait() {
  if (state_ != State::kJudges && state_ != State::kSays)
    wait_for(Socket::wait_read, waits_to_read_);
  if (stream_->holds_unsent()) wait_for(Socket::wait_write, waits_to_write_);
}

void TlsHandshake::wait_for(Socket::wait_type what, bool& waits) {
  if (std::exchange(waits, true)) return;
  socket_.async_wait(what,
                     [self = shared_from_this(), &waits](const boost::system::error_code& error) {
                       waits = false;
                       if (error || self->state_ == State::kOver) return;
                       HandlerScope scope(self->runtime_);
                       self->advance();
                     });
}

bool TlsHandshake::over(ErrorCode code, const std::string& why) {
  if (state_ != State::kOver)
    finish(fail(code, fmt::format("{}: {}", dials() ? to_string(*dialled_) : remote_, why)));
  return false;
}

void TlsHandshake::finish(Result<TlsLink> result) {
  state_ = State::kOver;
  runtime_.cancel(timer_);
  boost::system::error_code ignored;
  if (socket_.is_open()) socket_.close(ignored);
  if (const Done done = std::exchange(on_done_, {})) done(std::move(result));
}

}  // namespace swarmline
