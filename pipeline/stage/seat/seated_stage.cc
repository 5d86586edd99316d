#include "pipeline/stage/seat/seated_stage.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/marks.h"
#include "pipeline/stage/common/piece_reply.h"

namespace swarmline {

namespace {

constexpr std::uint64_t kAllSteps = std::numeric_limits<std::uint64_t>::max();

// Others' measurements; what can't be one counts as unknown.
Duration believable(double seconds) {
  constexpr double kSecondsMax = 3600;
  return seconds > 0 && seconds < kSecondsMax ? from_seconds(seconds) : Duration{};
}

// Absent, or none: its speed alone counts.
double believable_weight(double weight) {
  return weight >= 1 / kSendWeightMax && weight <= kSendWeightMax ? weight : 1;
}

template <typename Message, typename Handler>
Result<void> handle(const Frame& frame, Handler handler) {
  auto message = parse<Message>(frame);
  if (!message) return std::unexpected(message.error());
  return handler(*message);
}

// Whether who begins a stage fetches its state from the coordinator; else it draws it from the
// seed.
bool fetches_saved(Version version, const RunConfig& config) {
  return version.value > 0 || !config.run.init.empty();
}

}  // namespace

SeatedStage::SeatedStage(Runtime& runtime, DeviceQueue& queue, PeerLinks& links,
                         SeatedStageParts parts)
    : config_(std::move(parts.config)),
      spec_(std::move(parts.spec)),
      model_(std::move(parts.model)),
      state_(parts.state ? std::move(parts.state)
                         : std::make_unique<ParameterState>(*model_, config_)),
      context_{.runtime = runtime,
               .queue = queue,
               .model = *model_,
               .state = *state_,
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
               .part_folder = parts.part_folder,
               .fabric = parts.fabric,
               .metrics = parts.metrics,
               .fail = std::move(parts.fail)},
      jobs_(context_),
      data_serve_(context_, parts.serves_data ? parts.data_folder : nullptr,
                  parts.data_pieces ? parts.data_pieces->count() : 0),
      data_fetch_(context_, parts.fetches_data && parts.source ? parts.data_folder : nullptr,
                  parts.data_pieces, [this] { runner_.start_held(); }),
      leases_(context_, std::move(parts.source), data_fetch_),
      contributions_(context_, Contributions::subtract_on_device(context_)),
      flow_(context_, phases_, contributions_,
            parts.wiring ? std::move(parts.wiring) : make_wiring(config_, parts.self),
            parts.admit_bytes,
            [this] {
              leases_.on_finished();
              leases_.want();
            }),
      gradients_(context_, jobs_,
                 {.account = [this](const Phase& phase,
                                    wire::Reduced& report) { flow_.take_account(phase, report); },
                  .on_here = [this] { commits_.advance(); }}),
      commits_(context_, jobs_, gradients_, parts.joining,
               parts.joining || fetches_saved(parts.version, config_),
               {.on_over = [this](const Phase& phase) { runner_.end(phase); },
                .on_stepped = [this](Version version) { phases_.on_stepped(version); },
                .on_idle = [this] { drain_inbox(); },
                .on_too_far_behind =
                    [this] {
                      gradients_.drop_fetches(0, kAllSteps);
                      states_.want();
                    },
                .on_early_seat_over = [this] { states_.hurry(); }}),
      states_(context_, jobs_, !parts.joining && !fetches_saved(parts.version, config_),
              parts.shadow, std::move(parts.kept),
              {.on_offered =
                   [this](Version version) {
                     commits_.drop_below(version);
                     gradients_.drop_fetches(0, version.value);
                   },
               .on_lost = [this] { commits_.drop_all(); },
               .on_here = [this](Version version, std::uint64_t digest, StateOrigin origin,
                                 bool all) { on_state_here(version, digest, origin, all); },
               .is_behind = [this] { return !commits_.empty(); },
               .parameters_serve =
                   [this](Version) {
                     // With a delay the version before is computed on, too.
                     return config_.pipeline.delay == 0 && commits_.following() && commits_.empty();
                   },
               .on_parameters_here = [this](Version version) { on_parameters_here(version); },
               .asks_max = [this] { return pieces_at_a_time(); }}),
      frozen_(context_, jobs_),
      save_(context_, jobs_),
      hand_over_(context_, jobs_, phases_, contributions_),
      runner_(context_, jobs_, phases_, contributions_, flow_, gradients_, leases_, hand_over_,
              [this] { drain_inbox(); }),
      begins_with_(parts.joining ? Version{} : parts.version),
      heritage_(std::move(parts.heritage)) {}

void SeatedStage::silence() {
  jobs_.silence();
  data_serve_.silence();
  data_fetch_.silence();
  gradients_.silence();
  states_.silence();
  frozen_.silence();
  save_.silence();
  hand_over_.silence();
}

// ---- What the coordinator says ------------------------------------------------------------------

Result<void> SeatedStage::on_coordinator(const Frame& frame) {
  switch (kind_of(frame)) {
    case MessageKind::kMembership:
      return handle<wire::Membership>(
          frame, [this](const auto& membership) { return on_membership(membership); });
    case MessageKind::kReportAck:
      return handle<wire::ReportAck>(frame, [this](const auto& ack) -> Result<void> {
        if (!hand_over_.on_ack(ack)) contributions_.on_ack(ack);
        return {};
      });
    case MessageKind::kStallReport:
      return handle<wire::StallReport>(frame, [this](const auto& stall) -> Result<void> {
        flow_.on_stall(from_wire(stall.stalled()), from_wire(stall.id()));
        return {};
      });
    case MessageKind::kSeal:
      return on_seal_arrived(frame);
    case MessageKind::kResume:
      return on_resume();
    case MessageKind::kPiece:
      return on_piece({}, frame);
    case MessageKind::kDataHashes:
      return handle<wire::DataHashes>(
          frame, [this](const auto& hashes) { return data_fetch_.on_hashes(hashes); });
    case MessageKind::kDataHolders:
      return handle<wire::DataHolders>(frame, [this](const auto& holders) -> Result<void> {
        data_fetch_.on_holders(holders);
        return {};
      });
    case MessageKind::kStateOffer:
      return handle<wire::StateOffer>(
          frame, [this](const auto& offer) { return states_.on_offer(offer); });
    case MessageKind::kCommit:
      // Before it has a seat a joiner hears of nothing else, and can't wait until one is applied.
      if (commits_.following() && inbox_.empty())
        return handle<wire::Commit>(frame, [this](const auto& commit) { return follow(commit); });
      [[fallthrough]];
    default:
      return when_its_turn_comes(frame);
  }
}

Result<void> SeatedStage::follow(const wire::Commit& commit) {
  SWARMLINE_TRY(commits_.follow(commit));
  if (!commits_.empty()) states_.on_committed_since();
  return {};
}

Result<void> SeatedStage::when_its_turn_comes(const Frame& frame) {
  if (!busy()) return in_order(frame);
  if (inbox_.push(frame)) return {};
  return fail(ErrorCode::kCorrupt, "too much to do before a commit is applied");
}

void SeatedStage::drain_inbox() {
  while (!busy()) {
    const std::optional<Frame> frame = inbox_.pop();
    if (!frame) return;
    if (auto handled = in_order(*frame); !handled)
      return context_.fail(
          {handled.error().code, fmt::format("{} from the coordinator does not fit: {}",
                                             to_string(kind_of(*frame)), handled.error().what)});
  }
}

Result<void> SeatedStage::in_order(const Frame& frame) {
  const Version here = committed();
  switch (kind_of(frame)) {
    case MessageKind::kOpenPhase:
      return handle<wire::OpenPhase>(frame, [this](const auto& open) { return on_open(open); });
    case MessageKind::kLeases:
      return handle<wire::Leases>(frame,
                                  [this](const auto& leases) { return runner_.on_leases(leases); });
    case MessageKind::kSeal:
      return handle<wire::Seal>(frame,
                                [&](const auto& seal) { return runner_.on_seal(seal, here); });
    case MessageKind::kReopen:
      return handle<wire::Reopen>(
          frame, [&](const auto& reopen) { return runner_.on_reopen(reopen, here); });
    case MessageKind::kFreezeState:
      return handle<wire::FreezeState>(
          frame, [&](const auto& freeze) { return frozen_.freeze(freeze.version(), here); });
    case MessageKind::kFetchReduced:
      return handle<wire::FetchReduced>(frame,
                                        [this](const auto& fetch) { return on_fetch(fetch); });
    case MessageKind::kCommit:
      return handle<wire::Commit>(
          frame, [this](const auto& commit) { return commits_.on_commit(commit); });
    case MessageKind::kSaveStage:
      return handle<wire::SaveStage>(frame, [&](const auto& save) {
        save_.begin(save, here);
        return Result<void>();
      });
    case MessageKind::kRetirePhase:
      return handle<wire::RetirePhase>(
          frame, [this](const auto& retire) { return runner_.on_retire(retire); });
    case MessageKind::kGiveSums:
      return handle<wire::GiveSums>(frame,
                                    [this](const auto& give) { return hand_over_.on_give(give); });
    case MessageKind::kTakeSums:
      return handle<wire::TakeSums>(frame,
                                    [this](const auto& take) { return hand_over_.on_take(take); });
    case MessageKind::kSumsMoved:
      return handle<wire::SumsMoved>(
          frame, [this](const auto& moved) { return hand_over_.on_moved(moved); });
    default:
      return fail(ErrorCode::kCorrupt, "a message that a coordinator does not send");
  }
}

Result<void> SeatedStage::on_open(const wire::OpenPhase& open) {
  SWARMLINE_TRY(runner_.on_open(open, committed()));
  if (commits_.take_seat()) leases_.want();
  return {};
}

Result<void> SeatedStage::on_fetch(const wire::FetchReduced& message) {
  const RoundKey key{from_wire(message.phase()), GroupId{message.group()},
                     RoundAttempt{message.attempt()}};
  if (key.phase.kind != PhaseKind::kTrain || key.phase.step != committed().value ||
      !gradients_.in_group(key.group))
    return fail(ErrorCode::kCorrupt, to_string(key.phase) + " can't be fetched now");
  GradientFetch::Holders holders;
  for (const wire::GroupMember& holder : message.holders()) {
    const Seat linked = from_wire(holder.seat());
    context_.links.set_address(linked, holder.address());
    holders[linked] = holder.has_shadow() ? from_wire(holder.shadow()) : linked;
  }
  gradients_.on_fetch(key, message.digest(), holders);
  return {};
}

Result<void> SeatedStage::on_membership(const wire::Membership& membership) {
  if (!membership.same_next()) set_candidates(membership);
  for (const wire::Roster& news : membership.rosters()) {
    SWARMLINE_TRY(rosters_.apply(news));
    if (news.stage() == stage().value) set_mates();
  }
  flow_.retry_seeking();
  return {};
}

void SeatedStage::set_candidates(const wire::Membership& membership) {
  std::vector<NextStage::Candidate> candidates;
  for (const wire::PeerInfo& info : membership.next()) {
    candidates.push_back({.seat = from_wire(info.seat()),
                          .prior = {.forward = believable(info.forward_seconds()),
                                    .backward = believable(info.backward_seconds())},
                          .weight = believable_weight(info.weight())});
    context_.links.set_address(candidates.back().seat, info.address());
  }
  flow_.set_candidates(candidates);
}

void SeatedStage::set_mates() {
  std::vector<Seat> mates;
  std::uint32_t rank = 0;
  for (const auto& [mate, address] : rosters_.serving(stage())) {
    if (mate.peer == context_.self.peer) continue;
    mates.push_back(mate);
    context_.links.set_address(mate, address);
    rank += mate.peer < context_.self.peer ? 1 : 0;
  }
  flow_.set_share(rank, static_cast<std::uint32_t>(mates.size()) + 1);
  gradients_.set_mates(mates);
}

// Lists change while a seal waits for its turn: what it names is written down now.
Result<void> SeatedStage::on_seal_arrived(const Frame& frame) {
  auto seal = parse<wire::Seal>(frame);
  if (!seal) return std::unexpected(seal.error());
  SWARMLINE_TRY(rosters_.name_members(*seal));
  return when_its_turn_comes(make_frame(MessageKind::kSeal, *seal));
}

// ---- What peers say -----------------------------------------------------------------------------

Result<void> SeatedStage::on_peer(const Seat& from, const Frame& frame) {
  switch (kind_of(frame)) {
    case MessageKind::kReduceChunk:
      return gradients_.on_chunk(from, frame);
    case MessageKind::kFabricWord:
      return gradients_.on_fabric_word(from, frame);
    case MessageKind::kPieceRequest:
      return handle<wire::PieceRequest>(
          frame, [&](const auto& request) { return on_piece_request(from, request); });
    case MessageKind::kPiece:
      return on_piece(from, frame);
    default:
      return flow_.on_frame(from, frame);
  }
}

bool SeatedStage::holds(const wire::BlobId& blob) const {
  if (blob.has_state()) return frozen_.holds(blob.state()) && blob.stage() == stage().value;
  return blob.has_sums() ||
         (blob.has_reduced() && !gradients_.bytes(round_key(blob.reduced())).empty());
}

BytesView SeatedStage::held(const wire::BlobId& blob) {
  if (!holds(blob)) return {};
  if (blob.has_state()) return frozen_.use();
  return blob.has_sums() ? hand_over_.bytes(from_wire(blob.sums()))
                         : gradients_.bytes(round_key(blob.reduced()));
}

// Members of the stage, those who follow it, and who averages with it: each under its own name.
bool SeatedStage::may_ask(const Seat& from, const wire::PieceRequest& request) const {
  const Seat asker = from_wire(request.seat());
  if (asker.peer != from.peer || asker.incarnation != from.incarnation) return false;
  const wire::BlobId& blob = request.blob();
  return blob.has_reduced() ? gradients_.shares(GroupId{blob.reduced().group()}, asker.stage)
                            : asker.stage == stage();
}

Result<void> SeatedStage::on_piece_request(const Seat& from, const wire::PieceRequest& request) {
  if (request.blob().has_data()) return data_serve_.on_request(from, request);
  if (!may_ask(from, request)) {
    SWARMLINE_MARK("stage.asked_by_another_stage");
    return fail(ErrorCode::kCorrupt, "it asks for what another stage has");
  }
  // Who asks for more than it takes asks again.
  if (context_.links.unsent_bytes(from) > Limits::pieces_unsent_bytes_max) {
    SWARMLINE_MARK("stage.asked_for_more_than_it_takes");
    return {};
  }
  context_.links.send(from, piece_reply(request, held(request.blob())));
  return {};
}

Result<void> SeatedStage::on_piece(const Seat& from, const Frame& frame) {
  return handle<wire::Piece>(frame, [&](const auto& piece) -> Result<void> {
    if (piece.blob().has_data()) return data_fetch_.on_piece(from, piece, frame.received_payload());
    if (piece.blob().has_sums()) {
      hand_over_.on_piece(from, piece, frame.received_payload());
      return {};
    }
    if (!piece.blob().has_state() && !piece.blob().has_saved())
      return gradients_.on_piece(from, piece, frame.received_payload());
    states_.on_piece(from, piece, frame.received_payload());
    return {};
  });
}

// ---- Losses -------------------------------------------------------------------------------------

void SeatedStage::on_link_lost(const Seat& peer, const Error& error) {
  if (const auto times = lost_link_lines_.happened(context_.runtime.now()))
    log(LogLevel::kWarn, "lost the link to {}: {} ({} such)", to_string(peer), error.what, times);
  flow_.on_link_lost(peer);
  gradients_.report_broken_rounds(peer, error);
  states_.on_link_lost(peer);
  data_fetch_.on_link_lost(peer);
  hand_over_.on_link_lost(peer);
  gradients_.on_link_lost(peer);
}

void SeatedStage::on_peer_lost(const Seat& lost) {
  flow_.on_peer_lost(lost);
  states_.on_peer_lost(lost);
  data_fetch_.on_peer_lost(lost);
  hand_over_.on_peer_lost(lost);
  gradients_.on_peer_lost(lost);
}

// A seal that settles and whatever waits behind it were begun by one that is gone; the sums, the
// committed state and the reduced gradients of commits stay.
void SeatedStage::on_coordinator_lost() {
  runner_.on_coordinator_lost();
  hand_over_.on_coordinator_lost();
  inbox_.clear();
  flow_.set_led(false);
}

Result<void> SeatedStage::on_resume() {
  SWARMLINE_MARK("stage.resumed_under_a_new_term");
  on_coordinator_lost();
  flow_.set_led(true);
  gradients_.drop_fetches(commits_.heard().value, kAllSteps);
  runner_.on_resume(commits_.heard());
  data_fetch_.on_coordinator_back();
  if (commits_.take_seat()) {
    SWARMLINE_MARK("stage.seated_by_another_coordinator");
    leases_.want();
  }
  return {};
}

wire::Holdings SeatedStage::holdings() const {
  wire::Holdings holdings;
  holdings.set_era(context_.era.value);
  holdings.set_version(commits_.heard().value);
  holdings.set_stepped(commits_.reached().version.value);
  holdings.set_state_digest(commits_.reached().digest);
  holdings.set_wanted(leases_.wanted());
  holdings.set_leased(leases_.leased());
  holdings.set_finished(leases_.finished());
  runner_.list(holdings, commits_.heard());
  return holdings;
}

Result<std::shared_ptr<KeptState>> SeatedStage::keep() {
  return keep_state(*state_, stage(), context_.era);
}

void SeatedStage::list_tries(std::set<MicrobatchId>& all) const {
  flow_.list_tries(all);
  contributions_.list_unacknowledged(all);
  for (const LeaseIntake::Held& held : leases_.held()) all.insert(held.attempt.microbatch);
  for (const Frame& frame : inbox_.waiting())
    if (kind_of(frame) == MessageKind::kLeases)
      if (const auto leases = parse<wire::Leases>(frame))
        for (const wire::Lease& lease : leases->leases())
          all.insert({from_wire(lease.phase()), lease.index()});
}

void SeatedStage::list_sizes(std::vector<NamedSize>& all) const {
  all.push_back({"peer.waiting_frames", inbox_.size(), CoordinatorInbox::kWaitingMax});
  all.push_back({"peer.contributions", contributions_.size(),
                 PhaseRunner::kOpenPhasesMax * Limits::microbatches_per_step_max});
}

void SeatedStage::check_invariants() const {
  flow_.check_invariants();
  gradients_.check_invariants();
  commits_.check_invariants();
  states_.check_invariants();
  frozen_.check_invariants();
  runner_.check_invariants();
  hand_over_.check_invariants();
  leases_.check_invariants();
  data_serve_.check_invariants();
  data_fetch_.check_invariants();
  inbox_.check_invariants();
  SWARMLINE_CHECK(gradients_.next_step() == committed().value);
  SWARMLINE_CHECK(commits_.paused() == !states_.here());
}

}  // namespace swarmline
