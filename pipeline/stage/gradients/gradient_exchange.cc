#include "pipeline/stage/gradients/gradient_exchange.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/marks.h"
#include "engine/collective/slices.h"

namespace swarmline {

using enum GradientState;

GradientExchange::GradientExchange(StageContext& context, StageJobs& jobs, Hooks hooks)
    : context_(context),
      jobs_(jobs),
      hooks_(std::move(hooks)),
      groups_(context.stage.stages, context.model.layout().has_tied()),
      averager_(
          [this](const Seat& to, Frame frame) { context_.links.send_lent(to, std::move(frame)); },
          [this](const Seat& from, const Error& error) { on_bad_chunk(from, error); },
          [this](const Seat& member) {
            return context_.config.codec.checksums == TileChecksums::kAuto &&
                   context_.links.shares_memory(member);
          },
          [this](std::function<void()> call) { context_.runtime.post(std::move(call)); }),
      codecs_(context.config, context.model.layout().bytes()),
      device_rounds_(context, jobs, codecs_),
      island_rounds_(context, jobs,
                     {.summed = [this](const RoundKey& key) { island_summed(key); },
                      .averaged =
                          [this](const RoundKey& key) {
                            landings_[key] = host_copy(key);
                            summed(key, 0);
                          },
                      .failed = [this](const RoundKey& key,
                                       const Error& error) { fabric_failed(key, error); }}) {}

bool GradientExchange::in_group(GroupId group) const {
  return groups_.has(group) && groups_.contains(group, context_.self.stage);
}

GradientExchange::Region GradientExchange::region_of(GroupId group) const {
  const std::uint64_t width = size_bytes(context_.model.layout().dtype);
  const GroupPlan::Region region = groups_.region_of(group, context_.model.layout());
  return {region.first * width, region.elements * width};
}

// ---- States -------------------------------------------------------------------------------------

GradientState GradientExchange::state_of(const RoundKey& key) const {
  const auto entry = entries_.find(key);
  return entry == entries_.end() ? kNone : entry->second.state;
}

bool GradientExchange::in_place(GradientState state) {
  return state == kBoth || state == kHeld || state == kKept;
}

void GradientExchange::become(Entries::iterator entry, GradientState state) {
  const GradientState before = entry->second.state;
  SWARMLINE_CHECK_MSG(kGradientStates.allows(before, state),
                      fmt::format("a gradient is {} and becomes {}", kGradientStates.name(before),
                                  kGradientStates.name(state)));
  if (state == kNone) {
    entries_.erase(entry);
    return;
  }
  entry->second.state = state;
  if (state != kFetching && state != kBoth) entry->second.fetch.reset();
}

template <typename Which>
void GradientExchange::forget(Which which) {
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    const auto next = std::next(entry);
    if (which(entry->first, entry->second.state)) become(entry, kNone);
    entry = next;
  }
}

// Its place is another's now.
void GradientExchange::give_way(Entries::iterator entry) {
  const GradientState state = entry->second.state;
  if (state == kKept) return become(entry, kRetained);
  if (state == kBoth) return become(entry, kFetching);
  if (state == kHeld || state == kSummed || state == kPlacing) become(entry, kNone);
}

// Nothing else of the group is in that place, or on its way there.
void GradientExchange::take_place(const RoundKey& key) {
  for (auto other = entries_.begin(); other != entries_.end();) {
    const auto next = std::next(other);
    if (other->first.group == key.group && other->first != key) give_way(other);
    other = next;
  }
}

// ---- Averaging ----------------------------------------------------------------------------------

void GradientExchange::begin(const Phase& phase) {
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    const auto next = std::next(entry);
    if (entry->first.phase != phase) give_way(entry);
    entry = next;
  }
}

// The butterfly is between those who speak.
bool GradientExchange::set_islands(StageAverager::Round& round,
                                   const std::vector<std::uint32_t>& speakers) {
  if (speakers.size() != round.members.size()) return false;
  round.islands = IslandRanks{.rank = round.spec.rank, .speakers = speakers};
  const std::vector<std::uint32_t> speaking = round.islands->speaking();
  const auto own = std::ranges::find(speaking, speakers[round.spec.rank]);
  round.spec.ranks = static_cast<std::uint32_t>(speaking.size());
  round.spec.rank = static_cast<std::uint32_t>(own - speaking.begin());
  return own != speaking.end();
}

