#include "tools/chaos/chaos_tap.h"

#include <optional>
#include <poll.h>
#include <string_view>
#include <unistd.h>
#include <utility>
#include <vector>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>
#include <fmt/format.h>

#include "base/log.h"
#include "console/words.h"
#include "engine/net/tcp/tcp_network.h"
#include "engine/runtime/asio_access.h"
#include "pipeline/protocol/message_kinds.h"
#include "tools/chaos/state_downloads.h"

namespace swarmline {
namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

constexpr double kSlowFactorMax = 1e6;

template <typename Message>
std::optional<std::uint64_t> step_of_phase(const Frame& frame, auto phase_of) {
  const auto message = parse<Message>(frame);
  if (!message) return std::nullopt;
  const wire::Phase& phase = phase_of(*message);
  if (phase.eval()) return std::nullopt;
  return phase.step();
}

template <typename Message>
std::optional<std::uint64_t> step_of_attempt(const Frame& frame) {
  return step_of_phase<Message>(frame, [](const Message& m) { return m.id().phase(); });
}

template <typename Message>
std::optional<std::uint64_t> step_of_round(const Frame& frame) {
  return step_of_phase<Message>(frame, [](const Message& m) { return m.phase(); });
}

// Nothing: of an evaluation, of a download that is no joiner's, or unreadable.
std::optional<std::uint64_t> step_of(const Frame& frame, const StateDownloads& downloads) {
  switch (kind_of(frame)) {
    case MessageKind::kForward:
      return step_of_attempt<wire::Forward>(frame);
    case MessageKind::kGradient:
      return step_of_attempt<wire::Gradient>(frame);
    case MessageKind::kSeal:
      return step_of_round<wire::Seal>(frame);
    case MessageKind::kReduceChunk:
      return step_of_round<wire::ReduceChunk>(frame);
    case MessageKind::kReduced:
      return step_of_round<wire::Reduced>(frame);
    case MessageKind::kCommit: {
      const auto commit = parse<wire::Commit>(frame);
      return commit ? std::optional(commit->step()) : std::nullopt;
    }
    case MessageKind::kSaveStage: {
      const auto save = parse<wire::SaveStage>(frame);
      return save ? std::optional(save->version()) : std::nullopt;
    }
    case MessageKind::kStateOffer:
    case MessageKind::kPieceRequest:
    case MessageKind::kPiece:
      return downloads.is_of_a_joiner(frame) ? std::optional<std::uint64_t>(0) : std::nullopt;
    default:
      return 0;
  }
}

// The line to the chaos parent.
class ChaosTap : public std::enable_shared_from_this<ChaosTap> {
 public:
  ChaosTap(AsioRuntime& runtime, std::function<void(double)> slow_down)
      : runtime_(runtime), slow_down_(std::move(slow_down)), socket_(io_context_of(runtime)) {}

  Result<void> open(const Address& parent, const std::string& name);
  void say(const std::string& line);
  // Where to connect instead.
  Address route(const Address& address);
  void passing(const Frame& frame, bool sent);

 private:
  struct Watch {
    std::uint64_t id = 0;
    std::uint16_t kind = 0;
    bool sent = false;
    std::uint64_t step = 0;
  };

  void listen();
  bool read_some();  // false: the parent is gone
  std::optional<std::string> next_line();
  // The rest of the next line that begins so; lines before it are handled.
  std::optional<std::string> wait_for(std::string_view beginning, Duration longest = kTapWait);
  void handle(std::string_view line);
  void add_watch(std::string_view words);

