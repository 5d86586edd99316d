#include "pipeline/stage/stage_peer.h"

#include <algorithm>
#include <optional>
#include <unistd.h>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/limits.h"
#include "engine/base/log.h"
#include "engine/config/load.h"
#include "engine/metrics/metrics.h"
#include "engine/metrics/render.h"
#include "engine/net/rpc.h"
#include "pipeline/stage/seated_stage.h"

namespace swarmline {

namespace {
constexpr std::uint64_t kAdmitBytesDefault = 1 * kGiB;
constexpr Duration kConnectTimeout = std::chrono::seconds(10);
// A peer that stops goes on sending for as long as its last word may need.
constexpr Duration kGoodbyeTime = std::chrono::milliseconds(200);

constexpr Duration kRejoinPause = std::chrono::milliseconds(200);
// For one of many tries: that machine may be gone, and another coordinator be elsewhere.
constexpr Duration kReconnectTimeout = std::chrono::seconds(2);
// Only where another coordinator may have taken over: what is said to one that is silent for longer
// is said to nobody.
constexpr Duration kCoordinatorSilence = std::chrono::seconds(10);
constexpr std::size_t kCoordinatorsMax = 16;

constexpr double kHeartbeatSecondsMin = 0.01;
constexpr double kHeartbeatSecondsMax = 3600;

Result<void> check_cuts(const wire::Welcome& welcome, const RunConfig& config) {
  std::uint32_t layer = 0;
  bool fits = static_cast<std::uint32_t>(welcome.cuts_size()) == config.pipeline.stages;
  for (const wire::StageCut& cut : welcome.cuts()) {
    fits = fits && cut.first_layer() == layer && cut.last_layer() >= layer &&
           (cut.last_layer() - layer) % config.model.share_layers == 0;
    layer = cut.last_layer();
  }
  if (!fits || layer != config.model.layers)
    return fail(ErrorCode::kCorrupt,
                "the coordinator's cut of the layers does not divide the model");
  return {};
}

int exit_code_of(const Error& error) {
  return error.code == ErrorCode::kUserMistake ? 2 : 1;
}
}  // namespace

class StagePeer::Impl {
 public:
  Impl(Runtime& runtime, Network& network, Device& device, StagePeerOptions options,
       std::function<void(PeerOutcome)> on_finished)
      : runtime_(runtime),
        network_(network),
        device_(device),
        queue_(device),
        options_(std::move(options)),
        on_finished_(std::move(on_finished)),
        alive_(std::make_shared<Impl*>(this)) {}

  void start();
  void finish(int exit_code, std::string sentence);
  void drain(Duration notice);
  BytesView committed_parameters() const {
    return stage_ ? stage_->committed_parameters() : BytesView();
  }
  const ParameterLayout* layout() const { return stage_ ? &stage_->layout() : nullptr; }
  Seat seat() const { return seat_; }
  bool serves() const {
    return stage_ != nullptr && stage_->serves() && !rejoining_ && !(draining_ && finished_);
  }

 private:
  void connect();
  void rejoin(const std::string& why);
  // The coordinator is gone, and this peer has a seat: it keeps what it holds for the next one.
  void adrift(const std::string& why);
  void drop_stage(std::function<void()> then);
  void connect_again();
  void say_hello();
  void on_coordinator_closed(const Error& error);
  void on_hello_failed(const Error& error);
  void welcomed(const wire::Welcome& welcome);
  void resumed(const wire::Welcome& welcome);
  void learn_coordinators(const wire::Welcome& welcome);
  bool coordinator_silent();
  void on_coordinator(Frame frame);
  void on_peer(const Seat& from, Frame frame);
  void log_metrics();
  void heartbeat();
  Result<SeatedStageParts> parts_from(const wire::Welcome& welcome);
  Result<void> build(SeatedStageParts& parts) const;
  void take_seat(SeatedStageParts parts);
  bool wants_recompute(const SeatedStageParts& parts) const;
  std::weak_ptr<Impl*> weak() const { return alive_; }

