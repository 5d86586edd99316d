#include "tools/measure/far_links.h"

#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "engine/identity/secrets.h"
#include "tools/measure/link_meter.h"
#include "tools/measure/payload_way.h"

namespace swarmline {
namespace {

constexpr Duration kLinkBeginTime = std::chrono::seconds(5);
constexpr Duration kLookPause = std::chrono::milliseconds(10);
constexpr const char* kNotTaken = "the two machines do not meet that way";

// The end that listens, and what it measures of one guest.
class FarBench {
 public:
  FarBench(MeetingHost& host, const FarLinkOptions& options, const SecondsClock& clock,
           const LinkBenchNews& news)
      : host_(host),
        options_(options),
        news_(news),
        meter_(options.of.rounds, clock, news, result_) {}

  Result<LinkBenchResult> run() {
    for (guest_ = 0; guest_ < host_.guests(); ++guest_) {
      news_.on_far(far());
      SWARMLINE_TRY(open_socket());
      for (const std::string& way : options_.of.ways) SWARMLINE_TRY(measure(way));
      raw_.reset();
    }
    return std::move(result_);
  }

 private:
  const std::string& far() const { return host_.host_of(guest_); }
  void leave_out(const std::string& what, const std::string& why) {
    result_.left_out.emplace_back(fmt::format("{} with {}", what, far()), why);
  }
  // Why a task can't be done; empty: it is.
  Result<std::string> task(MeetingKind kind, std::string meta) {
    SWARMLINE_TRY(host_.tell(guest_, kind, std::move(meta)));
    const auto answer = host_.hear(guest_, kLinkTaskTime);
    if (!answer) return std::unexpected(answer.error());
    if (answer->kind != kTaskAnswer)
      return fail(ErrorCode::kCorrupt, fmt::format("{} says what was not asked", far()));
    return parse_task_answer(answer->meta);
  }

  Result<void> open_socket() {
    const std::string token = random_secret(kMeetingTokenBytes);
    const auto listener = RawListener::open(options_.listen_host);
    if (!listener) {
      leave_out("the plain socket", listener.error().what);
      return {};
    }
    const auto without =
        task(kSocketTask, encode(SocketTask{.port = listener->port(), .token = token}));
    if (!without) return std::unexpected(without.error());
    const auto socket = without->empty() ? listener->accept(token) : std::nullopt;
    if (socket)
      raw_ = std::make_unique<RawLink>(*socket);
    else
      leave_out("the plain socket", without->empty() ? "it did not come" : *without);
    return {};
  }

  Result<void> measure(const std::string& way) {
    news_.on_begin(way);
    if (const auto here = way_is_here(way); !here) {
      leave_out(way, here.error().what);
      return {};
    }
    const auto door = make_door_of(way, host_.runtime(), host_.network(), options_.trusted);
    const std::string token = random_secret(kMeetingTokenBytes);
    host_.expect_link(
        {.door = door.get(),
         .token = token,
         .on_link = [this](auto connection) { link_.emplace(host_.runtime(), connection); },
         .on_frame = [this](Frame frame) { link_->hear(std::move(frame)); },
         .on_closed = [this](const Error& error) { link_->lost(error); }});
    const auto done = measure_over(way, token);
    host_.expect_link({});
    link_.reset();
    SWARMLINE_TRY(done);
    return host_.tell(guest_, kTaskOver, {});
  }

  Result<void> measure_over(const std::string& way, const std::string& token) {
    const auto without = task(kLinkTask, encode(LinkTask{.way = way, .token = token}));
    if (!without) return std::unexpected(without.error());
    // The answer came by another connection, and may have been faster.
    if (without->empty()) host_.runtime().run_until([this] { return !!link_; }, kLinkBeginTime);
    if (!without->empty() || !link_) {
      leave_out(way, without->empty() ? "its link did not come" : *without);
      return {};
    }
    const LinkMeter::Ends ends{.way = way, .far = far(), .link = *link_, .raw = raw_.get()};
    for (const std::uint64_t bytes : options_.of.bytes)
      for (const bool outward : {false, true})
        SWARMLINE_TRY(named(meter_.measure_rate(ends, bytes, outward)));
    return named(meter_.measure_trip(ends));
  }

