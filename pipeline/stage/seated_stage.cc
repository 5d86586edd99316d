#include "pipeline/stage/seated_stage.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "engine/base/check.h"
#include "engine/base/hash.h"
#include "engine/base/log.h"
#include "pipeline/stage/checkpoint_upload.h"
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
      wiring_(parts.wiring ? std::move(parts.wiring) : make_wiring()),
      contributions_(context_,
                     [this](const TaskPtr& task, std::function<void()> done) {
                       flow_.subtract(task, std::move(done));
                     }),
      flow_(context_, phases_, contributions_, *wiring_, parts.admit_bytes,
            [this] {
              window_.on_finished();
              want_leases();
            }),
      averager_([this](const Seat& to, Frame frame) { context_.links.send(to, std::move(frame)); }),
      averaging_codecs_(config_, model_->layout().bytes()),
      window_(window_of(config_)),
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
  auto digest = std::make_shared<std::uint64_t>();
  control(
      [this, digest]() -> Result<void> {
        auto made = state_.digest();
        if (!made) return std::unexpected(std::move(made).error());
        *digest = *made;
        return {};
      },
      [this, digest] {
        wire::Ready ready;
        *ready.mutable_seat() = to_wire(context_.self);
        ready.set_version(committed_.value);
        ready.set_state_digest(*digest);
        context_.notify_coordinator(make_frame(MessageKind::kReady, ready));
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
    case MessageKind::kOpenPhase:
      return handle<wire::OpenPhase>(frame, this, &SeatedStage::on_open);
    case MessageKind::kLeases:
      return handle<wire::Leases>(frame, this, &SeatedStage::on_leases);
    case MessageKind::kSeal:
      return handle<wire::Seal>(frame, this, &SeatedStage::on_seal);
    case MessageKind::kCommit:
      return handle<wire::Commit>(frame, this, &SeatedStage::on_commit);
    case MessageKind::kSaveStage:
      return handle<wire::SaveStage>(frame, this, &SeatedStage::on_save);
    case MessageKind::kReportAck: {
      auto ack = parse<wire::ReportAck>(frame);
      if (!ack) return std::unexpected(ack.error());
      contributions_.on_ack(*ack);
      return {};
    }
    case MessageKind::kRetirePhase: {
      auto retire = parse<wire::RetirePhase>(frame);
      if (!retire) return std::unexpected(retire.error());
      const Phase phase = from_wire(retire->phase());
      if (phase.kind != PhaseKind::kEval)
        return fail(ErrorCode::kCorrupt, "a step ends by its seal");
      phases_.retire(phase);
      flow_.drop(phase);
      contributions_.retire(phase);
      flow_.take_boundary_bytes(phase);
      flow_.take_busy_ns(phase);
      return {};
    }
    case MessageKind::kStallReport: {
      auto stall = parse<wire::StallReport>(frame);
      if (!stall) return std::unexpected(stall.error());
      flow_.on_stall(from_wire(stall->stalled()), from_wire(stall->id()));
      return {};
    }
    default:
      return fail(ErrorCode::kCorrupt, "a message that a coordinator does not send");
  }
}

Result<void> SeatedStage::on_peer(const Seat& from, Frame frame) {
  if (kind_of(frame) == MessageKind::kReduceChunk) return averager_.on_chunk(from, frame);
  return flow_.on_frame(from, std::move(frame));
}

void SeatedStage::on_link_lost(const Seat& peer, const Error& error) {
  log(LogLevel::kWarn, "lost the link to {}: {}", to_string(peer), error.what);
  flow_.on_link_lost(peer);
  if (averager_.waits_for(peer))
    context_.fail(
        {ErrorCode::kPeerGone, fmt::format("lost the link to {} while averaging with it: {}",
                                           to_string(peer), error.what)});
}

Result<void> SeatedStage::on_membership(const wire::Membership& membership) {
  std::map<PeerId, Seat> next;
  std::vector<Seat> seats;
  for (const wire::PeerInfo& info : membership.next()) {
    const Seat seat = from_wire(info.seat());
    context_.links.set_address(seat, info.address());
    if (!wiring_->add(seat.peer, {.forward = believable(info.forward_seconds()),
                                  .backward = believable(info.backward_seconds())}))
      continue;
    next[seat.peer] = seat;
    seats.push_back(seat);
  }
  for (const auto& [peer, seat] : next_)
    if (!next.contains(peer)) wiring_->remove(peer);
  next_ = std::move(next);
  std::uint32_t rank = 0;
  for (const wire::PeerInfo& info : membership.mates()) {
    const Seat mate = from_wire(info.seat());
    context_.links.set_address(mate, info.address());
    rank += mate.peer < context_.self.peer ? 1 : 0;
  }
  flow_.set_share(rank, static_cast<std::uint32_t>(membership.mates_size()) + 1);
  flow_.set_next_seats(std::move(seats));
  return {};
}

// ---- Phases -------------------------------------------------------------------------------------