  Runtime& runtime_;
  Network& network_;
  Device& device_;
  DeviceQueue queue_;
  StagePeerOptions options_;
  std::function<void(PeerOutcome)> on_finished_;
  std::unique_ptr<PeerLinks> links_;
  Registry metrics_;  // told to the log at the end
  std::shared_ptr<RpcChannel> coordinator_;
  std::unique_ptr<SeatedStage> stage_;
  std::string advertised_;
  Seat seat_;
  Duration heartbeat_period_ = Limits::heartbeat_period;
  Instant coordinator_heard_{};
  std::vector<Address> coordinators_;  // tried in turn
  std::size_t coordinator_tried_ = 0;
  std::uint32_t connection_ = 0;  // counts those to coordinators; what an earlier one says is late
  Term term_;                     // the highest of this run
  std::string run_id_;
  Duration patience_ = kRejoinTime;  // with coordinators that do not answer
  Instant beat_due_{};
  bool adrift_ = false;
  bool rejoining_ = false;
  bool dropping_ = false;   // what it held; until the device has let go of it
  std::uint32_t life_ = 0;  // counts its seats; timers of an earlier one do nothing
  Instant rejoin_until_{};
  std::string why_rejoining_;
  bool draining_ = false;
  bool finished_ = false;
  std::shared_ptr<Impl*> alive_;
};

void StagePeer::Impl::start() {
  links_ = std::make_unique<PeerLinks>(
      runtime_, network_, kConnectTimeout,
      PeerLinks::Handlers{
          .on_frame = [this](const Seat& from, Frame frame) { on_peer(from, std::move(frame)); },
          .on_lost =
              [this](const Seat& peer, const Error& error) {
                if (stage_ && !finished_) stage_->on_link_lost(peer, error);
              },
          .on_arriving =
              [this](const Seat& from, const Arrival& arrival) {
                if (stage_ && !finished_) stage_->on_arriving(from, arrival);
              }});
  auto listen = parse_address(options_.machine.listen);
  if (!listen) return finish(2, listen.error().what);
  auto bound = links_->listen(*listen);
  if (!bound) return finish(2, bound.error().what);
  coordinators_.push_back(options_.coordinator);
  for (const Address& address : options_.standby) coordinators_.push_back(address);
  advertised_ = options_.machine.advertise.empty() ? to_string(*bound) : options_.machine.advertise;
  connect();
}

void StagePeer::Impl::connect() {
  const Address address = coordinators_[coordinator_tried_ % coordinators_.size()];
  const Duration timeout =
      rejoining_ || adrift_ || coordinators_.size() > 1 ? kReconnectTimeout : kConnectTimeout;
  network_.connect(
      address, timeout, [weak = weak(), address](Result<std::shared_ptr<Connection>> connected) {
        auto self = weak.lock();
        if (!self) return;
        Impl& peer = **self;
        if (peer.finished_) return;
        const bool others = peer.coordinator_tried_ + 1 < peer.coordinators_.size();
        if (!connected && (peer.rejoining_ || peer.adrift_ || others)) {
          ++peer.coordinator_tried_;
          return peer.connect_again();
        }
        if (!connected)
          return peer.finish(1, fmt::format("no coordinator answers at {}: {}", to_string(address),
                                            connected.error().what));
        peer.coordinator_ = RpcChannel::make(peer.runtime_, *connected);
        peer.say_hello();
      });
}

void StagePeer::Impl::say_hello() {
  ++connection_;
  coordinator_->start({
      .on_message =
          [weak = weak(), connection = connection_](Frame frame) {
            if (auto self = weak.lock(); self && (*self)->connection_ == connection)
              (*self)->on_coordinator(std::move(frame));
          },
      .on_request =
          [](Frame, RpcChannel::Respond respond) {
            respond(fail(ErrorCode::kRefused, "peers answer no requests"));
          },
      .on_closed =
          [weak = weak(), connection = connection_](const Error& error) {
            auto self = weak.lock();
            if (self && (*self)->connection_ == connection) (*self)->on_coordinator_closed(error);
          },
  });
  wire::Hello hello;
  hello.set_protocol(kProtocolVersion);
  hello.set_name(options_.name);
  hello.set_address(advertised_);
  hello.set_device(device_.name());
  hello.set_threads(options_.machine.threads);
  hello.set_memory_bytes(options_.machine.memory_bytes);
  hello.set_pid(static_cast<std::uint32_t>(getpid()));
  hello.set_zone(options_.machine.zone);
  hello.set_price(options_.machine.price);
  if (seat_.peer.value != 0) *hello.mutable_previous() = to_wire(seat_);
  hello.set_run_id(run_id_);
  hello.set_term(term_.value);
  if (adrift_) *hello.mutable_holdings() = stage_->holdings();
  coordinator_->call(make_frame(MessageKind::kHello, hello), Limits::rpc_deadline,
                     [weak = weak(), connection = connection_](Result<Frame> reply) {
                       auto self = weak.lock();
                       if (!self || (*self)->finished_ || (*self)->connection_ != connection)
                         return;
                       if (!reply) return (*self)->on_hello_failed(reply.error());
                       auto welcome = parse<wire::Welcome>(*reply);
                       if (!welcome) return (*self)->finish(1, welcome.error().what);
                       (*self)->welcomed(*welcome);
                     });
}

bool StagePeer::Impl::wants_recompute(const SeatedStageParts& parts) const {
  const std::string& wish = parts.config.pipeline.recompute;
  if (wish != "auto") return wish == "true";
  const std::uint64_t kept =
      retained_bytes(parts.spec, parts.stage, parts.config.batch.microbatch, false);
  return kept * parts.config.wiring.in_flight_per_peer > parts.admit_bytes;
}

Result<SeatedStageParts> StagePeer::Impl::parts_from(const wire::Welcome& welcome) {
  SeatedStageParts parts;
  auto config = run_config_from_text(welcome.config_toml(), "the coordinator's config");
  if (!config) return std::unexpected(config.error());
  parts.config = std::move(*config);
  auto spec = resolve_model(parts.config, welcome.vocab());
  if (!spec) return std::unexpected(spec.error());
  parts.spec = std::move(*spec);
  parts.self = from_wire(welcome.seat());
  if (parts.self.stage.value >= welcome.cuts_size())
    return fail(ErrorCode::kCorrupt, "a seat at a stage that the run does not have");
  SWARMLINE_TRY(check_cuts(welcome, parts.config));
  const wire::StageCut& cut = welcome.cuts(parts.self.stage.value);
  parts.stage = {.stage = parts.self.stage,
                 .stages = static_cast<std::uint32_t>(welcome.cuts_size()),
                 .first_layer = cut.first_layer(),
                 .last_layer = cut.last_layer()};
  parts.term = Term{welcome.term()};
  parts.era = Era{welcome.era()};
  parts.admit_bytes = parts.config.net.admit_bytes;
  if (parts.admit_bytes == 0)
    parts.admit_bytes =
        options_.machine.memory_bytes > 0 ? options_.machine.memory_bytes / 4 : kAdmitBytesDefault;
  parts.recompute = wants_recompute(parts);
  parts.joining = welcome.joining();
  patience_ = from_seconds(parts.config.net.coordinator_patience_seconds);
  parts.version = welcome.version();
  return parts;
}

// On the device's thread: a large stage takes longer to make than a coordinator waits for a
// heartbeat.
Result<void> StagePeer::Impl::build(SeatedStageParts& parts) const {
  if (parts.stage.has_embedding()) {
    auto source = options_.make_source(parts.config);
    if (!source) return std::unexpected(source.error());
    parts.source = std::move(*source);
  }
  auto model = options_.make_model(parts.spec, parts.stage,
                                   {.device = options_.machine.device,
                                    .threads = static_cast<int>(options_.machine.threads),
                                    .recompute = parts.recompute});
  if (!model) return std::unexpected(model.error());
  parts.model = std::move(*model);
  if (options_.make_wiring) parts.wiring = options_.make_wiring(parts.config, parts.self);
  return {};
}

void StagePeer::Impl::on_hello_failed(const Error& error) {
  if (error.code == ErrorCode::kPeerGone) return;  // its connection says so, too
  if ((rejoining_ || adrift_) && error.code == ErrorCode::kDeadline) return coordinator_->close();
  finish(error.code == ErrorCode::kRefused ? 3 : 1,
         "the coordinator did not take this peer: " + error.what);
}

void StagePeer::Impl::on_coordinator_closed(const Error& error) {
  ++connection_;
  coordinator_.reset();
  if (finished_) return;
  if (dropping_) return;  // whoever waits for that connects
  if (rejoining_ || adrift_) return connect_again();
  const std::string why = "lost the coordinator: " + error.what;
  stage_ && stage_->serves() ? adrift(why) : rejoin(why);
}

void StagePeer::Impl::learn_coordinators(const wire::Welcome& welcome) {
  for (const std::string& text : welcome.coordinators()) {
    const auto address = parse_address(text);
    if (address && coordinators_.size() < kCoordinatorsMax &&
        std::find(coordinators_.begin(), coordinators_.end(), *address) == coordinators_.end())
      coordinators_.push_back(*address);
  }
}

void StagePeer::Impl::resumed(const wire::Welcome& welcome) {
  log(LogLevel::kInfo, "{}: a coordinator is there again (term {})", to_string(seat_),
      welcome.term());
  adrift_ = false;
  links_->set_identity(
      {.term = term_, .era = Era{welcome.era()}, .run_id = run_id_, .self = seat_});
  if (!draining_) return;
  wire::Leave leave;
  *leave.mutable_seat() = to_wire(seat_);
  coordinator_->notify(make_frame(MessageKind::kLeave, leave));
}

void StagePeer::Impl::welcomed(const wire::Welcome& welcome) {
  const bool same_run = welcome.run_id() == run_id_;
  if (same_run && welcome.term() < term_.value) {  // its reign is over, it only does not know
    ++coordinator_tried_;
    return coordinator_->close();
  }
  term_ = Term{welcome.term()};
  run_id_ = welcome.run_id();
  coordinator_heard_ = runtime_.now();
  learn_coordinators(welcome);
  if (adrift_ && same_run && welcome.resumed() && from_wire(welcome.seat()) == seat_)
    return resumed(welcome);
  if (std::exchange(adrift_, false)) {
    log(LogLevel::kWarn, "{}: the coordinator gave its seat up", to_string(seat_));
    rejoining_ = true;
    ++life_;
    return drop_stage([weak = weak(), welcome, connection = connection_] {
      auto self = weak.lock();
      if (!self) return;
      (*self)->connection_ == connection ? (*self)->welcomed(welcome) : (*self)->connect_again();
    });
  }
  seat_ = from_wire(welcome.seat());
  rejoining_ = false;
  if (const double beat = welcome.heartbeat_seconds();
      beat >= kHeartbeatSecondsMin && beat < kHeartbeatSecondsMax)
    heartbeat_period_ = from_seconds(beat);
  links_->set_identity({.term = Term{welcome.term()},
                        .era = Era{welcome.era()},
                        .run_id = welcome.run_id(),
                        .self = seat_});
  heartbeat();
  auto parsed = parts_from(welcome);
  if (!parsed) return finish(exit_code_of(parsed.error()), parsed.error().what);
  auto parts = std::make_shared<SeatedStageParts>(std::move(*parsed));
  StageJob job;
  job.job.body = [this, parts] { return build(*parts); };
  job.done = [weak = weak(), parts, life = life_](JobReport report) {
    auto self = weak.lock();
    if (!self || (*self)->finished_ || (*self)->life_ != life) return;
    if (!report.result)
      return (*self)->finish(exit_code_of(report.result.error()), report.result.error().what);
    (*self)->take_seat(std::move(*parts));
  };
  queue_.submit(std::move(job));
}

void StagePeer::Impl::take_seat(SeatedStageParts built) {
  SeatedStageParts* parts = &built;
  log(LogLevel::kInfo, "seated at stage {}: layers {} to {}, {} parameters", seat_.stage.value,
      parts->stage.first_layer, parts->stage.last_layer - 1, parts->model->layout().elements);
  parts->metrics = &metrics_;
  parts->notify_coordinator = [weak = weak()](Frame frame) {
    if (auto self = weak.lock(); self && (*self)->coordinator_)
      (*self)->coordinator_->notify(std::move(frame));
  };
  parts->call_coordinator = [weak = weak()](Frame frame, std::function<void(Result<Frame>)> reply) {
    auto self = weak.lock();
    if (!self) return;
    if ((*self)->coordinator_)
      return (*self)->coordinator_->call(std::move(frame), Limits::rpc_deadline, std::move(reply));
    (*self)->runtime_.post([weak, reply = std::move(reply)] {
      if (weak.lock()) reply(fail(ErrorCode::kPeerGone, "there is no coordinator now"));
    });
  };
  parts->fail = [weak = weak()](Error error) {
    auto self = weak.lock();
    if (!self) return;
    // Not inside the handler that failed: it still stands on what finishing tears down.
    (*self)->runtime_.post([weak, error] {
      if (auto still = weak.lock()) (*still)->finish(exit_code_of(error), error.what);
    });
  };
  stage_ = std::make_unique<SeatedStage>(runtime_, queue_, *links_, std::move(built));
  stage_->begin();
}

void StagePeer::Impl::on_coordinator(Frame frame) {
  if (kind_of(frame) == MessageKind::kShutdown) {
    auto shutdown = parse<wire::Shutdown>(frame);
    return finish(shutdown ? static_cast<int>(shutdown->exit_code()) : 1,
                  shutdown ? shutdown->reason() : "the coordinator ended the run");
  }
  coordinator_heard_ = runtime_.now();
  if (kind_of(frame) == MessageKind::kHeartbeatAck) return;
  if (finished_ || rejoining_) return;
  if (kind_of(frame) == MessageKind::kFenced) {
    auto fenced = parse<wire::Fenced>(frame);
    return rejoin("fenced: " + (fenced ? fenced->reason() : fenced.error().what));
  }
  if (kind_of(frame) == MessageKind::kPeerLost) {
    auto lost = parse<wire::PeerLost>(frame);
    if (!lost) return finish(1, lost.error().what);
    links_->fence(from_wire(lost->seat()));
    if (stage_) stage_->on_peer_lost(from_wire(lost->seat()));
    return;
  }
  if (!stage_) return;
  if (kind_of(frame) == MessageKind::kResume) {
    auto resume = parse<wire::Resume>(frame);
    if (!resume) return finish(1, resume.error().what);
    for (const wire::Seat& lost : resume->lost()) {
      links_->fence(from_wire(lost));
      stage_->on_peer_lost(from_wire(lost));
    }
  }
  if (auto handled = stage_->on_coordinator(frame); !handled)
    finish(1, fmt::format("{} from the coordinator does not fit: {}", to_string(kind_of(frame)),
                          handled.error().what));
}

void StagePeer::Impl::on_peer(const Seat& from, Frame frame) {
  if (!stage_ || finished_) return;
  const MessageKind kind = kind_of(frame);
  auto handled = stage_->on_peer(from, std::move(frame));
  if (handled) return;
  metrics_.counter("swarmline_bad_frames_total", {{"kind", std::string(to_string(kind))}}).add();
  links_->disconnect(from, handled.error());
}

void StagePeer::Impl::log_metrics() {
  metrics_.gauge("swarmline_rejected_links").set(static_cast<double>(links_->rejected_links()));
  metrics_.gauge("swarmline_link_bytes_sent").set(static_cast<double>(links_->bytes_sent()));
  metrics_.gauge("swarmline_device_busy_seconds").set(to_seconds(device_.busy_total()));
  log(LogLevel::kInfo, "metrics {}", to_json_line(metrics_.snapshot()));
}

void StagePeer::Impl::heartbeat() {
  wire::Heartbeat beat;
  *beat.mutable_seat() = to_wire(seat_);
  beat.set_in_flight(stage_ ? stage_->in_flight() : 0);
  beat.set_busy_ns(static_cast<std::uint64_t>(device_.busy_total().count()));
  beat.set_jobs_done(queue_.finished());
  beat.set_jobs_waiting(static_cast<std::uint32_t>(queue_.unfinished()));
  if (coordinator_silent()) coordinator_->close();
  if (coordinator_) coordinator_->notify(make_frame(MessageKind::kHeartbeat, beat));
  beat_due_ = runtime_.now() + heartbeat_period_;
  runtime_.call_after(heartbeat_period_, [weak = weak(), life = life_] {
    auto self = weak.lock();
    if (self && !(*self)->finished_ && (*self)->life_ == life) (*self)->heartbeat();
  });
}

// Whatever it holds is nobody's any more: it starts over, as a newcomer.
void StagePeer::Impl::rejoin(const std::string& why) {
  if (finished_ || rejoining_) return;
  log(LogLevel::kWarn, "{}: {}; asking for a new seat", to_string(seat_), why);
  rejoining_ = true;
  ++life_;
  why_rejoining_ = why;
  rejoin_until_ = runtime_.now() + patience_;
  ++connection_;
  if (coordinator_) std::exchange(coordinator_, nullptr)->close();
  drop_stage([weak = weak()] {
    if (auto self = weak.lock()) (*self)->connect();
  });
}

void StagePeer::Impl::drop_stage(std::function<void()> then) {
  links_->reset();
  dropping_ = true;
  // Not inside the handler that heard of it, and not before the device has let go of the model.
  runtime_.post([weak = weak(), then = std::move(then)] {
    auto self = weak.lock();
    if (!self) return;
    (*self)->queue_.clear([weak, then] {
      auto still = weak.lock();
      if (!still || (*still)->finished_) return;
      (*still)->stage_.reset();
      (*still)->dropping_ = false;
      then();
    });
  });
}

void StagePeer::Impl::adrift(const std::string& why) {
  log(LogLevel::kWarn, "{}: {}; going on with what it holds", to_string(seat_), why);
  adrift_ = true;
  why_rejoining_ = why;
  rejoin_until_ = runtime_.now() + patience_;
  stage_->on_coordinator_lost();
  connect_again();
}

// Late itself, this process was stopped: then it can't say who is silent.
bool StagePeer::Impl::coordinator_silent() {
  const Instant now = runtime_.now();
  if (now - beat_due_ > heartbeat_period_) coordinator_heard_ = now;
  return coordinator_ && coordinators_.size() > 1 &&
         now - coordinator_heard_ > std::max<Duration>(kCoordinatorSilence, 10 * heartbeat_period_);
}

void StagePeer::Impl::drain(Duration notice) {
  if (finished_) return;
  if (!adrift_ && (!coordinator_ || seat_.peer.value == 0))
    return finish(0, "left before it had a seat");
  draining_ = true;
  wire::Leave leave;
  *leave.mutable_seat() = to_wire(seat_);
  if (coordinator_) coordinator_->notify(make_frame(MessageKind::kLeave, leave));
  runtime_.call_after(notice, [weak = weak()] {
    if (auto self = weak.lock()) (*self)->finish(0, "left before all it held was handed in");
  });
}

void StagePeer::Impl::connect_again() {
  if (runtime_.now() > rejoin_until_) return finish(1, why_rejoining_);
  runtime_.call_after(kRejoinPause, [weak = weak()] {
    if (auto self = weak.lock(); self && !(*self)->finished_) (*self)->connect();
  });
}

void StagePeer::Impl::finish(int exit_code, std::string sentence) {
  if (std::exchange(finished_, true)) return;
  if (coordinator_) {
    wire::Goodbye goodbye;
    *goodbye.mutable_seat() = to_wire(seat_);
    goodbye.set_reason(exit_code == 0 ? "" : sentence);
    coordinator_->notify(make_frame(MessageKind::kGoodbye, goodbye));
  }
  runtime_.call_after(kGoodbyeTime, [weak = weak(), exit_code, sentence] {
    auto self = weak.lock();
    if (!self) return;
    Impl& peer = **self;
    peer.queue_.stop();
    if (peer.stage_) peer.stage_->stop();
    peer.device_.stop();
    peer.log_metrics();
    peer.links_->close_all();
    if (peer.coordinator_) peer.coordinator_->close();
    peer.on_finished_({exit_code, sentence});
  });
}

StagePeer::StagePeer(Runtime& runtime, Network& network, Device& device, StagePeerOptions options,
                     std::function<void(PeerOutcome)> on_finished)
    : impl_(std::make_unique<Impl>(runtime, network, device, std::move(options),
                                   std::move(on_finished))) {}
StagePeer::~StagePeer() = default;
void StagePeer::start() {
  impl_->start();
}
void StagePeer::request_drain(Duration notice) {
  impl_->drain(notice);
}
void StagePeer::request_stop() {
  impl_->finish(130, "interrupted");
}
BytesView StagePeer::committed_parameters() const {
  return impl_->committed_parameters();
}
const ParameterLayout* StagePeer::layout() const {
  return impl_->layout();
}
Seat StagePeer::seat() const {
  return impl_->seat();
}
bool StagePeer::serves() const {
  return impl_->serves();
}

}  // namespace swarmline