void GradientExchange::average(const Phase& phase, const SealedGroup& group) {
  const RoundKey key{phase, group.group, group.attempt};
  take_place(key);
  forget([&](const RoundKey& other, GradientState state) {
    return other.phase == phase && other.group == group.group &&
           (state == kAveraging || state == kFetching);
  });
  // An earlier attempt would end in the place of this one, which may be a while from its start.
  averager_.abandon(phase, group.group);
  drop_rounds(
      [&](const RoundKey& other) { return other.phase != phase || other.group == group.group; });
  const ParameterLayout& layout = context_.model.layout();
  const Region region = region_of(group.group);
  StageAverager::Round round;
  round.key = key;
  bool member_of_it = false;
  for (const auto& [seat, address] : group.members) {
    if (seat == context_.self) {
      round.spec.rank = static_cast<std::uint32_t>(round.members.size());
      member_of_it = true;
    }
    context_.links.set_address(seat, address);
    round.members.push_back(seat);
  }
  if (!member_of_it)
    return context_.fail(
        {ErrorCode::kIncompatible, "a seal names a group that this peer is not in"});
  round.spec.ranks = static_cast<std::uint32_t>(round.members.size());
  if (!group.speakers.empty() && !set_islands(round, group.speakers))
    return context_.fail(
        {ErrorCode::kIncompatible, "a seal names islands that do not fit its members"});
  round.spec.elements = region.size / size_bytes(layout.dtype);
  round.spec.dtype = layout.dtype;
  if (group.slice_ends.empty()) {
    round.spec.bounds = equal_slice_bounds(round.spec.elements, round.spec.ranks);
  } else {
    round.spec.bounds = group.slice_ends;
    round.spec.bounds.insert(round.spec.bounds.begin(), 0);
  }
  round.input =
      BytesView(context_.state.accumulator(phase.step)).subspan(region.first, region.size);
  round.output = context_.state.reduced().subspan(region.first, region.size);
  codecs_.set_up(round, region.first);
  round.on_done = [this, key](std::uint64_t bytes) { summed(key, bytes); };
  const auto entry = entries_.try_emplace(key).first;
  if (entry->second.state == kNone) become(entry, kAveraging);
  begin_round(std::move(round), group);
}

void GradientExchange::start(StageAverager::Round round) {
  if (auto started = averager_.start(std::move(round)); !started) context_.fail(started.error());
}

void GradientExchange::abandon(const Phase& phase) {
  averager_.abandon(phase);
  drop_rounds([&](const RoundKey& key) { return key.phase == phase; });
  forget([&](const RoundKey& key, GradientState state) {
    return key.phase == phase && state == kAveraging;
  });
}

bool GradientExchange::averages() const {
  return std::ranges::any_of(entries_, [](const auto& entry) {
    return entry.second.state == kAveraging || entry.second.state == kFetching;
  });
}

bool GradientExchange::shares(GroupId group, StageId stage) const {
  return in_group(group) && groups_.contains(group, stage);
}

Result<void> GradientExchange::on_chunk(const Seat& from, const Frame& frame) {
  const auto chunk = parse<wire::ReduceChunk>(frame);
  if (!chunk) return std::unexpected(chunk.error());
  if (!shares(GroupId{chunk->group()}, from.stage)) {
    SWARMLINE_MARK("gradients.chunk_of_another_stage");
    return fail(ErrorCode::kCorrupt, "a chunk from a stage that does not average with this one");
  }
  return averager_.on_chunk(from, frame);
}

// It came before its round began: only now it is known not to fit.
void GradientExchange::on_bad_chunk(const Seat& from, const Error& error) {
  const Labels labels = {{"kind", std::string(to_string(MessageKind::kReduceChunk))}};
  if (context_.metrics) context_.metrics->counter("swarmline_bad_frames_total", labels).add();
  context_.links.disconnect(from, error);
}

// Where the coordinator said meanwhile to fetch it, both go on; what is first is used.
void GradientExchange::summed(const RoundKey& key, std::uint64_t bytes_sent) {
  if (const auto entry = entries_.find(key);
      entry != entries_.end() && entry->second.state == kAveraging)
    become(entry, kSummed);
  hash(key, bytes_sent);
}

void GradientExchange::hash(const RoundKey& key, std::uint64_t bytes_sent) {
  const Region region = region_of(key.group);
  auto message = std::make_shared<wire::Reduced>();
  jobs_.run(
      [this, message, region, bring = take_landing(key)]() -> Result<void> {
        return summarize(region, bring, *message);
      },
      [this, message, key, bytes_sent] {
        island_rounds_.give(key);
        if (key.phase.step == next_step_) report(key, bytes_sent, *message);
      });
}

