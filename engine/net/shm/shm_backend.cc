#include "engine/net/shm/shm_backend.h"

#include <deque>
#include <map>
#include <utility>

#include <boost/asio/local/stream_protocol.hpp>

#include "base/limits.h"
#include "engine/identity/secrets.h"
#include "engine/net/shm/shm_link.h"
#include "engine/net/shm/shm_meeting.h"
#include "engine/runtime/asio_access.h"

namespace swarmline {
namespace asio = boost::asio;
using asio::local::stream_protocol;
using boost::system::error_code;

namespace {

// One end of a link that is being made: whatever ends it first settles it.
struct Meet {
  explicit Meet(asio::io_context& io) : socket(io) {}
  stream_protocol::socket socket;
  std::unique_ptr<ShmSegment> segment;  // of the end that was dialled
  BulkBackend::Made on_made;            // there: once its secret was said
  TimerId timer;
};

}  // namespace

struct ShmBackend::State : std::enable_shared_from_this<State> {
  explicit State(AsioRuntime& control) : runtime(control), io(io_context_of(control)) {}

  struct Awaited {
    Made on_made;
    TimerId timer;
  };

  Result<void> listen();
  void accept_next();
  void accepted(stream_protocol::socket socket);
  void wait(const std::shared_ptr<Meet>& meet, void (State::*step)(const std::shared_ptr<Meet>&));
  void hear(const std::shared_ptr<Meet>& meet);
  void hear_that_it_is_taken(const std::shared_ptr<Meet>& meet);
  void take(const std::shared_ptr<Meet>& meet);
  void refuse(const std::shared_ptr<Meet>& meet);
  void settle(const std::shared_ptr<Meet>& meet, Result<void> result, bool first);

