#include "tools/measure/meeting_guest.h"

#include <utility>

#include <fmt/format.h>

#include "engine/net/shm/shm_backend.h"
#include "pipeline/protocol/protocol_version.h"
#include "tools/measure/meeting_host.h"

namespace swarmline {
namespace {

// What bounds serve() is the other end: with its connection it is over.
constexpr Duration kServePause = std::chrono::hours(1);

}  // namespace

MeetingGuest::MeetingGuest(MeetingGuestSpec spec) : spec_(std::move(spec)) {
  if (spec_.join) guard_ = std::make_shared<MeetingGuard>(Identity::make(), *spec_.join);
  network_ = std::make_unique<TcpNetwork>(runtime_, TcpOptions{.guard = guard_});
}
MeetingGuest::~MeetingGuest() = default;

Result<void> MeetingGuest::join() {
  Result<void> reached;
  for (const Address& address : spec_.addresses) {
    reached = dial(address);
    // Who refuses is there.
    if (reached || reached.error().code == ErrorCode::kRefused) break;
  }
  if (!reached) return reached;
  connection_->send({.kind = kMeetingHello, .meta = encode(hello())});
  runtime_.run_until([this] { return answer_ || over_; }, kMeetingAnswerTime);
  if (answer_ && answer_->empty()) return {};
  const std::string command = command_of(spec_.what);
  if (answer_) return fail(ErrorCode::kRefused, fmt::format("{}: {}", command, *answer_));
  if (over_) return *over_;
  return fail(ErrorCode::kDeadline,
              fmt::format("{}: {} took the connection and does not answer; is it swarmline {} "
                          "--listen, and not measuring yet?",
                          command, to_string(host_), command));
}

Result<void> MeetingGuest::dial(const Address& address) {
  dialled_.reset();
  network_->connect(address, kMeetingDialTime, [this, address](auto connection) {
    if (!connection) {
      dialled_ = fail(connection.error().code,
                      fmt::format("{}: can't join at {}: {}", command_of(spec_.what),
                                  to_string(address), connection.error().what));
      return;
    }
    host_ = address;
    connection_ = std::move(*connection);
    connection_->start({.on_frame = [this](Frame frame) { hear(std::move(frame)); },
                        .on_closed =
                            [this](const Error& error) {
                              if (over_) return;
                              over_ =
                                  fail(ErrorCode::kPeerGone,
                                       fmt::format("{}: {} has left: {}", command_of(spec_.what),
                                                   to_string(host_), error.what));
                            },
                        .on_arriving = {},
                        .stranger = {}});
    connection_->believe(bounds_of_words());
    dialled_ = Result<void>();
  });
  // The network answers in any case.
  while (!dialled_) runtime_.run_until([this] { return !!dialled_; }, kMeetingDialTime);
  return *dialled_;
}

MeetingHello MeetingGuest::hello() const {
  return {.format = kMeetingFormat,
          .program = spec_.program,
          .protocol = kProtocolVersion,
          .what = std::string(spec_.what),
          .machine = ShmBackend::machine(),
          .dialled = host_.host,
          .mbit_per_second = spec_.mbit_per_second};
}

void MeetingGuest::hear(Frame frame) {
  if (frame.kind == kMeetingAnswer || frame.kind == kMeetingOver) {
    auto refused = parse_answer(frame.meta);
    if (!refused)
      over_ = std::unexpected(refused.error());
    else if (frame.kind == kMeetingAnswer)
      answer_ = std::move(*refused);
    else if (refused->empty())
      over_ = Result<void>();
    else
      over_ = fail(ErrorCode::kPeerGone, std::move(*refused));
    return;
  }
  if (over_) return;
  if (!on_word_) {
    if (early_.size() < kEarlyWordsMax) early_.push_back(std::move(frame));
    return;
  }
  if (auto done = on_word_(std::move(frame)); !done) over_ = std::move(done);
}

Result<void> MeetingGuest::serve(const std::function<Result<void>(Frame)>& on_word) {
  on_word_ = on_word;
  for (Frame& frame : std::exchange(early_, {})) hear(std::move(frame));
  while (!over_) runtime_.run_until([this] { return over_.has_value(); }, kServePause);
  on_word_ = {};
  return *over_;
}

void MeetingGuest::say(MeetingKind kind, std::string meta) {
  connection_->send({.kind = kind, .meta = std::move(meta)});
}

}  // namespace swarmline