  Result<void> named(Result<void> done) const {
    if (done) return done;
    return fail(done.error().code, fmt::format("bench links: {}: {}", far(), done.error().what));
  }

  MeetingHost& host_;
  const FarLinkOptions& options_;
  const LinkBenchNews& news_;
  std::size_t guest_ = 0;
  std::unique_ptr<RawLink> raw_;
  std::optional<MeasuredLink> link_;
  LinkBenchResult result_;
  LinkMeter meter_;
};

// The end that joins: it dials, and does what comes over the link.
class FarLinks {
 public:
  FarLinks(MeetingGuest& guest, const std::vector<IpRange>& trusted)
      : guest_(guest), trusted_(trusted) {}
  Result<void> hear(const Frame& frame) {
    if (frame.kind == kSocketTask) return open_socket(frame);
    if (frame.kind == kLinkTask) return dial(frame);
    if (frame.kind != kTaskOver)
      return fail(ErrorCode::kCorrupt, "bench links: the other end says what is no word of it");
    over();
    return {};
  }

 private:
  void answer(const std::string& without) { guest_.say(kTaskAnswer, encode_task_answer(without)); }

  Result<void> open_socket(const Frame& frame) {
    const auto task = parse_socket_task(frame.meta);
    if (!task) return std::unexpected(task.error());
    const auto socket = dial_raw_link({guest_.host().host, task->port}, task->token);
    if (socket) socket_.emplace(*socket);
    answer(socket ? "" : socket.error().what);
    return {};
  }

  Result<void> dial(const Frame& frame) {
    auto task = parse_link_task(frame.meta);
    if (!task) return std::unexpected(task.error());
    over();
    if (const auto here = way_is_here(task->way); !here) {
      answer(here.error().what);
      return {};
    }
    door_ = make_door_of(task->way, guest_.runtime(), guest_.network(), trusted_);
    guest_.network().connect(guest_.host(), kMeetingDialTime,
                             [this, task = *task, door = door_.get()](auto made) {
                               if (door != door_.get()) return;  // it is over
                               if (!made) return answer(made.error().what);
                               begin(task, std::move(*made));
                             });
    return {};
  }

  void begin(const LinkTask& task, std::shared_ptr<Connection> connection) {
    connection_ = door_->over(std::move(connection));
    link_.emplace(guest_.runtime(), connection_);
    connection_->start({.on_frame =
                            [this](Frame word) {
                              if (link_) link_->hear(std::move(word));
                            },
                        .on_closed =
                            [this](const Error& error) {
                              if (link_) link_->lost(error);
                            }});
    connection_->send({.kind = kLinkBegins, .meta = task.token});
    if (goes_with_frames(task.way)) return answer("");
    if (!link_->offer()) return answer(kNotTaken);
    look_whether_taken(task.way, guest_.runtime().now() + 2 * kBulkMeetTime);
  }

  void look_whether_taken(const std::string& way, Instant until) {
    if (!link_) return;
    if (link_->way() == way) return answer("");
    if (guest_.runtime().now() >= until) return answer(kNotTaken);
    guest_.runtime().call_after(kLookPause, [this, way, until] { look_whether_taken(way, until); });
  }

  void over() {
    if (connection_) connection_->close();
    connection_.reset();
    link_.reset();
  }

  MeetingGuest& guest_;
  const std::vector<IpRange>& trusted_;
  std::optional<RawServer> socket_;
  std::unique_ptr<BulkDoor> door_;
  std::shared_ptr<BulkConnection> connection_;
  std::optional<MeasuredLink> link_;
};

}  // namespace

Result<LinkBenchResult> bench_far_links(MeetingHost& host, const FarLinkOptions& options,
                                        const SecondsClock& clock, const LinkBenchNews& news) {
  SWARMLINE_TRY(check_link_ways(options.of.ways));
  return FarBench(host, options, clock, news).run();
}

Result<void> serve_far_links(MeetingGuest& guest, const std::vector<IpRange>& trusted) {
  FarLinks links(guest, trusted);
  return guest.serve([&](const Frame& frame) { return links.hear(frame); });
}

}  // namespace swarmline
