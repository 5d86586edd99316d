// What coordinator and peers say, handed to the stage or the shadow that it concerns.
#include "pipeline/stage/stage_peer.h"

#include <utility>

#include "base/log.h"
#include "base/marks.h"
#include "engine/metrics/render.h"
#include "pipeline/protocol/knobs.h"
#include "pipeline/stage/common/piece_reply.h"
#include "pipeline/stage/life/stage_peer_impl.h"

namespace swarmline {

using enum PeerState;

StagePeer::Impl::Impl(Runtime& runtime, Network& network, Device& device, StagePeerOptions options,
                      std::function<void(PeerOutcome)> on_finished)
    : runtime_(runtime),
      device_(device),
      queue_(device),
      options_(std::move(options)),
      on_finished_(std::move(on_finished)),
      links_(runtime, network, knobs().connect_timeout,
             {.on_frame = [this](const Seat& from, const Frame& frame) { on_peer(from, frame); },
              .on_lost =
                  [this](const Seat& peer, const Error& error) {
                    // What it held is nobody's any more: nothing is asked or sent again.
                    if (!stage_ || !life_.has_seat()) return;
                    stage_->on_link_lost(peer, error);
                    shadows_.on_link_lost(peer, error);
                  },
              .on_arriving =
                  [this](const Seat& from, const Arrival& arrival) {
                    if (stage_ && !life_.finished()) stage_->on_arriving(from, arrival);
                  },
              .on_replaced =
                  [this](const Seat& from) {
                    if (stage_) stage_->on_link_replaced(from);
                  },
              .on_news =
                  [this](const Seat& peer, LinkNews news) {
                    if (stage_ && life_.has_seat()) stage_->on_link_news(peer, news);
                  },
              .ask_for_call = [this](const Seat& beyond) { return ask_for_call(beyond); },
              .on_call_failed = [this](const Seat& beyond) { say_out_of_reach(beyond); }},
             options_.bulk),
      link_(runtime, network,
            {.hello = [this] { return hello(); },
             .on_welcome =
                 [this](const wire::Welcome& welcome, bool same_run) {
                   on_welcome(offer_of(welcome, link_.sealed()), same_run);
                 },
             .on_data_wanted = [this](const DataManifest& manifest) { on_data_wanted(manifest); },
             .on_message = [this](const Frame& frame) { on_coordinator(frame); },
             .on_closed = [this](const Error& error) { on_coordinator_closed(error); },
             .on_end = [this](int exit_code, const std::string& why) { finish(exit_code, why); },
             .heartbeat = [this] { return heartbeat(); },
             .on_certificate = options_.on_certificate}),
      shadows_(runtime, queue_, links_) {}

// ---- The coordinator ----------------------------------------------------------------------------

void StagePeer::Impl::on_coordinator(const Frame& frame) {
  if (kind_of(frame) == MessageKind::kShutdown) {
    auto shutdown = parse<wire::Shutdown>(frame);
    return finish(shutdown ? static_cast<int>(shutdown->exit_code()) : 1,
                  shutdown ? shutdown->reason() : "the coordinator ended the run");
  }
  if (!life_.has_seat()) return;
  if (kind_of(frame) == MessageKind::kFenced) {
    auto fenced = parse<wire::Fenced>(frame);
    return fenced ? on_fenced(*fenced) : rejoin("fenced: " + fenced.error().what);
  }
  if (life_.is(kInheriting)) {
    if (early_.size() >= kEarlyFramesMax)
      return finish(1, "too much to do before it has its stage");
    early_.push_back(frame);
  }
  if (kind_of(frame) == MessageKind::kPeerLost) {
    auto lost = parse<wire::PeerLost>(frame);
    return lost ? on_peer_lost(from_wire(lost->seat())) : finish(1, lost.error().what);
  }
  if (kind_of(frame) == MessageKind::kCall || kind_of(frame) == MessageKind::kOutOfReach ||
      kind_of(frame) == MessageKind::kMeet)
    return on_link_news(frame);
  if (stage_) on_stage_message(frame);
}

void StagePeer::Impl::on_peer_lost(const Seat& lost) {
  links_.fence(lost);
  if (stage_) stage_->on_peer_lost(lost);
  shadows_.on_peer_lost(lost);
}

// ---- Links that the other end dials -------------------------------------------------------------

bool StagePeer::Impl::ask_for_call(const Seat& beyond) {
  if (!life_.has_seat() || life_.is(kAdrift) || !link_.connected()) return false;
  wire::CallMe call;
  *call.mutable_seat() = to_wire(seat_);
  *call.mutable_beyond() = to_wire(beyond);
  link_.notify(make_frame(MessageKind::kCallMe, call));
  return true;
}

void StagePeer::Impl::say_out_of_reach(const Seat& beyond) {
  wire::OutOfReach message;
  *message.mutable_seat() = to_wire(seat_);
  *message.mutable_beyond() = to_wire(beyond);
  link_.notify(make_frame(MessageKind::kOutOfReach, message));
}

void StagePeer::Impl::on_link_news(const Frame& frame) {
  if (kind_of(frame) == MessageKind::kCall) {
    const auto call = parse<wire::Call>(frame);
    return call ? links_.call(from_wire(call->to()), call->address())
                : finish(1, call.error().what);
  }
  if (kind_of(frame) == MessageKind::kMeet) {
    const auto meet = parse<wire::Meet>(frame);
    const auto relay = parse_address(meet ? meet->relay() : "");
    if (!relay) return finish(1, meet ? relay.error().what : meet.error().what);
    return links_.meet(from_wire(meet->to()),
                       {.relay = *relay, .ticket = meet->ticket(), .dials = meet->dials()});
  }
  const auto message = parse<wire::OutOfReach>(frame);
  message ? links_.nobody_calls(from_wire(message->beyond())) : finish(1, message.error().what);
}

// ---- What the stage hears -----------------------------------------------------------------------

void StagePeer::Impl::on_stage_message(const Frame& frame) {
  switch (kind_of(frame)) {
    case MessageKind::kFollow: {
      auto follow = parse<wire::Follow>(frame);
      return follow ? on_follow(*follow) : finish(1, follow.error().what);
    }
    case MessageKind::kResume: {
      auto resume = parse<wire::Resume>(frame);
      if (!resume) return finish(1, resume.error().what);
      on_resume(*resume);
      break;
    }
    default:
      break;
  }
  hand_to_stage(frame);
}

// What says that a state or an averaging gets on, however long it takes.
void StagePeer::Impl::count_moved(const Frame& frame) {
  const MessageKind kind = kind_of(frame);
  if (kind == MessageKind::kPiece || kind == MessageKind::kReduceChunk)
    moved_bytes_ += frame.received_payload().size();
}

void StagePeer::Impl::hand_to_stage(const Frame& frame) {
  count_moved(frame);
  const auto to = addressee(frame);
  if (!to) return finish(1, to.error().what);
  const Seat name = to->value_or(seat_);
  SeatedStage* const stage = stage_of(name);
  if (!stage) return;
  const Result<void> handled = stage->on_coordinator(frame);
  if (handled) return say_idle();
  if (name != seat_) return shadow_failed(name, handled.error());
  finish(1, fmt::format("{} from the coordinator does not fit: {}", to_string(kind_of(frame)),
                        handled.error().what));
}

SeatedStage* StagePeer::Impl::stage_of(const Seat& name) const {
  return name == seat_ ? stage_.get() : shadows_.find(name);
}

void StagePeer::Impl::on_resume(const wire::Resume& resume) {
  for (const wire::Seat& lost : resume.lost()) {
    links_.fence(from_wire(lost));
    stage_->on_peer_lost(from_wire(lost));
  }
  shadows_.drop_all();
}

void StagePeer::Impl::connect_parts(SeatedStageParts& parts) {
  parts.part_folder = options_.part_folder;
  parts.fabric = options_.fabric;
  parts.notify_coordinator = guard_.wrap([this](Frame frame) { link_.notify(std::move(frame)); });
  parts.call_coordinator = guard_.wrap([this](Frame frame, RpcChannel::Reply reply) {
    link_.call(std::move(frame), std::move(reply));
  });
}

wire::Heartbeat StagePeer::Impl::heartbeat() const {
  wire::Heartbeat beat;
  *beat.mutable_seat() = to_wire(seat_);
  beat.set_in_flight(stage_ ? stage_->in_flight() : 0);
  beat.set_busy_ns(static_cast<std::uint64_t>(device_.busy_total().count()));
  beat.set_jobs_done(queue_.finished());
  beat.set_jobs_waiting(static_cast<std::uint32_t>(queue_.unfinished()));
  beat.set_moved_bytes(moved_bytes_);
  beat.set_relayed_links(links_.relayed_links());
  beat.set_relayed_bytes(links_.relayed_bytes_sent());
  if (const auto progress = stage_ ? stage_->data_progress() : std::nullopt)
    *beat.mutable_data() = *progress;
  return beat;
}

// ---- Shadows ------------------------------------------------------------------------------------

void StagePeer::Impl::on_follow(const wire::Follow& follow) {
  const StageId stage{static_cast<std::uint16_t>(follow.stage())};
  if (follow.drop()) return shadows_.drop(stage);
  // As a joiner of that stage would be welcomed.
  SeatOffer offer = offer_;
  offer.seat = {seat_.peer, stage, seat_.incarnation};
  offer.joining = true;
  auto parts = parts_of(offer, options_.machine);
  if (!parts || stage == seat_.stage)
    return shadow_failed(
        offer.seat, parts ? Error{ErrorCode::kCorrupt, "it serves that stage"} : parts.error());
  parts->shadow = true;
  connect_parts(*parts);
  parts->fail = guard_.wrap([this, shadow = offer.seat, life = life_.life()](const Error& error) {
    runtime_.post(guard_.wrap([this, shadow, error, life] {
      if (!life_.finished() && life_.life() == life) shadow_failed(shadow, error);
    }));
  });
  shadows_.follow(std::move(*parts));
}

void StagePeer::Impl::shadow_failed(const Seat& shadow, const Error& error) {
  SWARMLINE_MARK("peer.shadow_failed");
  log(LogLevel::kWarn, "{} follows stage {} no more: {}", to_string(seat_), shadow.stage.value,
      error.what);
  shadows_.drop(shadow.stage);
  wire::Goodbye goodbye;
  *goodbye.mutable_seat() = to_wire(shadow);
  goodbye.set_reason(error.what);
  link_.notify(make_frame(MessageKind::kGoodbye, goodbye));
}

// ---- Peers --------------------------------------------------------------------------------------

void StagePeer::Impl::on_peer(const Seat& from, const Frame& frame) {
  if (!stage_ || life_.finished()) return;
  const Result<void> handled = hand_to_stage(from, frame);
  if (handled) return;
  metrics_.counter("swarmline_bad_frames_total", {{"kind", std::string(to_string(kind_of(frame)))}})
      .add();
  links_.disconnect(from, handled.error());
}

// Whoever asks a stage that has ended asks somebody else.
Result<void> StagePeer::Impl::hand_to_stage(const Seat& from, const Frame& frame) {
  count_moved(frame);
  const auto to = addressee(frame);
  if (!to) return std::unexpected(to.error());
  if (SeatedStage* const stage = stage_of(to->value_or(seat_))) return stage->on_peer(from, frame);
  if (kind_of(frame) != MessageKind::kPieceRequest) return {};
  SWARMLINE_MARK("peer.asked_of_a_stage_that_has_ended");
  const auto request = parse<wire::PieceRequest>(frame);
  if (!request) return std::unexpected(request.error());
  links_.send(from, piece_reply(*request, {}));
  return {};
}

void StagePeer::Impl::log_metrics() {
  metrics_.gauge("swarmline_rejected_links").set(static_cast<double>(links_.rejected_links()));
  metrics_.gauge("swarmline_link_bytes_sent").set(static_cast<double>(links_.bytes_sent()));
  metrics_.gauge("swarmline_relayed_bytes_sent")
      .set(static_cast<double>(links_.relayed_bytes_sent()));
  metrics_.gauge("swarmline_device_busy_seconds").set(to_seconds(device_.busy_total()));
  log(LogLevel::kDebug, "metrics {}", to_json_line(metrics_.snapshot()));
}

// ---- StagePeer ----------------------------------------------------------------------------------

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
void StagePeer::tell_risk() {
  impl_->tell_risk();
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
void StagePeer::check_invariants() const {
  impl_->check_invariants();
}

// ---- For the simulator's oracles ----

std::vector<HeldState> StagePeer::Impl::held_states() const {
  std::vector<HeldState> held;
  if (life_.leaving() || life_.finished()) return held;  // what it has goes with it
  if (stage_ && stage_->serves() && !stage_->serves_early())
    held.push_back({.stage = stage_->stage(), .era = offer_.era, .version = stage_->committed()});
  if (kept_)
    held.push_back({.how = HeldState::How::kKept,
                    .stage = kept_->stage,
                    .era = kept_->era,
                    .version = kept_->version});
  for (const SeatedStage* shadow : shadows_.list())
    if (shadow->has_all_in_use())
      held.push_back({.how = HeldState::How::kShadow,
                      .stage = shadow->stage(),
                      .era = offer_.era,
                      .version = shadow->committed()});
  return held;
}

std::set<MicrobatchId> StagePeer::Impl::tries() const {
  std::set<MicrobatchId> all;
  if (stage_) stage_->list_tries(all);
  return all;
}

std::vector<NamedSize> StagePeer::Impl::sizes() const {
  std::vector<NamedSize> all{{"peer.early_frames", early_.size(), kEarlyFramesMax},
                             {"peer.links", links_.count(), 2 * std::uint64_t{Limits::peers_max}},
                             {"peer.addresses", links_.addresses(), Limits::peers_max},
                             {"peer.fences", links_.fences(), Limits::peers_max}};
  if (stage_) stage_->list_sizes(all);
  return all;
}

std::vector<HeldState> StagePeer::held_states() const {
  return impl_->held_states();
}
std::set<MicrobatchId> StagePeer::tries() const {
  return impl_->tries();
}
std::vector<NamedSize> StagePeer::sizes() const {
  return impl_->sizes();
}

}  // namespace swarmline
