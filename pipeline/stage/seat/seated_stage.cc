#include "pipeline/stage/seat/seated_stage.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "base/check.h"
#include "base/hash.h"
#include "base/log.h"
#include "pipeline/stage/state/checkpoint_upload.h"
#include "pipeline/wiring/static_wiring.h"
#include "pipeline/wiring/wiring_router.h"

namespace swarmline {

namespace {

std::uint32_t total_peers(const RunConfig& config) {
  return std::accumulate(config.pipeline.peers.begin(), config.pipeline.peers.end(), 0U);
}

// In a fixed order every source has its share of the step at once, so that leases go round.
std::uint32_t window_of(const RunConfig& config) {
  const std::uint32_t sources = config.pipeline.peers.front();
  const std::uint32_t share = (config.microbatches_per_step() + sources - 1) / sources;
  const bool fixed = config.pipeline.order != OrderKind::kFree && config.pipeline.in_flight == 0;
  return window_for(fixed ? share : config.pipeline.in_flight, total_peers(config), sources);
}

// A session's phases: two steps and as many evaluations, and those whose end is still on its way.
constexpr std::size_t kOpenPhasesMax = 8;

// Others' measurements; what can't be one counts as unknown.
Duration believable(double seconds) {
  constexpr double kSecondsMax = 3600;
  return seconds > 0 && seconds < kSecondsMax ? from_seconds(seconds) : Duration{};
}

template <typename Message>
Result<void> handle(const Frame& frame, SeatedStage* stage,
                    Result<void> (SeatedStage::*member)(const Message&)) {
  auto message = parse<Message>(frame);
  if (!message) return std::unexpected(message.error());
  return (stage->*member)(*message);
}

}  // namespace

SeatedStage::SeatedStage(Runtime& runtime, DeviceQueue& queue, PeerLinks& links,
                         SeatedStageParts parts)
    : config_(std::move(parts.config)),
      spec_(std::move(parts.spec)),
      model_(std::move(parts.model)),
      source_(std::move(parts.source)),
      state_(*model_, config_),
      groups_(parts.stage.stages, model_->layout().has_tied()),
      context_{.runtime = runtime,
               .queue = queue,
               .model = *model_,
               .state = state_,
               .links = links,
               .config = config_,
               .spec = spec_,
               .stage = parts.stage,
               .self = parts.self,
               .era = parts.era,
               .recompute = parts.recompute,
               .codecs = PhaseCodecs(config_),
               .notify_coordinator = std::move(parts.notify_coordinator),
               .call_coordinator = std::move(parts.call_coordinator),
               .metrics = parts.metrics,
               .fail = std::move(parts.fail)},
      contributions_(context_, Contributions::subtract_on_device(context_)),
      flow_(context_, phases_, contributions_,
            parts.wiring ? std::move(parts.wiring) : make_wiring(), parts.admit_bytes,
            [this] {
              window_.on_finished();
              want_leases();
            }),
      averager_([this](const Seat& to, Frame frame) { context_.links.send(to, std::move(frame)); },
                [this](const Seat& from, const Error& error) { on_bad_chunk(from, error); }),
      averaging_codecs_(config_, model_->layout().bytes()),
      window_(window_of(config_)),
      begins_with_(parts.joining ? 0 : parts.version),
      following_(parts.joining),
      shadow_(parts.shadow),
      loaded_(!parts.joining && parts.version == 0),
      heritage_(std::move(parts.heritage)),
      kept_(std::move(parts.kept)),
      alive_(std::make_shared<SeatedStage*>(this)) {}

std::unique_ptr<Wiring> SeatedStage::make_wiring() const {
  if (config_.pipeline.wiring == "static")
    return std::make_unique<StaticWiring>(config_.wiring.in_flight_per_peer);
  WiringOptions options;
  options.alpha = config_.wiring.alpha;
  options.in_flight_max = config_.wiring.in_flight_per_peer;
  options.seed = config_.run.seed ^ context_.self.peer.value;
  return std::make_unique<WiringRouter>(options);
}

void SeatedStage::control(std::function<Result<void>()> body, std::function<void()> done) {
  StageJob job;
  job.job.kind = JobKind::kOther;
  job.job.body = std::move(body);
  std::weak_ptr<SeatedStage*> weak = alive_;
  job.done = [weak, done = std::move(done)](JobReport report) {
    auto self = weak.lock();
    if (!self) return;
    if (!report.result) return (*self)->context_.fail(report.result.error());
    done();
  };
  context_.queue.submit(std::move(job));
}

void SeatedStage::begin() {
  if (heritage_) return inherit();
  if (following_) return want_state();
  if (begins_with_ > 0) return fetch_saved(begins_with_);
  auto digest = std::make_shared<std::uint64_t>();
  control(
      [this, digest]() -> Result<void> {
        auto made = state_.digest();
        if (!made) return std::unexpected(std::move(made).error());
        *digest = *made;
        return {};
      },
      [this, digest] {
        say_ready(*digest);
        want_leases();
      });
}

void SeatedStage::want_leases() {
  if (!source_ || window_.total_wanted() <= wanted_) return;
  wanted_ = window_.total_wanted();
  wire::WantLeases want;
  *want.mutable_seat() = to_wire(context_.self);
  want.set_total(wanted_);
  context_.notify_coordinator(make_frame(MessageKind::kWantLeases, want));
}

Result<void> SeatedStage::on_coordinator(const Frame& frame) {
  switch (kind_of(frame)) {
    case MessageKind::kMembership:
      return handle<wire::Membership>(frame, this, &SeatedStage::on_membership);
    case MessageKind::kReportAck: {
      auto ack = parse<wire::ReportAck>(frame);
      if (!ack) return std::unexpected(ack.error());
      contributions_.on_ack(*ack);
      return {};
    }
    case MessageKind::kStallReport: {
      auto stall = parse<wire::StallReport>(frame);
      if (!stall) return std::unexpected(stall.error());
      flow_.on_stall(from_wire(stall->stalled()), from_wire(stall->id()));
      return {};
    }
    case MessageKind::kResume:
      return on_resume();
    case MessageKind::kPiece:
      return on_piece({}, frame);
    case MessageKind::kStateOffer:
      return handle<wire::StateOffer>(frame, this, &SeatedStage::on_offer);
    case MessageKind::kCommit:
      // Before it has a seat a joiner hears of nothing else, and can't wait until one is applied.
      if (following_ && inbox_.empty())
        return handle<wire::Commit>(frame, this, &SeatedStage::follow);
      [[fallthrough]];
    default:
      if (!busy()) return in_order(frame);
      if (inbox_.size() >= kInboxMax)
        return fail(ErrorCode::kCorrupt, "too much to do before a commit is applied");
      inbox_.push_back(frame);
      return {};
  }
}

void SeatedStage::drain_inbox() {
  while (!busy() && !inbox_.empty()) {
    const Frame frame = std::move(inbox_.front());
    inbox_.pop_front();
    if (auto handled = in_order(frame); !handled)
      return context_.fail(
          {handled.error().code, fmt::format("{} from the coordinator does not fit: {}",
                                             to_string(kind_of(frame)), handled.error().what)});
  }
}

Result<void> SeatedStage::in_order(const Frame& frame) {
  switch (kind_of(frame)) {
    case MessageKind::kOpenPhase:
      return handle<wire::OpenPhase>(frame, this, &SeatedStage::on_open);
    case MessageKind::kLeases:
      return handle<wire::Leases>(frame, this, &SeatedStage::on_leases);
    case MessageKind::kSeal:
      return handle<wire::Seal>(frame, this, &SeatedStage::on_seal);
    case MessageKind::kReopen:
      return handle<wire::Reopen>(frame, this, &SeatedStage::on_reopen);
    case MessageKind::kFreezeState:
      return handle<wire::FreezeState>(frame, this, &SeatedStage::on_freeze);
    case MessageKind::kFetchReduced:
      return handle<wire::FetchReduced>(frame, this, &SeatedStage::on_fetch);
    case MessageKind::kCommit:
      return handle<wire::Commit>(frame, this, &SeatedStage::on_commit);
    case MessageKind::kSaveStage:
      return handle<wire::SaveStage>(frame, this, &SeatedStage::on_save);
    case MessageKind::kRetirePhase: {
      auto retire = parse<wire::RetirePhase>(frame);
      if (!retire) return std::unexpected(retire.error());
      const Phase phase = from_wire(retire->phase());
      if (phase.kind != PhaseKind::kEval)
        return fail(ErrorCode::kCorrupt, "a step ends by its seal");
      phases_.retire(phase);
      flow_.drop(phase);
      contributions_.retire(phase);
      wire::BoundaryBytes unreported;
      std::uint64_t busy_ns = 0;
      flow_.take_account(phase, unreported, busy_ns);
      return {};
    }
    default:
      return fail(ErrorCode::kCorrupt, "a message that a coordinator does not send");
  }
}

Result<void> SeatedStage::on_peer(const Seat& from, Frame frame) {
  switch (kind_of(frame)) {
    case MessageKind::kReduceChunk:
      return averager_.on_chunk(from, frame);
    case MessageKind::kPieceRequest: {
      auto request = parse<wire::PieceRequest>(frame);
      if (!request) return std::unexpected(request.error());
      return on_piece_request(from, *request);
    }
    case MessageKind::kPiece:
      return on_piece(from, frame);
    default:
      return flow_.on_frame(from, frame);
  }
}

// It came before its round began: only now it is known not to fit.
void SeatedStage::on_bad_chunk(const Seat& from, const Error& error) {
  const Labels labels = {{"kind", std::string(to_string(MessageKind::kReduceChunk))}};
  if (context_.metrics) context_.metrics->counter("swarmline_bad_frames_total", labels).add();
  context_.links.disconnect(from, error);
}

void SeatedStage::on_link_lost(const Seat& peer, const Error& error) {
  log(LogLevel::kWarn, "lost the link to {}: {}", to_string(peer), error.what);
  flow_.on_link_lost(peer);
  // Chunks may be lost with it: whether it is the link or its end, the coordinator finds out.
  for (const RoundKey& key : averager_.waiting_for(peer)) {
    wire::RoundBroken broken;
    *broken.mutable_seat() = to_wire(context_.self);
    *broken.mutable_phase() = to_wire(key.phase);
    broken.set_group(key.group.value);
    broken.set_attempt(key.attempt.value);
    *broken.mutable_beyond() = to_wire(peer);
    context_.notify_coordinator(make_frame(MessageKind::kRoundBroken, broken));
  }
  if (state_fetch_) state_fetch_->pieces.on_link_lost(peer);
  pump_state();
  for (auto& [key, fetch] : fetches_) fetch.pieces.on_link_lost(peer);
  for (const auto& [key, fetch] : fetches_) pump_fetch(key);
}

void SeatedStage::on_peer_lost(const Seat& lost) {
  const auto over = [&](const auto& entry) { return is_over_with(entry.second, lost); };
  std::erase_if(mates_, over);
  flow_.on_peer_lost(lost);
  if (state_fetch_) state_fetch_->pieces.on_lost(lost);
  pump_state();
  for (auto& [key, fetch] : fetches_) {
    std::erase_if(fetch.named, [&](const Seat& seat) { return is_over_with(seat, lost); });
    fetch.pieces.on_lost(lost);
  }
  for (const auto& [key, fetch] : fetches_) pump_fetch(key);
}

Result<void> SeatedStage::on_membership(const wire::Membership& membership) {
  std::vector<Forwarder::Candidate> candidates;
  for (const wire::PeerInfo& info : membership.next()) {
    candidates.push_back({.seat = from_wire(info.seat()),
                          .prior = {.forward = believable(info.forward_seconds()),
                                    .backward = believable(info.backward_seconds())}});
    context_.links.set_address(candidates.back().seat, info.address());
  }
  flow_.set_candidates(candidates);
  mates_.clear();
  std::uint32_t rank = 0;
  for (const wire::PeerInfo& info : membership.mates()) {
    const Seat mate = from_wire(info.seat());
    context_.links.set_address(mate, info.address());
    mates_[mate.peer] = mate;
    rank += mate.peer < context_.self.peer ? 1 : 0;
  }
  flow_.set_share(rank, static_cast<std::uint32_t>(mates_.size()) + 1);
  for (auto& [key, fetch] : fetches_)
    if (!fetch.report)
      for (const auto& [peer, mate] : mates_) fetch.pieces.add_holder(mate);
  for (const auto& [key, fetch] : fetches_) pump_fetch(key);
  flow_.retry_seeking();
  return {};
}

// ---- Phases -------------------------------------------------------------------------------------

Result<void> SeatedStage::on_open(const wire::OpenPhase& open) {
  const Phase phase = from_wire(open.phase());
  const Version version{open.version()};
  const bool train = phase.kind == PhaseKind::kTrain;
  if (opened_before_.contains(phase)) return open_again(open);
  if (phases_.open_phases() >= kOpenPhasesMax || phases_.beyond_reach(phase) ||
      phases_.status(phase) == PhaseStatus::kOver || phases_.microbatches(phase) > 0 ||
      open.microbatches() == 0 || open.microbatches() > Limits::microbatches_per_step_max ||
      (train && open.microbatches() != config_.microbatches_per_step()))
    return fail(ErrorCode::kCorrupt, to_string(phase) + " can't be opened now");
  const bool here = version == committed_ ||
                    (config_.pipeline.delay == 1 && version.value + 1 == committed_.value);
  if (!here)
    return fail(ErrorCode::kIncompatible,
                fmt::format("{} needs version {}, this peer has {}", to_string(phase),
                            version.value, committed_.value));
  SWARMLINE_TRY(context_.codecs.open(phase, open));
  phases_.announce(phase, version, open.microbatches(), PhaseEpoch{open.opening()});
  if (train) contributions_.open(phase);
  if (open.sealed())  // frozen, with nothing in it
    contributions_.settle(phase, {}, [](const Result<std::vector<std::uint32_t>>&) {});
  control(
      [this, phase, version, train]() -> Result<void> {
        if (train) state_.begin(phase.step);
        return state_.use(version);  // ready before the first microbatch comes
      },
      [this, phase, sealed = open.sealed()] {
        if (!sealed) activate(phase);
      });
  if (std::exchange(following_, false)) want_leases();
  return {};
}

std::vector<Seat> SeatedStage::mates() const {
  std::vector<Seat> seats;
  for (const auto& [peer, mate] : mates_) seats.push_back(mate);
  return seats;
}

void SeatedStage::activate(const Phase& phase) {
  // Over, or about to be sealed, before the device came to it.
  if (phases_.microbatches(phase) == 0 || (sealing_ && sealing_phase_ == phase)) return;
  phases_.activate(phase);
  flow_.on_active(phase);
}

Result<void> SeatedStage::on_leases(const wire::Leases& leases) {
  if (!source_) return fail(ErrorCode::kCorrupt, "leases for a peer that is no source");
  const std::uint32_t rows = config_.batch.microbatch;
  const std::uint64_t count = std::uint64_t{rows} * spec_.sequence;
  leased_ += static_cast<std::uint64_t>(leases.leases_size());
  if (leased_ > wanted_) return fail(ErrorCode::kCorrupt, "more leases than were asked for");
  for (const wire::Lease& lease : leases.leases()) {
    const MicrobatchId id{from_wire(lease.phase()), lease.index()};
    if (phases_.status(id.phase) != PhaseStatus::kOver &&
        id.index >= phases_.microbatches(id.phase))
      return fail(ErrorCode::kCorrupt, "a lease of a microbatch that its phase does not have");
    if (phases_.status(id.phase, PhaseEpoch{lease.opening()}) == PhaseStatus::kOver ||
        flow_.knows({id, Attempt{lease.attempt()}})) {
      window_.on_finished();
      continue;
    }
    Buffer tokens(count * sizeof(std::int32_t));
    Buffer targets(count * sizeof(std::int32_t));
    auto read = source_->read(id, tokens.as<std::int32_t>(), targets.as<std::int32_t>());
    if (!read) {
      context_.fail(read.error());
      return {};
    }
    flow_.start_local({id, Attempt{lease.attempt()}}, PhaseEpoch{lease.opening()},
                      lease.stage_mask(), rows, SharedBytes(std::move(tokens)),
                      SharedBytes(std::move(targets)));
  }
  return {};
}

Result<void> SeatedStage::on_save(const wire::SaveStage& save) {
  if (save.version() != committed_.value)
    return fail(ErrorCode::kIncompatible,
                fmt::format("asked to save version {}, has {}", save.version(), committed_.value));
  auto copy = std::make_shared<Buffer>();
  const bool whole = config_.checkpoint.optimizer;
  control(
      [this, copy, whole]() -> Result<void> {
        auto made = whole ? state_.save() : Buffer::copy_of(state_.committed_parameters());
        if (!made) return std::unexpected(std::move(made).error());
        *copy = std::move(*made);
        return {};
      },
      [this, copy, whole, name = save.checkpoint()] {
        std::make_shared<CheckpointUpload>(
            context_.self, name, saved_state(config_, model_->layout(), whole), std::move(*copy),
            [weak = std::weak_ptr<SeatedStage*>(alive_)](auto body, auto done) {
              if (auto self = weak.lock()) (*self)->control(std::move(body), std::move(done));
            },
            context_.call_coordinator,
            [](Result<void> done) {
              if (!done)
                log(LogLevel::kError, "the checkpoint could not be sent: {}", done.error().what);
            })
            ->start();
      });
  return {};
}

}  // namespace swarmline
