#include "pipeline/stage/stage_peer.h"

#include <algorithm>
#include <optional>
#include <unistd.h>
#include <utility>

#include "base/check.h"
#include "base/limits.h"
#include "base/log.h"
#include "engine/config/load.h"
#include "engine/metrics/render.h"
#include "pipeline/protocol/knobs.h"
#include "pipeline/stage/stage_peer_impl.h"

namespace swarmline {

namespace {
constexpr std::uint64_t kAdmitBytesDefault = 1 * kGiB;
// From the coordinator while a stage is built that begins with what its shadow holds.
constexpr std::size_t kEarlyFramesMax = 4096;

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

void StagePeer::Impl::start() {
  links_ = std::make_unique<PeerLinks>(
      runtime_, network_, knobs().connect_timeout,
      PeerLinks::Handlers{
          .on_frame = [this](const Seat& from, Frame frame) { on_peer(from, std::move(frame)); },
          .on_lost =
              [this](const Seat& peer, const Error& error) {
                // What it held is nobody's any more: nothing is asked or sent again.
                if (!stage_ || finished_ || seatless_) return;
                stage_->on_link_lost(peer, error);
                shadows_->on_link_lost(peer, error);
              },
          .on_arriving =
              [this](const Seat& from, const Arrival& arrival) {
                if (stage_ && !finished_) stage_->on_arriving(from, arrival);
              }});
  shadows_ = std::make_unique<ShadowStages>(runtime_, queue_, *links_);
  auto listen = parse_address(options_.machine.listen);
  if (!listen) return finish(2, listen.error().what);
  auto bound = links_->listen(*listen);
  if (!bound) return finish(2, bound.error().what);
  coordinators_.push_back(options_.coordinator);
  for (const Address& address : options_.standby) coordinators_.push_back(address);
  advertised_ = options_.machine.advertise.empty() ? to_string(*bound) : options_.machine.advertise;
  patience_ = from_seconds(options_.machine.join_patience_seconds);
  search_until_ = runtime_.now() + patience_;
  connect();
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
  parts.version = Version{welcome.version()};
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

void StagePeer::Impl::welcomed(const wire::Welcome& welcome) {
  const bool same_run = welcome.run_id() == run_id_;
  if (same_run && welcome.term() < term_.value) {  // its reign is over, it only does not know
    return coordinator_->close();
  }
  term_ = Term{welcome.term()};
  run_id_ = welcome.run_id();
  coordinator_heard_ = runtime_.now();
  learn_coordinators(welcome);
  if (adrift_ && same_run && welcome.resumed() && from_wire(welcome.seat()) == seat_)
    return resumed(welcome);
  if (!same_run) kept_.reset();
  if (std::exchange(adrift_, false)) {
    log(LogLevel::kWarn, "{}: the coordinator gave its seat up", to_string(seat_));
    if (draining_) return finish(0, kLeftEarly);
    seatless_ = true;
    ++life_;
    const bool keeps = same_run && from_wire(welcome.seat()).stage == seat_.stage;
    return drop_stage(keeps, [weak = weak(), welcome, connection = connection_] {
      auto self = weak.lock();
      if (!self) return;
      (*self)->connection_ == connection ? (*self)->welcomed(welcome) : (*self)->connect_again();
    });
  }
  seat_ = from_wire(welcome.seat());
  seatless_ = false;
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
  welcome_ = welcome;
  if (welcome.keeps_followed() && heritage_ && heritage_->stage() == seat_.stage)
    parts->heritage = heritage_;
  heritage_.reset();
  if (parts->joining && kept_ && kept_->stage == seat_.stage && kept_->era == parts->era)
    parts->kept = kept_;
  kept_.reset();
  inherits_ = parts->heritage != nullptr;
  early_.clear();
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

void StagePeer::Impl::connect_parts(SeatedStageParts& parts) {
  parts.notify_coordinator = [weak = weak()](Frame frame) {
    if (auto self = weak.lock(); self && (*self)->coordinator_)
      (*self)->coordinator_->notify(std::move(frame));
  };
  parts.call_coordinator = [weak = weak()](Frame frame, std::function<void(Result<Frame>)> reply) {
    auto self = weak.lock();
    if (!self) return;
    if ((*self)->coordinator_)
      return (*self)->coordinator_->call(std::move(frame), Limits::rpc_deadline, std::move(reply));
    (*self)->runtime_.post([weak, reply = std::move(reply)] {
      if (weak.lock()) reply(fail(ErrorCode::kPeerGone, "there is no coordinator now"));
    });
  };
}

void StagePeer::Impl::take_seat(SeatedStageParts built) {
  SeatedStageParts* parts = &built;
  log(LogLevel::kInfo, "seated at stage {}: layers {} to {}, {} parameters", seat_.stage.value,
      parts->stage.first_layer, parts->stage.last_layer - 1, parts->model->layout().elements);
  parts->metrics = &metrics_;
  connect_parts(*parts);
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
  if (!std::exchange(inherits_, false)) return;
  for (Frame& frame : std::exchange(early_, {})) on_coordinator(std::move(frame));
}

// ---- Shadows ------------------------------------------------------------------------------------

void StagePeer::Impl::on_follow(const wire::Follow& follow) {
  const StageId stage{static_cast<std::uint16_t>(follow.stage())};
  if (follow.drop()) return shadows_->drop(stage);
  // As a joiner of that stage would be welcomed.
  wire::Welcome welcome = welcome_;
  const Seat shadow{seat_.peer, stage, seat_.incarnation};
  *welcome.mutable_seat() = to_wire(shadow);
  welcome.set_joining(true);
  auto parts = parts_from(welcome);
  if (!parts || stage == seat_.stage)
    return shadow_failed(
        shadow, parts ? Error{ErrorCode::kCorrupt, "it serves that stage"} : parts.error());
  parts->shadow = true;
  connect_parts(*parts);
  parts->fail = [weak = weak(), shadow, life = life_](const Error& error) {
    auto self = weak.lock();
    if (!self) return;
    (*self)->runtime_.post([weak, shadow, error, life] {
      auto still = weak.lock();
      if (still && !(*still)->finished_ && (*still)->life_ == life)
        (*still)->shadow_failed(shadow, error);
    });
  };
  shadows_->follow(std::move(*parts));
}

void StagePeer::Impl::shadow_failed(const Seat& shadow, const Error& error) {
  log(LogLevel::kWarn, "{} follows stage {} no more: {}", to_string(seat_), shadow.stage.value,
      error.what);
  shadows_->drop(shadow.stage);
  wire::Goodbye goodbye;
  *goodbye.mutable_seat() = to_wire(shadow);
  goodbye.set_reason(error.what);
  if (coordinator_) coordinator_->notify(make_frame(MessageKind::kGoodbye, goodbye));
}

void StagePeer::Impl::on_fenced(const wire::Fenced& fenced) {
  if (fenced.takes_stage())
    heritage_ = shadows_->take(StageId{static_cast<std::uint16_t>(fenced.stage())});
  rejoin("fenced: " + fenced.reason(), fenced.keeps());
}

void StagePeer::Impl::on_coordinator(Frame frame) {
  if (kind_of(frame) == MessageKind::kShutdown) {
    auto shutdown = parse<wire::Shutdown>(frame);
    return finish(shutdown ? static_cast<int>(shutdown->exit_code()) : 1,
                  shutdown ? shutdown->reason() : "the coordinator ended the run");
  }
  coordinator_heard_ = runtime_.now();
  if (kind_of(frame) == MessageKind::kHeartbeatAck) return;
  if (finished_ || seatless_) return;
  if (kind_of(frame) == MessageKind::kFenced) {
    auto fenced = parse<wire::Fenced>(frame);
    return fenced ? on_fenced(*fenced) : rejoin("fenced: " + fenced.error().what);
  }
  if (inherits_) {
    if (early_.size() >= kEarlyFramesMax)
      return finish(1, "too much to do before it has its stage");
    early_.push_back(frame);
  }
  if (kind_of(frame) == MessageKind::kPeerLost) {
    auto lost = parse<wire::PeerLost>(frame);
    if (!lost) return finish(1, lost.error().what);
    links_->fence(from_wire(lost->seat()));
    if (stage_) stage_->on_peer_lost(from_wire(lost->seat()));
    shadows_->on_peer_lost(from_wire(lost->seat()));
    return;
  }
  if (!stage_) return;
  if (kind_of(frame) == MessageKind::kFollow) {
    auto follow = parse<wire::Follow>(frame);
    return follow ? on_follow(*follow) : finish(1, follow.error().what);
  }
  if (kind_of(frame) == MessageKind::kToShadow) {
    auto message = parse<wire::ToShadow>(frame);
    if (!message) return finish(1, message.error().what);
    if (auto heard = shadows_->on_coordinator(*message); !heard)
      shadow_failed(
          {seat_.peer, StageId{static_cast<std::uint16_t>(message->stage())}, seat_.incarnation},
          heard.error());
    return;
  }
  if (kind_of(frame) == MessageKind::kResume) {
    auto resume = parse<wire::Resume>(frame);
    if (!resume) return finish(1, resume.error().what);
    for (const wire::Seat& lost : resume->lost()) {
      links_->fence(from_wire(lost));
      stage_->on_peer_lost(from_wire(lost));
    }
    shadows_->drop_all();
  }
  if (auto handled = stage_->on_coordinator(frame); !handled)
    finish(1, fmt::format("{} from the coordinator does not fit: {}", to_string(kind_of(frame)),
                          handled.error().what));
}

void StagePeer::Impl::on_peer(const Seat& from, Frame frame) {
  if (!stage_ || finished_) return;
  const MessageKind kind = kind_of(frame);
  const Result<bool> taken = shadows_->on_peer(from, frame);
  if (taken && *taken) return;
  const Result<void> handled =
      taken ? stage_->on_peer(from, std::move(frame)) : std::unexpected(taken.error());
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

void StagePeer::Impl::drain(Duration notice) {
  if (finished_) return;
  if (!adrift_ && (!coordinator_ || seat_.peer.value == 0))
    return finish(0, "left before it had a seat");
  draining_ = true;
  wire::Leave leave;
  *leave.mutable_seat() = to_wire(seat_);
  if (coordinator_) coordinator_->notify(make_frame(MessageKind::kLeave, leave));
  runtime_.call_after(notice, [weak = weak()] {
    if (auto self = weak.lock()) (*self)->finish(0, kLeftEarly);
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
  runtime_.call_after(knobs().goodbye_time, [weak = weak(), exit_code, sentence] {
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