Result<void> SeatedStage::on_open(const wire::OpenPhase& open) {
  const Phase phase = from_wire(open.phase());
  const Version version{open.version()};
  const bool train = phase.kind == PhaseKind::kTrain;
  if (phases_.open_phases() >= kOpenPhasesMax || phases_.beyond_reach(phase) ||
      phases_.status(phase) == PhaseStatus::kOver || phases_.microbatches(phase) > 0 ||
      open.microbatches() == 0 || open.microbatches() > Limits::microbatches_per_step_max ||
      (train && open.microbatches() != config_.microbatches_per_step()))
    return fail(ErrorCode::kCorrupt, to_string(phase) + " can't be opened now");
  SWARMLINE_TRY(context_.codecs.open(phase, open));
  phases_.announce(phase, version, open.microbatches());
  if (train) contributions_.open(phase);
  // Until the accumulator of the phase before is sealed, nothing of this one may be added.
  if (sealing_)
    after_seal_.push_back([this, phase, version] { activate(phase, version); });
  else
    activate(phase, version);
  return {};
}

void SeatedStage::activate(const Phase& phase, Version version) {
  const bool switch_version = computing_ != version;
  if (switch_version && committed_ != version)
    return context_.fail(
        {ErrorCode::kIncompatible,
         fmt::format("{} needs version {}, this peer has {} and computes on {}", to_string(phase),
                     version.value, committed_.value, computing_.value)});
  computing_ = version;
  control(
      [this, switch_version]() -> Result<void> {
        if (switch_version) state_.activate();
        return {};
      },
      [this, phase] {
        phases_.activate(phase);
        flow_.on_active(phase);
      });
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
    if (phases_.status(id.phase) == PhaseStatus::kOver ||
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
    flow_.start_local({id, Attempt{lease.attempt()}}, lease.stage_mask(), rows,
                      SharedBytes(std::move(tokens)), SharedBytes(std::move(targets)));
  }
  return {};
}

Result<void> SeatedStage::on_seal(const wire::Seal& seal) {
  const Phase phase = from_wire(seal.phase());
  if (sealing_ || phase.kind != PhaseKind::kTrain || phase.step != committed_.value ||
      phases_.microbatches(phase) == 0)
    return fail(ErrorCode::kCorrupt, to_string(phase) + " can't be sealed now");
  std::set<std::uint32_t> owned;
  for (const wire::Range& range : seal.owned()) {
    const std::uint64_t end = std::uint64_t{range.first()} + range.count();
    if (range.count() == 0 || end > config_.microbatches_per_step() ||
        owned.contains(range.first()))
      return fail(ErrorCode::kCorrupt, "a seal with indices that the step does not have");
    for (std::uint32_t i = 0; i < range.count(); ++i) owned.insert(range.first() + i);
  }
  sealing_ = true;
  phases_.retire(phase);
  flow_.drop(phase);
  // The barrier lets jobs of the phase that are on the device end, so that what they added is
  // known.
  control([]() -> Result<void> { return {}; },
          [this, phase, seal, owned] {
            contributions_.settle(
                phase, owned, [this, phase, seal](Result<std::vector<std::uint32_t>> missing) {
                  if (!missing) return context_.fail(missing.error());
                  if (missing->empty()) return sealed(seal);
                  wire::SealMismatch mismatch;
                  *mismatch.mutable_seat() = to_wire(context_.self);
                  *mismatch.mutable_phase() = to_wire(phase);
                  for (std::uint32_t index : *missing) mismatch.add_missing(index);
                  context_.notify_coordinator(make_frame(MessageKind::kSealMismatch, mismatch));
                });
          });
  return {};
}

void SeatedStage::sealed(const wire::Seal& seal) {
  control(
      [this]() -> Result<void> {
        state_.seal();
        return {};
      },
      [this, seal] {
        const Phase phase = from_wire(seal.phase());
        digests_.clear();
        for (const wire::ReduceGroup& group : seal.groups()) start_round(phase, group);
        sealing_ = false;
        for (auto& next : std::exchange(after_seal_, {})) next();
      });
}

// ---- Averaging and commit
// --------------------------------------------------------------------------------------------

void SeatedStage::start_round(const Phase& phase, const wire::ReduceGroup& group) {
  const ParameterLayout& layout = model_->layout();
  const bool tied = group.group() == context_.stage.stages;
  const std::uint64_t first = tied ? layout.tied_offset : 0;
  const std::uint64_t end = tied ? layout.elements : layout.tied_offset;
  const std::size_t width = size_bytes(layout.dtype);

  StageAverager::Round round;
  round.key = {phase, group.group(), group.attempt()};
  bool member_of_it = false;
  for (const wire::GroupMember& member : group.members()) {
    const Seat seat = from_wire(member.seat());
    if (seat == context_.self) {
      round.spec.rank = static_cast<std::uint32_t>(round.members.size());
      member_of_it = true;
    }
    context_.links.set_address(seat, member.address());
    round.members.push_back(seat);
  }
  if (!member_of_it || (tied && !layout.has_tied()))
    return context_.fail(
        {ErrorCode::kIncompatible, "a seal names a group that this peer is not in"});
  round.spec.ranks = static_cast<std::uint32_t>(round.members.size());
  round.spec.elements = end - first;
  round.spec.dtype = layout.dtype;
  round.spec.bounds.assign(group.slice_ends().begin(), group.slice_ends().end());
  round.spec.bounds.insert(round.spec.bounds.begin(), 0);
  round.input = state_.sealed().subspan(first * width, (end - first) * width);
  round.output = state_.reduced().subspan(first * width, (end - first) * width);
  averaging_codecs_.set_up(round, first * width);
  const RoundKey key = round.key;
  round.on_done = [this, key](std::uint64_t bytes) { reduced(key, bytes); };
  if (auto started = averager_.start(std::move(round)); !started) context_.fail(started.error());
}

