// From seat to seat: how a peer gets one, keeps it without a coordinator, loses it, and ends.
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/marks.h"
#include "pipeline/protocol/data_messages.h"
#include "pipeline/protocol/knobs.h"
#include "pipeline/protocol/protocol_version.h"
#include "pipeline/stage/common/bulk_policy.h"
#include "pipeline/stage/life/stage_peer_impl.h"

namespace swarmline {

using enum PeerState;

namespace {
constexpr const char* kLeftEarly = "left before all it held was handed in";

constexpr int kRefused = 3;

int exit_code_of(const Error& error) {
  return error.code == ErrorCode::kUserMistake ? 2 : 1;
}
}  // namespace

// ---- Seeking ------------------------------------------------------------------------------------

void StagePeer::Impl::start() {
  auto listen = parse_address(options_.machine.listen);
  if (!listen) return finish(2, listen.error().what);
  auto bound = links_.listen(*listen);
  if (!bound) return finish(2, bound.error().what);
  link_.add_address(options_.coordinator);
  for (const Address& address : options_.standby) link_.add_address(address);
  advertised_ = options_.machine.advertise.empty() ? to_string(*bound) : options_.machine.advertise;
  link_.set_patience(from_seconds(options_.machine.join_patience_seconds));
  link_.search("");
  link_.connect();
}

wire::Hello StagePeer::Impl::hello() const {
  wire::Hello hello;
  hello.set_protocol(kProtocolVersion);
  hello.set_name(options_.name);
  hello.set_address(advertised_);
  hello.set_device(device_.name());
  hello.set_memory_bytes(options_.machine.memory_bytes);
  hello.set_shadow_memory_bytes(options_.machine.shadow_memory_bytes);
  hello.set_zone(options_.machine.zone);
  hello.set_price(options_.machine.price);
  hello.set_egress_price(options_.machine.egress_price);
  hello.set_bandwidth(options_.machine.bandwidth);
  hello.set_host(options_.host);
  if (!options_.gpu.uuid.empty()) {
    hello.mutable_gpu()->set_uuid(options_.gpu.uuid);
    hello.mutable_gpu()->set_nccl(options_.gpu.nccl);
    hello.mutable_gpu()->set_ipc(options_.gpu.ipc);
  }
  if (seat_.peer.value != 0) *hello.mutable_previous() = to_wire(seat_);
  hello.set_seat_proof(seat_proof_);
  if (heritage_) {
    hello.mutable_followed()->set_stage(heritage_->stage().value);
    hello.mutable_followed()->set_version(heritage_->committed().value);
  }
  if (kept_) {
    hello.mutable_kept()->set_stage(kept_->stage.value);
    hello.mutable_kept()->set_version(kept_->version.value);
  } else if (life_.is(kAdrift)) {  // if its seat is given up it will keep that
    hello.mutable_kept()->set_stage(seat_.stage.value);
    hello.mutable_kept()->set_version(stage_->committed().value);
  }
  if (life_.is(kAdrift)) *hello.mutable_holdings() = stage_->holdings();
  if (!data_.fingerprint.empty()) *hello.mutable_data() = to_wire(data_);
  return hello;
}

// It gives no seat, nor back the one that it had, before it knows.
void StagePeer::Impl::on_data_wanted(const DataManifest& manifest) {
  if (life_.leaving()) return finish(0, kLeftEarly);
  if (data_.fingerprint == manifest.fingerprint())
    return finish(1, "the coordinator asks twice what this machine has of the run's data");
  link_.drop();
  if (!life_.is(kAdrift)) return compare(manifest);
  end_seat();
  drop_stage(false, [this, manifest] { compare(manifest); });
}

void StagePeer::Impl::compare(const DataManifest& manifest) {
  SWARMLINE_MARK("peer.compares_its_data");
  auto held = std::make_shared<HeldData>(HeldData{.fingerprint = manifest.fingerprint()});
  auto pieces = std::make_shared<const DataPieces>(manifest);
  StageJob job;
  job.job.body = [compare = options_.compare_data, manifest, held]() -> Result<void> {
    if (compare) *held = compare(manifest);
    return {};
  };
  job.done = guard_.wrap([this, held, pieces](const JobReport&) {
    if (life_.finished()) return;
    data_ = std::move(*held);
    data_pieces_ = pieces;
    if (data_.fetches)
      log(LogLevel::kInfo, "this machine fetches what it reads of the run's data: {}", data_.lacks);
    else if (!data_.lacks.empty())
      log(LogLevel::kWarn,
          "this machine lacks the run's data, and serves no stage that reads it: {}", data_.lacks);
    link_.search("");
    link_.connect();
  });
  queue_.submit(std::move(job));
}

void StagePeer::Impl::on_welcome(const SeatOffer& offer, bool same_run) {
  const bool adrift = life_.is(kAdrift);
  if (adrift && same_run && offer.resumed && offer.seat == seat_) return resumed(offer);
  if (!same_run) kept_.reset();
  adrift ? seat_given_up(offer, same_run) : take_offer(offer);
}

LinkIdentity StagePeer::Impl::identity_of(const SeatOffer& offer) const {
  return {.term = offer.term,
          .era = offer.era,
          .run_id = offer.run_id,
          .link_key = offer.link_key,
          .self = seat_};
}

void StagePeer::Impl::take_offer(const SeatOffer& offer) {
  seat_ = offer.seat;
  offer_ = offer;
  seat_proof_ = offer.seat_proof;
  const bool inherits = offer.keeps_followed && heritage_ && heritage_->stage() == seat_.stage;
  life_.become(inherits ? kInheriting : kBuilding);
  links_.set_identity(identity_of(offer));
  link_.begin_heartbeats(offer.heartbeat);
  if (at_risk_) say_leave(true);
  auto parsed = parts_of(offer, options_.machine);
  if (!parsed) return finish(exit_code_of(parsed.error()), parsed.error().what);
  auto parts = std::make_shared<SeatedStageParts>(std::move(*parsed));
  link_.set_patience(from_seconds(parts->config.net.coordinator_patience_seconds));
  if (options_.bulk) options_.bulk->allow(bulk_policy_of(parts->config));
  if (inherits) parts->heritage = heritage_;
  heritage_.reset();
  if (kept_ && (!parts->joining || kept_->era != parts->era)) kept_.reset();
  if (kept_ && kept_->stage == seat_.stage) parts->kept = std::exchange(kept_, nullptr);
  early_.clear();
  StageJob job;
  job.job.body = [this, parts] { return build_stage(options_, *parts); };
  job.done = guard_.wrap([this, parts, life = life_.life()](const JobReport& report) {
    if (life_.finished() || life_.life() != life) return;
    // What this machine lacks, the run does without.
    if (!report.result) return finish(kRefused, report.result.error().what);
    take_seat(std::move(*parts));
  });
  queue_.submit(std::move(job));
}

void StagePeer::Impl::take_seat(SeatedStageParts parts) {
  log(LogLevel::kInfo, "seated at stage {}: layers {} to {}, {} parameters", seat_.stage.value,
      parts.stage.first_layer, parts.stage.last_layer - 1, parts.model->layout().elements);
  parts.metrics = &metrics_;
  parts.data_folder = options_.data_folder;
  parts.data_pieces = data_pieces_;
  parts.serves_data = data_.serves;
  parts.fetches_data = data_.fetches;
  connect_parts(parts);
  if (kept_) keep_until_ready(parts);
  parts.fail = guard_.wrap([this](const Error& error) {
    // Not inside the handler that failed: it still stands on what finishing tears down.
    runtime_.post(guard_.wrap([this, error] { finish(exit_code_of(error), error.what); }));
  });
  stage_ = std::make_unique<SeatedStage>(runtime_, queue_, links_, std::move(parts));
  const bool inherited = life_.is(kInheriting);
  life_.become(kSeated);
  stage_->begin();
  if (!inherited) return;
  SWARMLINE_MARK("peer.took_over_a_followed_stage");
  for (const Frame& frame : std::exchange(early_, {})) on_coordinator(frame);
}

// Its last stage may lose everybody else meanwhile: what it kept goes once it holds the next state.
void StagePeer::Impl::keep_until_ready(SeatedStageParts& parts) {
  parts.notify_coordinator =
      guard_.wrap([this, notify = std::move(parts.notify_coordinator)](Frame frame) {
        if (kind_of(frame) == MessageKind::kReady) kept_.reset();
        notify(std::move(frame));
      });
}

// ---- Without a coordinator ----------------------------------------------------------------------

void StagePeer::Impl::on_coordinator_closed(const Error& error) {
  switch (life_.state()) {
    case kDropping:  // whoever waits for that connects
    case kFinished:
      return;
    case kSeeking:
    case kAdrift:
      return link_.try_next(error);
    default: {
      link_.leave_address();
      const std::string why = "lost the coordinator: " + error.what;
      return stage_ && stage_->may_have_its_seat() ? go_adrift(why) : rejoin(why);
    }
  }
}

// The coordinator is gone, and this peer has a seat, or may have been given one just now: it keeps
// what it holds for the next one.
void StagePeer::Impl::go_adrift(const std::string& why) {
  SWARMLINE_MARK("peer.adrift");
  log(LogLevel::kWarn, "{}: {}; going on with what it holds", to_string(seat_), why);
  life_.become(kAdrift);
  kept_.reset();  // of a stage before
  link_.search(why);
  stage_->on_coordinator_lost();
  link_.connect_again();
}

void StagePeer::Impl::resumed(const SeatOffer& offer) {
  SWARMLINE_MARK("peer.seat_kept_under_another_coordinator");
  log(LogLevel::kInfo, "{}: a coordinator is there again (term {})", to_string(seat_),
      offer.term.value);
  life_.become(kSeated);
  links_.set_identity(identity_of(offer));
  link_.beat_as_usual();
  if (life_.leaving()) say_leave();
  if (at_risk_) say_leave(true);
}

void StagePeer::Impl::seat_given_up(const SeatOffer& offer, bool same_run) {
  SWARMLINE_MARK("peer.seat_given_up_while_adrift");
  log(LogLevel::kWarn, "{}: the coordinator gave its seat up", to_string(seat_));
  if (life_.leaving()) return finish(0, kLeftEarly);
  end_seat();
  drop_stage(same_run && offer.seat.stage == seat_.stage,
             [this, offer, connection = link_.connection()] {
               link_.connection() == connection ? on_welcome(offer, true) : link_.connect_again();
             });
}

// ---- The seat is over ---------------------------------------------------------------------------

void StagePeer::Impl::on_fenced(const wire::Fenced& fenced) {
  if (fenced.takes_stage())
    heritage_ = shadows_.take(StageId{static_cast<std::uint16_t>(fenced.stage())});
  rejoin("fenced: " + fenced.reason(), fenced.keeps());
}

// Whatever it holds is nobody's any more: it starts over, as a newcomer.
void StagePeer::Impl::rejoin(const std::string& why, bool keeps) {
  if (!life_.has_seat()) return;
  SWARMLINE_MARK("peer.seat_lost");
  log(LogLevel::kWarn, "{}: {}; asking for a new seat", to_string(seat_), why);
  if (life_.leaving()) return finish(0, kLeftEarly);
  end_seat();
  link_.search(why);
  link_.drop();
  drop_stage(keeps, [this] { link_.connect(); });
}

void StagePeer::Impl::end_seat() {
  life_.become(kDropping);
  early_.clear();  // they were for the stage that it was to inherit
  link_.end_heartbeats();
}

void StagePeer::Impl::drop_stage(bool keeps, std::function<void()> then) {
  links_.reset();
  // Not inside the handler that heard of it, and not before the device has let go of the model.
  runtime_.post(guard_.wrap([this, keeps, then = std::move(then)] {
    queue_.clear(guard_.wrap([this, keeps, then] {
      if (life_.finished()) return;
      shadows_.clear();  // the copy may take their room
      keeps&& has_room_to_keep() ? keep_state(then) : let_go(then);
    }));
  }));
}

bool StagePeer::Impl::has_room_to_keep() const {
  const std::uint64_t bound = options_.machine.shadow_memory_bytes;
  return stage_ && stage_->has_state() && (bound == 0 || stage_->state_bytes() <= bound);
}

void StagePeer::Impl::keep_state(std::function<void()> then) {
  SWARMLINE_MARK("peer.state_kept");
  auto kept = std::make_shared<std::shared_ptr<KeptState>>();
  StageJob job;
  job.job.body = [stage = stage_.get(), kept]() -> Result<void> {
    auto made = stage->keep();
    if (!made) return std::unexpected(std::move(made).error());
    *kept = std::move(*made);
    return {};
  };
  job.done = guard_.wrap([this, kept, then = std::move(then)](const JobReport& report) {
    if (life_.finished()) return;
    if (!report.result)
      log(LogLevel::kWarn, "{}: its state is not kept: {}", to_string(seat_),
          report.result.error().what);
    kept_ = std::move(*kept);
    // Its timers went on meanwhile: what they have put on the device stands on it.
    queue_.clear(guard_.wrap([this, then] {
      if (!life_.finished()) let_go(then);
    }));
  });
  queue_.submit(std::move(job));
}

void StagePeer::Impl::let_go(const std::function<void()>& then) {
  stage_.reset();
  life_.become(kSeeking);
  then();
}

// ---- The end ------------------------------------------------------------------------------------

void StagePeer::Impl::drain(Duration notice) {
  if (life_.finished()) return;
  if (!life_.has_seat()) return finish(0, "left while it had no seat");
  life_.leave();
  leaves_at_ = runtime_.now() + notice;
  say_leave();
  runtime_.call_after(notice, guard_.wrap([this] { finish(0, kLeftEarly); }));
}

// Its seat ends once it is known to hold nothing: a step or more may pass to the next heartbeat.
void StagePeer::Impl::say_idle() {
  if (life_.finished() || !life_.leaving() || !stage_) return;
  const bool idle = stage_->in_flight() == 0;
  if (idle && !said_idle_) link_.begin_heartbeats({});
  said_idle_ = idle;
}

void StagePeer::Impl::tell_risk() {
  if (life_.finished() || std::exchange(at_risk_, true) || !life_.has_seat()) return;
  say_leave(true);
}

void StagePeer::Impl::say_leave(bool only_at_risk) {
  wire::Leave leave;
  *leave.mutable_seat() = to_wire(seat_);
  leave.set_at_risk(only_at_risk);
  if (!only_at_risk && leaves_at_)
    leave.set_seconds(to_seconds(std::max(Duration{}, *leaves_at_ - runtime_.now())));
  link_.notify(make_frame(MessageKind::kLeave, leave));
  link_.beat_as_usual();
}

void StagePeer::Impl::finish(int exit_code, const std::string& sentence) {
  if (life_.finished()) return;
  life_.become(kFinished);
  link_.finish();
  wire::Goodbye goodbye;
  *goodbye.mutable_seat() = to_wire(seat_);
  goodbye.set_reason(exit_code == 0 ? "" : sentence);
  link_.notify(make_frame(MessageKind::kGoodbye, goodbye));
  // It goes on sending for as long as its last word may need.
  runtime_.call_after(knobs().goodbye_time, guard_.wrap([this, exit_code, sentence] {
    queue_.stop();
    if (stage_) stage_->stop();
    device_.stop();
    log_metrics();
    links_.close_all();
    link_.close();
    on_finished_({exit_code, sentence});
  }));
}

void StagePeer::Impl::check_invariants() const {
  link_.check_invariants();
  SWARMLINE_CHECK(!life_.is(kSeeking) || (!stage_ && shadows_.empty()));
  SWARMLINE_CHECK(!life_.making() || !stage_);
  SWARMLINE_CHECK(stage_ || !(life_.is(kSeated) || life_.is(kAdrift)));
  SWARMLINE_CHECK(early_.empty() || life_.is(kInheriting) || life_.finished());
  if (stage_ && life_.has_seat()) stage_->check_invariants();
  if (life_.has_seat()) shadows_.check_invariants();
}

}  // namespace swarmline
