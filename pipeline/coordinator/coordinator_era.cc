// Where a run begins, and what it goes back to: eras.
#include <algorithm>

#include "base/hash.h"
#include "base/limits.h"
#include "base/log.h"
#include "pipeline/coordinator/coordinator_impl.h"

namespace swarmline {

namespace {

// Peers that are told of a new era are back within this, or are not waited for.
constexpr Duration kGatherTime = std::chrono::seconds(5);
// Eras in a row that end before the run got further than ever before.
constexpr std::uint32_t kFruitlessErasMax = 16;
// After so many in a row each next one waits twice as long: all of them outlast what may disturb a
// whole swarm, such as a coordinator whose links break for a while.
constexpr std::uint32_t kErasAtOnce = 4;
constexpr Duration kEraPauseMin = std::chrono::milliseconds(100);
constexpr Duration kEraPauseMax = std::chrono::seconds(5);

Duration pause_before_era(std::uint32_t fruitless) {
  if (fruitless <= kErasAtOnce) return {};
  return std::min(kEraPauseMin * (1 << (fruitless - kErasAtOnce - 1)), kEraPauseMax);
}
// Peers that ask for a seat while nobody knows how the run goes on; more of them ask again.
constexpr std::size_t kHellosMax = static_cast<std::size_t>(Limits::peers_max);

}  // namespace

// ---- The journal --------------------------------------------------------------------------------

// A journal that holds a run is gone on with.
Result<void> Coordinator::Impl::open_journal() {
  auto run_id = journal_.run_id();
  if (!run_id) return std::unexpected(std::move(run_id).error());
  const auto term = journal_.term();
  if (!term) return std::unexpected(term.error());
  // First: whoever is asked under it may know that no older one counts.
  if (*term >= kTermMax)
    return fail(ErrorCode::kRefused, fmt::format("this run was begun again {} times", kTermMax));
  term_ = Term{*term + 1};
  ledger_.begin_term(term_);
  SWARMLINE_TRY(journal_.record_term(term_));
  if (!*run_id) return journal_.record_run_id(options_.run_id);

  options_.run_id = **run_id;
  const auto run = journal_.read();
  if (!run) return std::unexpected(run.error());
  era_ = run->era;
  if (run->codecs && !boundaries_.restore(*run->codecs))
    log(LogLevel::kWarn, "the journal's codecs are not those of this run; they are chosen again");
  furthest_ = run->last_commit ? run->last_commit->version : 0;
  trained_ = run->has_trained();
  if (run->is_training()) {
    begin_collecting(*run);
    return {};
  }
  std::set<PeerId> known;
  for (SeatRecord seat : run->seats) {
    membership_.begin_after(seat.seat.peer);
    known.insert(seat.seat.peer);
    if (seat.state != "active") continue;
    seat.state = "fenced";
    SWARMLINE_TRY(journal_.record_seat(seat));
  }
  restarted_ = true;
  begin_from_checkpoint("the coordinator was started again");
  if (trained_) expected_ = known;  // for a while: nobody knows who of them lives
  return {};
}

// ---- A new era ----------------------------------------------------------------------------------

void Coordinator::Impl::begin_from_checkpoint(const std::string& why) {
  if (ended_ || state_ == State::kFailed || finding_) return;
  const std::uint64_t reached = std::max(furthest_, sequence_.committed());
  fruitless_eras_ = sequence_.committed() > furthest_ ? 0 : fruitless_eras_ + 1;
  furthest_ = reached;
  if (sequence_.draining())
    return fail_run(
        fmt::format("{}; the run was ending, and goes on from {} when it is started "
                    "again",
                    why, last_checkpoint_.empty() ? "its beginning" : last_checkpoint_));
  if (fruitless_eras_ > kFruitlessErasMax)
    return fail_run(fmt::format("{}; the run went back {} times without getting beyond step {}",
                                why, kFruitlessErasMax, reached));
  why_waiting_ = why;
  dismiss_everybody("the run goes back to a checkpoint: " + why);
  if (ended_) return;
  forget_steps();
  state_ = State::kWaiting;
  finding_ = true;
  auto found_it = [this, why, reached](const Result<void>& found) {
    finding_ = false;
    if (ended_) return;
    if (!found)
      return fail_run(fmt::format("{}; the run can't go back: {}", why, found.error().what));
    begin_era(why, reached);
  };
  const Duration pause = pause_before_era(fruitless_eras_);
  if (pause == Duration{}) return find_beginning(std::move(found_it));
  runtime_.call_after(pause, [weak = weak(), found_it = std::move(found_it)] {
    if (auto self = weak.lock(); self && !(*self)->ended_) (*self)->find_beginning(found_it);
  });
}

void Coordinator::Impl::begin_era(const std::string& why, std::uint64_t reached) {
  ++era_.value;
  if (auto kept =
          journal_.record_era(era_, beginning_.version, beginning_.updates, beginning_.path);
      !kept)
    return journal_failed(kept.error());
  const std::string from = beginning_.path.empty() ? "the initial parameters" : beginning_.path;
  const std::string again =
      reached > beginning_.version
          ? fmt::format("; steps {} to {} are computed again", beginning_.version, reached - 1)
          : "";
  era_sentence_ = fmt::format("era {} begins with version {} ({}): {}{}", era_.value,
                              beginning_.version, from, why, again);
  sequence_ = RunSequence(sequence_from(beginning_.version));
  updates_ = beginning_.updates;
  saved_version_ = beginning_.path.empty() ? ~std::uint64_t{0} : beginning_.version;
  last_checkpoint_ = beginning_.path;
  event("new_era", era_sentence_);
  if (std::exchange(restarted_, false) &&
      beginning_.version == options_.config.run.steps)  // killed as it said so
    return end(0, fmt::format("finished {} steps", beginning_.version));
  if (trained_) wait_for_peers();
  for (const auto& hello : std::exchange(held_hellos_, {}))
    if (!ended_) hello();
}

void Coordinator::Impl::hold_hello(const SessionPtr& session, const Frame& frame,
                                   const RpcChannel::Respond& respond) {
  if (held_hellos_.size() >= kHellosMax) return;
  held_hellos_.push_back([this, session, frame, respond] {
    if (!session->closed) on_request(session, frame, respond);
  });
}

void Coordinator::Impl::find_beginning(std::function<void(Result<void>)> done) {
  auto opened = [weak = weak(), done = std::move(done)](auto newest) {
    if (auto self = weak.lock()) done((*self)->take_beginning(std::move(newest)));
  };
  if (options_.checkpoints != nullptr) return options_.checkpoints->open_newest(std::move(opened));
  runtime_.post([opened = std::move(opened)] {
    opened(Result<std::optional<CheckpointSource::Saved>>(std::nullopt));
  });
}

Result<void> Coordinator::Impl::take_beginning(
    Result<std::optional<CheckpointSource::Saved>> newest) {
  beginning_ = {};
  if (!newest) return std::unexpected(std::move(newest).error());
  if (!*newest) return {};
  if ((*newest)->version > options_.config.run.steps)
    return fail(ErrorCode::kUserMistake,
                fmt::format("{} is of step {}, and the run has {} steps", (*newest)->path,
                            (*newest)->version, options_.config.run.steps));
  beginning_ = {.version = (*newest)->version,
                .updates = (*newest)->updates,
                .path = (*newest)->path,
                .saved = {}};
  for (const ParameterLayout& layout : shape_.layouts) {
    beginning_.saved.push_back(saved_state(options_.config, layout, true));
    SWARMLINE_TRY(check_saved(beginning_.saved.back(), [this](const std::string& name) {
      return options_.checkpoints->tensor(name);
    }));
  }
  return {};
}

// Whatever they hold is of another era. They come back by themselves.
void Coordinator::Impl::dismiss_everybody(const std::string& why) {
  expected_.clear();
  const std::map<PeerId, SessionPtr> seated = sessions_.seated();
  for (const auto& [peer, session] : seated) {
    sessions_.unseat(peer);
    detector_.forget(peer);
    const Seat seat = session->seat;
    const Member& member = membership_.at(peer);
    if (!member.draining || member.moves_to) expected_.insert(peer);
    membership_.fence(seat);
    if (auto kept =
            journal_.record_seat({.seat = seat, .address = member.address, .state = "fenced"});
        !kept)
      return journal_failed(kept.error());
    ledger_.seat_lost(seat);
    send_fenced(*session, why, /*keeps=*/false);
  }
}

void Coordinator::Impl::forget_steps() {
  runtime_.cancel(reduce_deadline_);
  if (checkpoint_) abandon_checkpoint("the run goes back");
  for (const Phase& phase : ledger_.open_phases()) ledger_.abandon(phase);
  board_.end();
  desk_ = JoinDesk();
  shadows_ = ShadowDesk();
  emptied_.clear();
  recent_commits_.clear();
  opened_.clear();
  sources_.clear();
  failures_.clear();
  backed_up_.clear();
  audit_.clear();
  reopened_.clear();
  broken_links_.clear();
  mismatches_.clear();
  stats_.on_new_era();
}

// ---- Peers come back ----------------------------------------------------------------------------

void Coordinator::Impl::wait_for_peers() {
  gather();
  arm_peers_wait();
}

void Coordinator::Impl::gather() {
  gathered_ = false;
  runtime_.cancel(gather_timer_);
  gather_timer_ = runtime_.call_after(kGatherTime, [weak = weak()] {
    auto self = weak.lock();
    if (!self || (*self)->ended_) return;
    (*self)->gathered_ = true;
    (*self)->start_if_formed();
  });
}

// Whoever was to serve a stage was lost before the start, or before the era began: one of a stage
// that has more than is wanted goes there.
void Coordinator::Impl::fill_stages() {
  // Who was told to move is on its way.
  if (filling_ || (trained_ ? !gathered_ : !expected_.empty())) return;
  const auto wanted = [&](StageId stage) { return trained_ ? 1U : membership_.target_of(stage); };
  std::map<StageId, std::vector<Seat>> spare;  // what each has beyond what is wanted
  for (const StageSpec& stage : shape_.stages) {
    std::vector<Seat> ready = membership_.ready_of(stage.stage);
    ready.erase(ready.begin(),
                ready.begin() + std::min<std::ptrdiff_t>(std::ssize(ready), wanted(stage.stage)));
    spare[stage.stage] = std::move(ready);
  }
  std::vector<std::pair<Seat, StageId>> moves;
  for (const StageSpec& stage : shape_.stages) {
    for (std::size_t live = membership_.live_of(stage.stage); live < wanted(stage.stage); ++live) {
      const auto most = std::max_element(
          spare.begin(), spare.end(),
          [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
      if (most->second.empty()) break;
      moves.emplace_back(most->second.back(), stage.stage);
      most->second.pop_back();
    }
  }
  if (!moves.empty() && trained_) gather();
  filling_ = true;
  for (const auto& [seat, stage] : moves) {
    fence(seat, fmt::format("stage {} lacks a peer", stage.value), Goes::kMoves);
    expected_.insert(seat.peer);
  }
  filling_ = false;
}

void Coordinator::Impl::arm_peers_wait() {
  const Duration wait = std::max(kGatherTime, from_seconds(options_.config.net.peers_wait_seconds));
  runtime_.cancel(peers_wait_);
  peers_wait_ = runtime_.call_after(wait, [weak = weak(), wait] {
    auto self = weak.lock();
    if (!self || (*self)->ended_ || (*self)->state_ != State::kWaiting) return;
    Impl& impl = **self;
    const std::vector<StageId> empty = impl.membership_.empty_stages();
    if (empty.empty() || impl.detector_.was_stopped(impl.runtime_.now()))
      return impl.arm_peers_wait();
    impl.fail_run(
        fmt::format("{}; the run ends after step {} because stage {} has no peer and "
                    "nobody joined it within {:.0f} s",
                    impl.why_waiting_, impl.furthest_, empty.front().value, to_seconds(wait)));
  });
}

// A run that goes back waits for those who were there, and goes on with fewer than it wants.
bool Coordinator::Impl::may_start() const {
  if (membership_.formed()) return true;
  return era_.value > 0 && trained_ && (gathered_ || expected_.empty()) && membership_.covered();
}

void Coordinator::Impl::on_piece_request(const SessionPtr& session,
                                         const wire::PieceRequest& request) {
  const SavedState* saved = nullptr;
  if (request.blob().has_saved() && request.blob().saved() == beginning_.version &&
      session->seat.stage.value < beginning_.saved.size())
    saved = &beginning_.saved[session->seat.stage.value];
  wire::Piece reply;
  *reply.mutable_blob() = request.blob();
  reply.set_piece(request.piece());
  const std::uint64_t first = std::uint64_t{request.piece()} * Limits::state_piece_bytes;
  Buffer piece;
  if (saved != nullptr && first < saved->bytes) {
    piece = Buffer(std::min<std::uint64_t>(Limits::state_piece_bytes, saved->bytes - first));
    auto read = read_saved(
        *saved, [this](const std::string& name) { return options_.checkpoints->tensor(name); },
        first, piece.bytes());
    if (!read) return fail_run("the checkpoint can't be read: " + read.error().what);
  }
  reply.set_missing(piece.size() == 0);
  if (reply.missing()) return session->channel->notify(make_frame(MessageKind::kPiece, reply));
  const SharedBytes payload(std::move(piece));
  reply.set_checksum(xxh3(payload.view()));
  Frame frame = make_frame(MessageKind::kPiece, reply, {payload});
  checkpoint_bytes_ += frame.wire_bytes();
  session->channel->notify(std::move(frame));
}

}  // namespace swarmline