  AsioRuntime& runtime_;
  std::function<void(double)> slow_down_;
  tcp::socket socket_;
  std::string input_;
  std::vector<Watch> watches_;
  StateDownloads downloads_;
  bool links_ = false;
};

Result<void> ChaosTap::open(const Address& parent, const std::string& name) {
  error_code error;
  const auto ip = asio::ip::make_address(parent.host, error);
  if (!error) socket_.connect(tcp::endpoint(ip, parent.port), error);
  if (!error) socket_.native_non_blocking(true, error);
  if (error)
    return fail(ErrorCode::kPeerGone,
                fmt::format("no chaos run steers at {}: {}", to_string(parent), error.message()));
  say("hello " + name);
  const auto links = wait_for("links ", kTapHelloWait);
  if (!links)
    return fail(ErrorCode::kDeadline,
                fmt::format("the chaos run at {} does not answer", to_string(parent)));
  links_ = *links == "on";
  listen();
  return {};
}

void ChaosTap::say(const std::string& line) {
  if (!socket_.is_open()) return;
  error_code error;
  asio::write(socket_, asio::buffer(line + "\n"), error);
  if (error) socket_.close(error);
}

void ChaosTap::listen() {
  if (!socket_.is_open()) return;
  socket_.async_wait(tcp::socket::wait_read, [self = shared_from_this()](const error_code& error) {
    if (error) return;
    HandlerScope scope(self->runtime_);
    if (!self->read_some()) return;
    while (auto line = self->next_line()) self->handle(*line);
    self->listen();
  });
}

bool ChaosTap::read_some() {
  char bytes[kTapLineBytesMax];
  for (;;) {
    const ssize_t got = ::read(socket_.native_handle(), bytes, sizeof(bytes));
    if (got > 0) {
      input_.append(bytes, static_cast<std::size_t>(got));
      if (input_.size() <= kTapLineBytesMax * kTapWatchesMax) continue;
    }
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    error_code ignored;
    socket_.close(ignored);
    return false;
  }
}

std::optional<std::string> ChaosTap::next_line() {
  const std::size_t end = input_.find('\n');
  if (end == std::string::npos) return std::nullopt;
  std::string line = input_.substr(0, end);
  input_.erase(0, end + 1);
  return line;
}

std::optional<std::string> ChaosTap::wait_for(std::string_view beginning, Duration longest) {
  const Instant deadline = runtime_.now() + longest;
  while (socket_.is_open()) {
    // Read first: what was sent while this process was stopped is there, whatever the time.
    if (!read_some()) break;
    std::optional<std::string> rest;
    // What came with it is handled now: nothing may ever follow that would wake listen().
    while (auto line = next_line()) {
      if (!rest && line->starts_with(beginning))
        rest = line->substr(beginning.size());
      else
        handle(*line);
    }
    if (rest) return rest;
    const Duration left = deadline - runtime_.now();
    if (left <= Duration{}) break;
    pollfd wait{.fd = socket_.native_handle(), .events = POLLIN, .revents = 0};
    ::poll(&wait, 1, static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(left).count()));
  }
  return std::nullopt;
}

void ChaosTap::handle(std::string_view line) {
  const std::string_view command = next_word(line);
  std::uint64_t id = 0;
  double factor = 0;
  if (command == "watch") return add_watch(line);
  if (command == "unwatch" && take_value(line, id)) {
    std::erase_if(watches_, [id](const Watch& watch) { return watch.id == id; });
  } else if (command == "slow" && take_value(line, factor) && factor >= 1 &&
             factor <= kSlowFactorMax) {
    if (slow_down_) slow_down_(factor);
  } else {
    log(LogLevel::kWarn, "the chaos run said \"{}\"", command);
  }
}

void ChaosTap::add_watch(std::string_view words) {
  Watch watch;
  const bool numbers = take_value(words, watch.id) && take_value(words, watch.kind);
  const std::string_view way = next_word(words);
  watch.sent = way == "sent";
  if (numbers && (watch.sent || way == "received") && take_value(words, watch.step) &&
      watches_.size() < kTapWatchesMax)
    watches_.push_back(watch);
}

Address ChaosTap::route(const Address& address) {
  if (!links_ || !socket_.is_open()) return address;
  say("route " + to_string(address));
  const auto via = wait_for("via ");
  if (!via) return address;
  return parse_address(*via).value_or(address);
}

void ChaosTap::passing(const Frame& frame, bool sent) {
  if (kind_of(frame) == MessageKind::kWelcome && !sent) {
    if (const auto welcome = parse<wire::Welcome>(frame))
      say(fmt::format("seat {} {}", welcome->seat().peer(), welcome->seat().stage()));
  }
  downloads_.passing(frame);
  for (const Watch& watch : watches_) {
    if (watch.kind != frame.kind || watch.sent != sent) continue;
    const auto step = step_of(frame, downloads_);
    if (!step || *step < watch.step) continue;
    say(fmt::format("at {} {}", watch.id, *step));
    wait_for("go");
    return;  // the watches may be others now
  }
}

