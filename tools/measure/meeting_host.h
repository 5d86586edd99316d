// The end of a measurement between machines that listens: others join it, each on a machine of its
// own, and are told what to do.
//   Ownership: guests' connections end with it, and their ends with them.
//   Thread:    one, which waits for guests where a call says so.
//   Errors:    kIo: it can't listen; kDeadline: not all came within `wait`, or a guest said nothing
//              in time; kPeerGone: a guest has left. Sentences name the guest by its host. Who
//              can't take part is told why in one sentence, and does not count.
//   Bounds:    MeetingHostSpec::wait; of who has not said hello Limits::stranger_patience and
//              kMeetingWordBytesMax; kGuestWordsMax words of a guest that nobody has taken.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "engine/net/bulk/bulk_connection.h"
#include "engine/net/tcp/tcp_network.h"
#include "engine/runtime/asio_runtime.h"
#include "tools/measure/meeting_guard.h"
#include "tools/measure/meeting_words.h"

namespace swarmline {

inline constexpr std::size_t kGuestWordsMax = 64;
inline constexpr Duration kFarewellTime = std::chrono::seconds(2);

struct MeetingHostSpec {
  std::string_view what;                     // that is measured: kLinksMeeting, kAllReduceMeeting
  std::string program;                       // its version, for people
  std::uint32_t members = 2;                 // this one included
  Duration wait = std::chrono::minutes(10);  // for all of them
  bool insecure = false;                     // links are plain, and anybody may come
};

inline constexpr std::string_view kLinksMeeting = "bench-links";
inline constexpr std::string_view kAllReduceMeeting = "bench-allreduce";
std::string command_of(std::string_view what);  // "bench links"

class MeetingHost {
 public:
  explicit MeetingHost(MeetingHostSpec spec);
  ~MeetingHost();
  MeetingHost(const MeetingHost&) = delete;
  MeetingHost& operator=(const MeetingHost&) = delete;

  // `reached_at`: where others reach it that is bound there.
  Result<void> open(const Address& listen,
                    const std::function<std::vector<Address>(const Address&)>& reached_at);
  // What others join by: a string, or HOST:PORT where links are plain.
  const std::string& join_text() const { return join_text_; }
  // Until all are here; `say` is called with a line about each that comes or goes.
  Result<void> gather(const std::function<void(const std::string&)>& say);

  // ---- When all are here ----
  std::size_t guests() const { return guests_.size(); }
  const std::string& host_of(std::size_t guest) const { return guests_[guest]->host; }
  const MeetingHello& hello_of(std::size_t guest) const { return *guests_[guest]->hello; }
  Result<void> tell(std::size_t guest, MeetingKind kind, std::string meta);
  Result<Frame> hear(std::size_t guest, Duration patience);
  // A guest may dial a link over that door, which begins with the token.
  struct LinkTaker {
    BulkDoor* door = nullptr;  // null: no link is taken any more, and one that is there ends
    std::string token = {};
    std::function<void(std::shared_ptr<BulkConnection>)> on_link = {};
    std::function<void(Frame)> on_frame = {};
    std::function<void(const Error&)> on_closed = {};
  };
  void expect_link(LinkTaker taker);
  // Why a guest has left, or leaves within kFarewellTime; none: all are here.
  std::optional<Error> who_left();
  // All are told that it is over. `failed`: why, for those who did their part.
  void end(const std::string& failed);

  AsioRuntime& runtime() { return runtime_; }
  Network& network() { return *network_; }                            // once it is open
  const std::shared_ptr<LinkGuard>& guard() const { return guard_; }  // null: links are plain

 private:
  struct Visitor {
    std::shared_ptr<Connection> connection;
    std::shared_ptr<BulkConnection> as_link;  // the same; null: it can't be one
    std::string host;
    std::optional<MeetingHello> hello = {};
    std::deque<Frame> words = {};
    std::optional<Error> left = {};
  };

  void accepted(std::shared_ptr<Connection> connection);
  void hear_from(Visitor& visitor, Frame frame);
  void greet(Visitor& visitor, const Frame& frame);
  Result<void> check(const Visitor& visitor) const;
  void on_closed(Visitor& visitor, const Error& error);
  void come(Visitor& visitor);
  std::string so_many() const;

  const MeetingHostSpec spec_;
  AsioRuntime runtime_;
  std::shared_ptr<LinkGuard> guard_;
  std::string join_text_;
  std::function<void(const std::string&)> say_;
  std::vector<std::unique_ptr<Visitor>> strangers_, guests_;
  bool is_gathered_ = false;
  LinkTaker taker_;
  std::shared_ptr<BulkConnection> link_;  // null: not there, or over
  std::unique_ptr<TcpNetwork> network_;
};

}  // namespace swarmline