Result<void> GradientExchange::summarize(const Region& region, const ParameterState::Bring& bring,
                                         wire::Reduced& message) {
  const auto summary = context_.state.take_reduced(region.first, region.size, bring);
  if (!summary) return std::unexpected(summary.error());
  message.set_digest(summary->digest);
  message.set_sum_of_squares(summary->sum_of_squares);
  return {};
}

void GradientExchange::report(const RoundKey& key, std::uint64_t bytes_sent,
                              wire::Reduced& message) {
  const auto entry = entries_.find(key);
  const GradientState state = state_of(key);
  if (state == kSummed || state == kPlacing) {
    take_place(key);
    become(entry, kHeld);
  } else if (state == kFetching && entry->second.fetch->digest() == message.digest()) {
    SWARMLINE_MARK("gradients.summed_while_fetched");
    take_place(key);
    become(entry, kBoth);
  }
  if (in_place(state_of(key))) entry->second.digest = message.digest();
  *message.mutable_seat() = to_wire(context_.self);
  *message.mutable_phase() = to_wire(key.phase);
  message.set_group(key.group.value);
  message.set_attempt(key.attempt.value);
  message.set_reduce_bytes(bytes_sent);
  if (!groups_.is_shared(key.group)) hooks_.account(key.phase, message);
  context_.notify_coordinator(make_frame(MessageKind::kReduced, message));
}

void GradientExchange::report_broken_rounds(const Seat& peer, const Error& error) {
  std::vector<RoundKey> rounds = averager_.waiting_for(peer);
  std::ranges::copy(island_rounds_.waiting_for(peer), std::back_inserter(rounds));
  for (const RoundKey& key : rounds) {
    wire::RoundBroken broken;
    *broken.mutable_seat() = to_wire(context_.self);
    *broken.mutable_phase() = to_wire(key.phase);
    broken.set_group(key.group.value);
    broken.set_attempt(key.attempt.value);
    *broken.mutable_beyond() = to_wire(peer);
    broken.set_own_end(error.code == ErrorCode::kIo);
    broken.set_nobody_there(error.code == ErrorCode::kNotFound);
    context_.notify_coordinator(make_frame(MessageKind::kRoundBroken, broken));
  }
}

// ---- Commits ------------------------------------------------------------------------------------

bool GradientExchange::have(const RoundKey& key, std::uint64_t digest) {
  const auto entry = entries_.find(key);
  const GradientState state = state_of(key);
  if (in_place(state) && entry->second.digest == digest) return true;
  switch (state) {
    case kChecked:
      place(key);
      break;
    case kPlacing:
      break;
    case kFetching:
    case kBoth:
      // What the coordinator waited for it does not any more: it names no other holders.
      if (std::exchange(entry->second.fetch->coordinator_waits, false))
        fetch(key, digest, mates(), false);
      pump(key);
      break;
    default:
      SWARMLINE_MARK("gradients.committed_one_fetched");
      log(LogLevel::kInfo, "{}: fetching the reduced gradient of {}", to_string(context_.self),
          to_string(key.phase));
      fetch(key, digest, mates(), false);
  }
  return false;
}

void GradientExchange::expect(const RoundKey& key, std::uint64_t digest) {
  const GradientState state = state_of(key);
  if (state == kNone || state == kRetained) fetch(key, digest, mates(), false);
}

void GradientExchange::on_commit(std::uint64_t step, bool skipped) {
  averager_.retire({PhaseKind::kTrain, step});
  island_rounds_.retire(step);
  codecs_.on_commit(skipped);
  drop_rounds([&](const RoundKey& key) { return key.phase.step <= step; });
  next_step_ = step + 1;
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry)
    if (entry->first.phase.step <= step && entry->second.state == kBoth) become(entry, kHeld);
  forget([&](const RoundKey& key, GradientState state) {
    return key.phase.step <= step &&
           (state == kAveraging || state == kSummed || state == kFetching || state == kChecked);
  });
}

void GradientExchange::retain(std::uint64_t step) {
  auto copy = std::make_shared<Buffer>();
  std::map<RoundKey, std::uint64_t> held;
  for (const auto& [key, entry] : entries_)
    if (key.phase.step == step && in_place(entry.state)) held[key] = entry.digest;
  jobs_.run(
      [this, copy]() -> Result<void> {
        *copy = Buffer::copy_of(context_.state.reduced());
        return {};
      },
      [this, copy, held, step] {
        if (step + kRetainedSteps < next_step_) return;
        copies_[step] = SharedBytes(std::move(*copy));
        for (const auto& [key, digest] : held) {
          const auto entry = entries_.try_emplace(key).first;
          if (entry->second.state == kNone) become(entry, kRetained);
          if (entry->second.state == kHeld) become(entry, kKept);
          entry->second.digest = digest;
        }
      });
}

