// From a connected socket to a link whose other end is known: the TLS handshake, then what the
// guard has the dialling end say and the accepting end answer (link_guard.h). For the files of this
// folder.
//   Words:     two bytes of length, most significant first, and that many bytes; an answer begins
//              with one byte: 0 it is admitted; 1 it is refused, or 2 it may come again, and the
//              rest is the sentence.
//   Ownership: holds itself until it is done; stop() ends it without a word.
//   Thread:    control thread.
//   Errors:    of on_done, which is called once, with sentences: kRefused (the other end said no),
//              kCorrupt (no TLS 1.3, another key, words that are too long), kDeadline (its time is
//              up, or the other end is: that it was there says that the address does not refuse).
//   Bounds:    `time_max` from its beginning to its end; kLinkWordsMax.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <boost/asio/ip/tcp.hpp>

#include "base/callback_guard.h"
#include "engine/net/link_guard.h"
#include "engine/net/tcp/tls_stream.h"
#include "engine/runtime/asio_access.h"

namespace swarmline {

struct TlsLink {
  boost::asio::ip::tcp::socket socket;
  std::unique_ptr<TlsStream> stream;
  LinkFacts facts;
  std::string admitted_as;
};

class TlsHandshake : public std::enable_shared_from_this<TlsHandshake> {
 public:
  using Socket = boost::asio::ip::tcp::socket;
  using Done = std::function<void(Result<TlsLink>)>;

  // `dialled`: the address, of the end that dials.
  TlsHandshake(AsioRuntime& runtime, std::shared_ptr<TlsContext> context, LinkGuard& guard,
               Duration time_max, Socket socket, std::string remote, std::optional<Address> dialled,
               Done on_done);
  void start();
  void stop();
  // This end has answered the other one's greeting: that is the dear part of it.
  bool answered() const { return answered_; }

 private:
  enum class State : std::uint8_t { kShakes, kHearsOpening, kJudges, kSays, kHearsAnswer, kOver };

  bool dials() const { return dialled_.has_value(); }
  void advance();
  bool step();  // false: it waits
  bool shake();
  bool hear(std::size_t head);
  bool take_opening();
  bool take_answer();
  void take_verdict(Result<LinkGuard::Admission> verdict);
  bool say(const std::string& words);
  void wait();
  void wait_for(Socket::wait_type what, bool& waits);
  bool over(ErrorCode code, const std::string& why);
  void finish(Result<TlsLink> result);

  AsioRuntime& runtime_;
  LinkGuard& guard_;
  const Duration time_max_;
  Socket socket_;
  const std::string remote_;
  const std::optional<Address> dialled_;
  std::unique_ptr<TlsStream> stream_;
  Done on_done_;
  State state_ = State::kShakes;
  LinkFacts facts_;
  std::string heard_;  // of the words that come
  std::string admitted_as_;
  std::optional<Error> refused_;  // what was answered
  bool waits_to_read_ = false, waits_to_write_ = false;
  bool advancing_ = false;
  bool answered_ = false;
  TimerId timer_;
};

}  // namespace swarmline