  AsioRuntime& runtime;
  asio::io_context& io;
  std::string name;  // of the socket that listens; empty: none does
  std::optional<stream_protocol::acceptor> acceptor;
  std::map<std::string, Awaited> awaited;  // by their secrets
  std::deque<std::shared_ptr<Meet>> greetings;
  Counters counters;
  bool stopped = false;
};

std::string ShmBackend::machine() {
  return own_machine();
}

ShmBackend::ShmBackend(AsioRuntime& runtime) : state_(std::make_shared<State>(runtime)) {}

ShmBackend::~ShmBackend() {
  state_->stopped = true;
  error_code ignored;
  if (state_->acceptor) state_->acceptor->close(ignored);
  for (const auto& meet : state_->greetings) meet->socket.close(ignored);
  for (const auto& [secret, one] : state_->awaited) state_->runtime.cancel(one.timer);
  state_->awaited.clear();
}

Result<void> ShmBackend::is_viable() {
  static const Result<void> viable = []() -> Result<void> {
    if (own_machine().empty())
      return fail(ErrorCode::kNotFound, "/proc does not say which machine this is");
    SWARMLINE_TRY(ShmSegment::make());
    return {};
  }();
  return viable;
}

std::string ShmBackend::address(const BulkPath&) {
  return own_machine();
}

bool ShmBackend::reaches(const BulkPath&, std::string_view address) {
  return !address.empty() && address == own_machine();
}

ShmBackend::Counters ShmBackend::counters() const {
  return state_->counters;
}

Result<void> ShmBackend::State::listen() {
  if (acceptor) return {};
  std::string drawn = new_socket_name();
  const stream_protocol::endpoint at(std::string(1, '\0') + drawn);
  stream_protocol::acceptor made(io);
  error_code error;
  made.open(at.protocol(), error);
  if (!error) made.bind(at, error);
  if (!error) made.listen(Limits::accept_backlog_max, error);
  if (error) return fail(ErrorCode::kIo, "cannot listen on a Unix socket: " + error.message());
  acceptor.emplace(std::move(made));
  name = std::move(drawn);
  accept_next();
  return {};
}

void ShmBackend::State::accept_next() {
  acceptor->async_accept(
      [self = shared_from_this()](const error_code& error, stream_protocol::socket socket) {
        if (self->stopped || !self->acceptor->is_open()) return;
        HandlerScope scope(self->runtime);
        if (!error) {
          self->accepted(std::move(socket));
          return self->accept_next();
        }
        constexpr Duration kRetry = std::chrono::milliseconds(100);  // out of descriptors, say
        self->runtime.call_after(kRetry, [weak = self->weak_from_this()] {
          if (const auto again = weak.lock(); again && !again->stopped) again->accept_next();
        });
      });
}

void ShmBackend::State::accepted(stream_protocol::socket socket) {
  ++counters.accepted;
  const auto meet = std::make_shared<Meet>(io);
  meet->socket = std::move(socket);
  if (!is_of_own_user(meet->socket.native_handle())) {
    ++counters.refused;
    return;
  }
  if (greetings.size() >= kShmGreetingsMax) refuse(greetings.front());
  greetings.push_back(meet);
  meet->timer =
      runtime.call_after(kShmGreetingTime, [self = shared_from_this(), weak = std::weak_ptr(meet)] {
        if (const auto late = weak.lock()) self->refuse(late);
      });
  wait(meet, &State::hear);
}

void ShmBackend::State::wait(const std::shared_ptr<Meet>& meet,
                             void (State::*step)(const std::shared_ptr<Meet>&)) {
  meet->socket.async_wait(stream_protocol::socket::wait_read,
                          [self = shared_from_this(), meet, step](const error_code& error) {
                            if (error || self->stopped) return;
                            HandlerScope scope(self->runtime);
                            ((*self).*step)(meet);
                          });
}

void ShmBackend::State::refuse(const std::shared_ptr<Meet>& meet) {
  if (std::erase(greetings, meet) == 0) return;
  ++counters.refused;
  runtime.cancel(meet->timer);
  error_code ignored;
  meet->socket.close(ignored);
}

void ShmBackend::State::hear(const std::shared_ptr<Meet>& meet) {
  const auto secret = hear_secret(meet->socket.native_handle());
  if (secret && !*secret) return wait(meet, &State::hear);
  const auto found = secret ? awaited.find(**secret) : awaited.end();
  if (found == awaited.end()) return refuse(meet);
  auto segment = ShmSegment::make();
  std::erase(greetings, meet);
  runtime.cancel(meet->timer);
  meet->on_made = std::move(found->second.on_made);
  meet->timer = found->second.timer;
  awaited.erase(found);
  if (!segment) return settle(meet, std::unexpected(std::move(segment).error()), true);
  meet->segment = std::move(*segment);
  if (!hand_over(meet->socket.native_handle(), *meet->segment))
    return settle(meet, fail(ErrorCode::kPeerGone, "the other end left"), true);
  wait(meet, &State::hear_that_it_is_taken);
}

void ShmBackend::State::hear_that_it_is_taken(const std::shared_ptr<Meet>& meet) {
  const auto taken = hear_taken(meet->socket.native_handle());
  if (taken && !*taken) return wait(meet, &State::hear_that_it_is_taken);
  settle(meet, taken ? Result<void>() : std::unexpected(taken.error()), true);
}

void ShmBackend::State::settle(const std::shared_ptr<Meet>& meet, Result<void> result, bool first) {
  const Made on_made = std::exchange(meet->on_made, {});
  if (!on_made) return;
  runtime.cancel(meet->timer);
  if (result)
    return on_made(std::shared_ptr<BulkLink>(std::make_shared<ShmLink>(
        runtime, std::move(meet->socket), std::move(meet->segment), first)));
  error_code ignored;
  meet->socket.close(ignored);
  on_made(std::unexpected(std::move(result).error()));
}

Result<BulkWay> ShmBackend::await(const BulkPath&, const BulkWay&, Duration timeout, Made on_made) {
  SWARMLINE_TRY(state_->listen());
  std::string secret = random_secret(kBulkSecretBytes);
  // The same timer for both parts of it: until somebody has come, and until it has the memory.
  const auto made = std::make_shared<Made>(std::move(on_made));
  State::Awaited& awaited = state_->awaited[secret];
  awaited.on_made = [made](auto link) {
    if (const Made once = std::exchange(*made, {})) once(std::move(link));
  };
  awaited.timer = state_->runtime.call_after(timeout, [weak = std::weak_ptr(state_), made, secret] {
    const auto state = weak.lock();
    if (!state || state->stopped) return;
    state->awaited.erase(secret);
    if (const Made once = std::exchange(*made, {}))
      once(fail(ErrorCode::kDeadline, "the other end did not come"));
  });
  return BulkWay{.backend = std::string(name()), .address = state_->name, .secret = secret};
}

void ShmBackend::meet(const BulkPath&, const BulkWay& answered, Duration timeout, Made on_made) {
  const auto meet = std::make_shared<Meet>(state_->io);
  meet->on_made = std::move(on_made);
  meet->timer = state_->runtime.call_after(timeout, [state = state_, meet] {
    state->settle(meet, fail(ErrorCode::kDeadline, "the other end gave no memory"), false);
  });
  const auto fail_soon = [state = state_, meet](ErrorCode code, std::string what) {
    state->runtime.post([state, meet, code, what = std::move(what)] {
      state->settle(meet, fail(code, what), false);
    });
  };
  if (!is_socket_name(answered.address))
    return fail_soon(ErrorCode::kCorrupt, "the other end names no socket of ours");
  // Within one machine this does not wait: there is room in the backlog, or not.
  error_code error;
  meet->socket.open(stream_protocol(), error);
  if (!error) meet->socket.non_blocking(true, error);
  if (!error) meet->socket.connect({std::string(1, '\0') + answered.address}, error);
  if (error) return fail_soon(ErrorCode::kPeerGone, "cannot reach its socket: " + error.message());
  if (!is_of_own_user(meet->socket.native_handle()))
    return fail_soon(ErrorCode::kCorrupt, "its socket is another user's");
  if (!say_secret(meet->socket.native_handle(), answered.secret))
    return fail_soon(ErrorCode::kPeerGone, "its socket takes nothing");
  state_->wait(meet, &State::take);
}

void ShmBackend::State::take(const std::shared_ptr<Meet>& meet) {
  auto segment = take_over(meet->socket.native_handle());
  if (segment && !*segment) return wait(meet, &State::take);
  if (!segment) return settle(meet, std::unexpected(std::move(segment).error()), false);
  meet->segment = std::move(*segment);
  if (!say_taken(meet->socket.native_handle()))
    return settle(meet, fail(ErrorCode::kPeerGone, "the other end left"), false);
  settle(meet, {}, false);
}

}  // namespace swarmline