void GradientExchange::forget_retained(std::uint64_t committed_step) {
  const auto old = [&](std::uint64_t step) { return step + kRetainedSteps <= committed_step; };
  forget([&](const RoundKey& key, GradientState state) {
    return old(key.phase.step) && state == kRetained;
  });
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry)
    if (old(entry->first.phase.step) && entry->second.state == kKept) become(entry, kHeld);
  std::erase_if(copies_, [&](const auto& copy) { return old(copy.first); });
}

std::optional<RoundAttempt> GradientExchange::attempt_of(std::uint64_t step, GroupId group,
                                                         std::uint64_t digest) const {
  std::optional<RoundAttempt> found;
  for (const auto& [key, entry] : entries_)
    if (key.phase == Phase{PhaseKind::kTrain, step} && key.group == group &&
        in_place(entry.state) && entry.digest == digest)
      found = key.attempt;
  return found;
}

BytesView GradientExchange::bytes(const RoundKey& key) const {
  if (!in_group(key.group)) return {};
  const Region region = region_of(key.group);
  const GradientState state = state_of(key);
  if (in_place(state))
    return BytesView(context_.state.reduced()).subspan(region.first, region.size);
  if (state == kRetained)
    return copies_.at(key.phase.step).view().subspan(region.first, region.size);
  return {};
}

// ---- Other beginnings ---------------------------------------------------------------------------

void GradientExchange::begin_at(Version version) {
  next_step_ = version.value;
  if (version.value == 0) return;
  averager_.retire({PhaseKind::kTrain, version.value - 1});
  island_rounds_.retire(version.value - 1);
}

void GradientExchange::drop_fetches(std::uint64_t first, std::uint64_t end) {
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry)
    if (entry->first.phase.step >= first && entry->first.phase.step < end &&
        entry->second.state == kBoth)
      become(entry, kHeld);
  forget([&](const RoundKey& key, GradientState state) {
    return key.phase.step >= first && key.phase.step < end &&
           (state == kFetching || state == kChecked);
  });
}

void GradientExchange::inherit(const GradientExchange& from) {
  for (const auto& [key, theirs] : from.entries_) {
    if (!in_place(theirs.state) && theirs.state != kRetained) continue;
    const auto entry = entries_.try_emplace(key).first;
    // A commit that came meanwhile may have begun to fetch it.
    const bool fetched = entry->second.fetch && in_place(theirs.state) &&
                         entry->second.fetch->digest() == theirs.digest;
    if (entry->second.state != kNone && !fetched) continue;
    if (fetched) become(entry, kBoth);
    if (!fetched) become(entry, theirs.state == kRetained ? kRetained : kHeld);
    if (theirs.state == kKept && !fetched) become(entry, kKept);
    entry->second.digest = theirs.digest;
  }
  copies_ = from.copies_;
}

void GradientExchange::announce_held() {
  for (const auto& [key, entry] : entries_)
    if (key.phase.step == next_step_ && in_place(entry.state)) hash(key, 0);
}

void GradientExchange::check_invariants() const {
  std::map<GroupId, int> places;
  std::optional<Phase> phase;
  for (const auto& [key, entry] : entries_) {
    SWARMLINE_CHECK(entry.state != kNone && in_group(key.group));
    SWARMLINE_CHECK(entry.fetch.has_value() == (entry.state == kFetching || entry.state == kBoth));
    SWARMLINE_CHECK((entry.fetched.size() > 0) == (entry.state == kChecked));
    if (entry.state == kKept || entry.state == kRetained)
      SWARMLINE_CHECK(copies_.contains(key.phase.step));
    if (entry.state == kAveraging || entry.state == kSummed)
      SWARMLINE_CHECK(key.phase.step >= next_step_);
    if (!in_place(entry.state) && entry.state != kPlacing) continue;
    SWARMLINE_CHECK_MSG(++places[key.group] == 1, "two gradients of a group in one place");
    SWARMLINE_CHECK_MSG(phase.value_or(key.phase) == key.phase, "two steps in one place");
    phase = key.phase;
  }
  SWARMLINE_CHECK(copies_.size() <= kRetainedSteps + 1);
}

}  // namespace swarmline