class TappedConnection final : public Connection,
                               public std::enable_shared_from_this<TappedConnection> {
 public:
  TappedConnection(std::shared_ptr<Connection> inner, std::shared_ptr<ChaosTap> tap)
      : inner_(std::move(inner)), tap_(std::move(tap)) {}

  // The inner connection keeps this one as long as it can still call.
  void start(Handlers handlers) override {
    inner_->start(
        {.on_frame =
             [tap = tap_, on_frame = std::move(handlers.on_frame)](Frame frame) {
               tap->passing(frame, false);
               on_frame(std::move(frame));
             },
         .on_closed = [self = shared_from_this(), on_closed = std::move(handlers.on_closed)](
                          Error error) { on_closed(std::move(error)); },
         .on_arriving = std::move(handlers.on_arriving),
         .stranger = handlers.stranger});
  }
  void send(Frame frame) override {
    tap_->passing(frame, true);
    inner_->send(std::move(frame));
  }
  void believe(const ConnectionBounds& bounds) override { inner_->believe(bounds); }
  void close() override { inner_->close(); }
  std::uint64_t unsent_bytes() const override { return inner_->unsent_bytes(); }
  Counters counters() const override { return inner_->counters(); }
  std::string remote() const override { return inner_->remote(); }
  std::optional<KeyHash> peer_key() const override { return inner_->peer_key(); }
  std::string admitted_as() const override { return inner_->admitted_as(); }
  std::string local_host() const override { return inner_->local_host(); }
  bool is_relayed() const override { return inner_->is_relayed(); }

 private:
  std::shared_ptr<Connection> inner_;
  std::shared_ptr<ChaosTap> tap_;
};

class TappedNetwork final : public Network {
 public:
  TappedNetwork(AsioRuntime& runtime, std::shared_ptr<LinkGuard> guard,
                std::shared_ptr<ChaosTap> tap)
      : inner_(runtime, {.guard = std::move(guard)}), tap_(std::move(tap)) {}

  Result<Address> listen(const Address& address, Accepted on_accepted) override {
    auto bound =
        inner_.listen(address, [tap = tap_, on_accepted](std::shared_ptr<Connection> connection) {
          on_accepted(std::make_shared<TappedConnection>(std::move(connection), tap));
        });
    if (bound) tap_->say("listens " + to_string(*bound));
    return bound;
  }
  void connect(const Address& address, Duration timeout, Connected on_connected) override {
    inner_.connect(tap_->route(address), timeout,
                   [tap = tap_, on_connected = std::move(on_connected)](
                       Result<std::shared_ptr<Connection>> connection) {
                     if (connection)
                       connection = std::make_shared<TappedConnection>(std::move(*connection), tap);
                     on_connected(std::move(connection));
                   });
  }
  void meet(const Meeting& meeting, Duration timeout, Connected on_connected) override {
    inner_.meet(meeting, timeout,
                [tap = tap_, on_connected = std::move(on_connected)](
                    Result<std::shared_ptr<Connection>> connection) {
                  if (connection)
                    connection = std::make_shared<TappedConnection>(std::move(*connection), tap);
                  on_connected(std::move(connection));
                });
  }
  void stop_listening() override { inner_.stop_listening(); }

 private:
  TcpNetwork inner_;
  std::shared_ptr<ChaosTap> tap_;
};

}  // namespace

Result<std::unique_ptr<Network>> make_tapped_network(AsioRuntime& runtime,
                                                     const std::string& parent, NetworkUser user) {
  const auto address = parse_address(parent);
  if (!address) return std::unexpected(address.error());
  auto tap = std::make_shared<ChaosTap>(runtime, std::move(user.slow_down));
  SWARMLINE_TRY(tap->open(*address, user.name));
  return std::make_unique<TappedNetwork>(runtime, std::move(user.guard), std::move(tap));
}

}  // namespace swarmline
