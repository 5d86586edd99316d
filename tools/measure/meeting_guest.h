// The end of a measurement between machines that joins: it does what the end that listens says.
//   Thread: one, which waits in join() and serve().
//   Errors: kRefused with a sentence: it may not take part, and why; kPeerGone, kDeadline: nobody
//           answers there, or the other end has left; kCorrupt: it says what is no word.
//   Bounds: kMeetingDialTime for each address, kMeetingAnswerTime for the answer; kEarlyWordsMax
//           words before serve(), which follows join().
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/net/tcp/tcp_network.h"
#include "engine/runtime/asio_runtime.h"
#include "tools/measure/meeting_guard.h"
#include "tools/measure/meeting_words.h"

namespace swarmline {

inline constexpr Duration kMeetingDialTime = std::chrono::seconds(10);
inline constexpr Duration kMeetingAnswerTime = std::chrono::seconds(10);
inline constexpr std::size_t kEarlyWordsMax = 64;

struct MeetingGuestSpec {
  std::string_view what;  // meeting_host.h
  std::string program;    // its version, for people
  std::vector<Address> addresses;
  std::optional<JoinString> join;  // none: links are plain
  double mbit_per_second = 0;      // of this machine's line; 0: it says nothing
};

class MeetingGuest {
 public:
  explicit MeetingGuest(MeetingGuestSpec spec);
  ~MeetingGuest();
  MeetingGuest(const MeetingGuest&) = delete;
  MeetingGuest& operator=(const MeetingGuest&) = delete;

  Result<void> join();
  const Address& host() const { return host_; }  // where it found the end that listens
  // Until that says that it is over. Words go to `on_word`, whose error ends it.
  Result<void> serve(const std::function<Result<void>(Frame)>& on_word);
  void say(MeetingKind kind, std::string meta);

  AsioRuntime& runtime() { return runtime_; }
  TcpNetwork& network() { return *network_; }
  const std::shared_ptr<LinkGuard>& guard() const { return guard_; }  // null: links are plain

 private:
  Result<void> dial(const Address& address);
  MeetingHello hello() const;
  void hear(Frame frame);

  const MeetingGuestSpec spec_;
  AsioRuntime runtime_;
  std::shared_ptr<LinkGuard> guard_;
  Address host_;
  std::optional<Result<void>> dialled_;
  std::shared_ptr<Connection> connection_;
  std::optional<std::string> answer_;  // empty: it may take part
  std::vector<Frame> early_;           // words that came before serve()
  std::function<Result<void>(Frame)> on_word_;
  std::optional<Result<void>> over_;
  std::unique_ptr<TcpNetwork> network_;
};

}  // namespace swarmline