void SeatedStage::reduced(const RoundKey& key, std::uint64_t bytes_sent) {
  const ParameterLayout& layout = model_->layout();
  const bool tied = key.group == context_.stage.stages;
  const std::size_t width = size_bytes(layout.dtype);
  const std::uint64_t first = (tied ? layout.tied_offset : 0) * width;
  const std::uint64_t end = (tied ? layout.elements : layout.tied_offset) * width;
  const BytesView bytes = BytesView(state_.reduced()).subspan(first, end - first);
  auto message = std::make_shared<wire::Reduced>();
  control(
      [message, bytes, dtype = layout.dtype]() -> Result<void> {
        message->set_digest(xxh3(bytes));
        message->set_sum_of_squares(sum_of_squares(bytes, dtype));
        return {};
      },
      [this, message, key, bytes_sent, tied] {
        digests_[key] = message->digest();
        *message->mutable_seat() = to_wire(context_.self);
        *message->mutable_phase() = to_wire(key.phase);
        message->set_group(key.group);
        message->set_attempt(key.attempt);
        message->set_reduce_bytes(bytes_sent);
        if (!tied) {
          *message->mutable_boundary() = flow_.take_boundary_bytes(key.phase);
          message->set_busy_ns(flow_.take_busy_ns(key.phase));
          message->set_contributions(contributions_.count(key.phase));
        }
        context_.notify_coordinator(make_frame(MessageKind::kReduced, *message));
      });
}

Result<void> SeatedStage::on_commit(const wire::Commit& commit) {
  const Phase phase{PhaseKind::kTrain, commit.step()};
  if (commit.step() != committed_.value)
    return fail(ErrorCode::kIncompatible,
                fmt::format("commit of step {} on version {}", commit.step(), committed_.value));
  const double corrections[] = {commit.bias_correction1(), commit.bias_correction2()};
  for (double correction : corrections)
    if (!commit.skipped() && !(correction > 0 && correction <= 1))
      return fail(ErrorCode::kCorrupt, "a commit with a bias correction outside (0, 1]");
  if (digests_.empty() || digests_.begin()->first.phase != phase)
    return fail(ErrorCode::kIncompatible,
                fmt::format("{} is committed and not reduced here", to_string(phase)));
  for (const wire::GroupDigest& group : commit.groups()) {
    const auto mine = digests_.find({phase, group.group(), group.attempt()});
    if (mine != digests_.end() && mine->second != group.digest()) {
      context_.fail({ErrorCode::kIncompatible,
                     fmt::format("the committed gradient of {} is not the one this peer has",
                                 to_string(phase))});
      return {};
    }
  }
  averager_.retire(phase);
  averaging_codecs_.on_commit(commit.skipped());
  contributions_.retire(phase);
  committed_ = Version{commit.step() + 1};
  if (config_.pipeline.delay == 0) computing_ = committed_;
  auto digest = std::make_shared<std::uint64_t>();
  const StepScalars scalars{.learning_rate = commit.learning_rate(),
                            .clip_scale = commit.clip_scale(),
                            .bias_correction1 = commit.bias_correction1(),
                            .bias_correction2 = commit.bias_correction2()};
  control(
      [this, scalars, skipped = commit.skipped(), digest]() -> Result<void> {
        if (!skipped) SWARMLINE_TRY(state_.apply(scalars));
        auto made = state_.digest();
        if (!made) return std::unexpected(std::move(made).error());
        *digest = *made;
        return {};
      },
      [this, digest, version = committed_] {
        wire::Stepped stepped;
        *stepped.mutable_seat() = to_wire(context_.self);
        stepped.set_version(version.value);
        stepped.set_state_digest(*digest);
        context_.notify_coordinator(make_frame(MessageKind::kStepped, stepped));
      });
  return {};
}

Result<void> SeatedStage::on_save(const wire::SaveStage& save) {
  if (save.version() != committed_.value)
    return fail(ErrorCode::kIncompatible,
                fmt::format("asked to save version {}, has {}", save.version(), committed_.value));
  auto copy = std::make_shared<Buffer>();
  control(
      [this, copy]() -> Result<void> {
        *copy = Buffer::copy_of(state_.committed_parameters());
        return {};
      },
      [this, copy, name = save.checkpoint()] {
        std::make_shared<CheckpointUpload>(
            context_.self, name, model_->layout(), std::move(*copy), context_.call_coordinator,
            [](Result<void> done) {
              if (!done)
                log(LogLevel::kError, "the checkpoint could not be sent: {}", done.error().what);
            })
            ->start();
      });
  return {};
}

}  // namespace swarmline
