// From leases to the commit: one step's life as the coordinator sees it.
#include <algorithm>
#include <cmath>

#include "engine/base/limits.h"
#include "engine/base/log.h"
#include "engine/collective/slices.h"
#include "engine/optimizer/flat_optimizer.h"
#include "pipeline/coordinator/coordinator_impl.h"

namespace swarmline {

namespace {

constexpr std::size_t kFailuresKept = 8;  // sentences of one microbatch
constexpr std::size_t kFailureBytesMax = 1024;
constexpr Duration kReduceDeadline = std::chrono::seconds(300);
// Slices begin on whole codec blocks (4096 elements is the largest) and cache lines.
constexpr std::uint64_t kSliceAlignment = 4096;

std::string pack_mask(const StageMask& mask) {
  if (std::all_of(mask.begin(), mask.end(), [](bool wanted) { return wanted; })) return {};
  std::string packed((mask.size() + 7) / 8, '\0');
  for (std::size_t s = 0; s < mask.size(); ++s)
    if (mask[s]) packed[s / 8] = static_cast<char>(packed[s / 8] | 1 << (s % 8));
  return packed;
}

}  // namespace

// ---- Leases -------------------------------------------------------------------------------------

void Coordinator::Impl::on_want_leases(const wire::WantLeases& want) {
  if (want.seat().stage() != 0) return;  // only stage 0 has the data
  LeaseBook& source = sources_[PeerId{want.seat().peer()}];
  source.wanted = std::max(source.wanted, want.total());
  pump_leases();
}

void Coordinator::Impl::pump_leases() {
  if (state_ == State::kWaiting || ended_) return;
  std::vector<Phase> phases = ledger_.open_phases();
  // Evaluations first: the step on their version follows them.
  std::sort(phases.begin(), phases.end(), [](const Phase& a, const Phase& b) {
    return a.kind != b.kind ? a.kind > b.kind : a.step < b.step;
  });
  std::map<PeerId, wire::Leases> granted;
  for (const Phase& phase : phases) {
    bool progress = true;
    while (progress && ledger_.leasable(phase) > 0) {
      progress = false;
      for (auto& [peer, source] : sources_) {
        if (source.granted >= source.wanted || !peers_.contains(peer)) continue;
        for (const Lease& lease : ledger_.lease(phase, peers_.at(peer)->seat, 1)) {
          for (std::uint32_t i = 0; i < lease.count; ++i) {
            wire::Lease* out = granted[peer].add_leases();
            *out->mutable_phase() = to_wire(lease.phase);
            out->set_index(lease.first + i);
            out->set_attempt(lease.attempt.value);
            if (phase.kind == PhaseKind::kTrain) out->set_stage_mask(pack_mask(lease.stages));
          }
          source.granted += lease.count;
          progress = true;
        }
      }
    }
  }
  for (const auto& [peer, leases] : granted)
    peers_.at(peer)->channel->notify(make_frame(MessageKind::kLeases, leases));
}

// ---- Contributions ------------------------------------------------------------------------------

void Coordinator::Impl::on_report(const wire::Report& report) {
  const Seat seat = from_wire(report.seat());
  const Phase phase = from_wire(report.phase());
  wire::ReportAck ack;
  *ack.mutable_phase() = report.phase();
  for (const wire::Contribution& contribution : report.contributions()) {
    const Verdict verdict = ledger_.report(phase, seat.stage, contribution.index(), seat,
                                           Attempt{contribution.attempt()});
    if (verdict == Verdict::kRefused) {
      ack.add_refused(contribution.index());
      continue;
    }
    ack.add_accepted(contribution.index());
    if (verdict == Verdict::kAccepted && seat.stage.value + 1U == stages_.size())
      ledger_.record_loss(phase, contribution.index(), contribution.loss_sum());
  }
  notify(seat, make_frame(MessageKind::kReportAck, ack));
  after_progress(phase);
}

void Coordinator::Impl::on_claim(const SessionPtr& session, const Frame& frame,
                                 const RpcChannel::Respond& respond) {
  auto claim = parse<wire::Claim>(frame);
  if (!claim) return respond(std::unexpected(claim.error()));
  const Seat seat = from_wire(claim->seat());
  const AttemptId id = from_wire(claim->id());
  wire::ClaimReply reply;
  reply.set_granted(
      id.attempt.value != 0 && seat == session->seat && membership_.is_current(seat) &&
      ledger_.claim(id.microbatch.phase, seat.stage, id.microbatch.index, seat, id.attempt));
  respond(make_frame(MessageKind::kClaimReply, reply));
}

void Coordinator::Impl::on_compute_failed(const wire::ComputeFailed& failed) {
  const Seat seat = from_wire(failed.seat());
  const AttemptId id = from_wire(failed.id());
  const Phase phase = id.microbatch.phase;
  if (!ledger_.is_open(phase) || id.microbatch.index >= ledger_.indices(phase)) return;
  const std::uint32_t peers = ledger_.report_failure(phase, id.microbatch.index, seat.peer);
  std::vector<std::string>& whats = failures_[id.microbatch];
  if (whats.size() < kFailuresKept)
    whats.push_back(
        fmt::format("{}: {}", to_string(seat), failed.what().substr(0, kFailureBytesMax)));
  const std::size_t stage_peers = membership_.ready_of(seat.stage).size();
  const auto limit = std::clamp<std::size_t>(stage_peers, 1, Limits::failures_per_microbatch_max);
  if (peers >= limit) {
    std::string errors;
    for (const std::string& what : whats) errors += "; " + what;
    return fail_run(
        fmt::format("{} failed on {} peers{}", to_string(id.microbatch), peers, errors));
  }
  ledger_.release_claim(phase, seat.stage, id.microbatch.index, seat, id.attempt);
  // Elsewhere the sender before picks another peer; a source has none before it.
  if (seat.stage.value == 0) ledger_.expire(phase, id.microbatch.index);
  pump_leases();
}

void Coordinator::Impl::on_stall(const wire::StallReport& stall) {
  const Seat reporter = from_wire(stall.seat());
  const Seat stalled = from_wire(stall.stalled());
  log(LogLevel::kWarn, "{} reports that {} does not answer for {}", to_string(reporter),
      to_string(stalled), to_string(from_wire(stall.id()).microbatch));
  // The stalled peer's upstream hears nothing of a gradient that did not arrive: the one who sent
  // it told us.
  if (reporter.stage.value != stalled.stage.value + 1U || stalled.stage.value == 0) return;
  for (const Seat& upstream :
       membership_.ready_of(StageId{static_cast<std::uint16_t>(stalled.stage.value - 1)}))
    notify(upstream, make_frame(MessageKind::kStallReport, stall));
}

void Coordinator::Impl::after_progress(const Phase& phase) {
  if (!ledger_.is_open(phase) || !ledger_.complete(phase)) return;
  if (phase.kind == PhaseKind::kEval) return finish_eval(phase);
  if (!board_.active() && sequence_.may_seal(phase.step)) seal(phase.step);
}

void Coordinator::Impl::finish_eval(const Phase& phase) {
  const auto tokens =
      static_cast<double>(std::uint64_t{ledger_.indices(phase)} * options_.config.batch.microbatch *
                          options_.config.batch.sequence);
  const double loss = ledger_.loss_sum(phase) / tokens;
  ledger_.commit(phase);
  std::erase_if(failures_, [&](const auto& entry) { return entry.first.phase == phase; });
  stats_.on_evaluated(loss);
  wire::RetirePhase retire;
  *retire.mutable_phase() = to_wire(phase);
  broadcast(make_frame(MessageKind::kRetirePhase, retire));
  if (options_.log_line) {
    EvalLogLine line;
    line.version = phase.step;
    line.loss = loss;
    line.sequences = options_.eval_sequences;
    line.tokens = static_cast<std::uint64_t>(tokens);
    line.wall_seconds = runtime_.wall_seconds();
    options_.log_line(to_json_line(line));
  }
  sequence_.on_evaluated(phase.step);
  // A step that only waited for this evaluation can close now.
  for (const Phase& open : ledger_.open_phases()) after_progress(open);
  advance();
}

// ---- Close, reduce, commit
// -----------------------------------------------------------------------------------------------

wire::ReduceGroup Coordinator::Impl::group_of(std::uint32_t id, const std::vector<Seat>& members,
                                              std::uint64_t elements) const {
  wire::ReduceGroup group;
  group.set_group(id);
  for (const Seat& seat : members) {
    wire::GroupMember* member = group.add_members();
    *member->mutable_seat() = to_wire(seat);
    member->set_address(membership_.members().at(seat.peer).address);
  }
  const std::vector<double> equal(members.size(), 1.0 / static_cast<double>(members.size()));
  const std::vector<std::uint64_t> bounds = slice_bounds(elements, equal, kSliceAlignment);
  for (std::size_t i = 1; i < bounds.size(); ++i) group.add_slice_ends(bounds[i]);
  return group;
}

void Coordinator::Impl::seal(std::uint64_t step) {
  const Phase phase{PhaseKind::kTrain, step};
  const auto stage_count = static_cast<std::uint16_t>(stages_.size());
  std::map<std::uint32_t, std::vector<Seat>> members;
  for (std::uint16_t s = 0; s < stage_count; ++s) {
    ledger_.begin_close(phase, StageId{s});
    members[s] = membership_.ready_of(StageId{s});
  }
  std::map<std::uint32_t, wire::ReduceGroup> groups;
  for (std::uint16_t s = 0; s < stage_count; ++s)
    groups[s] = group_of(s, members[s], layouts_[s].tied_offset);
  const bool tied = stage_count > 1 && layouts_[0].has_tied();
  if (tied) {
    std::vector<Seat> both = members[0];
    both.insert(both.end(), members[stage_count - 1U].begin(), members[stage_count - 1U].end());
    members[stage_count] = both;
    groups[stage_count] =
        group_of(stage_count, both, layouts_[0].elements - layouts_[0].tied_offset);
  }
  for (std::uint16_t s = 0; s < stage_count; ++s) {
    for (const Seat& seat : members[s]) {
      wire::Seal seal;
      *seal.mutable_phase() = to_wire(phase);
      for (const IndexRange& range : ledger_.owned_by(phase, StageId{s}, seat.peer)) {
        wire::Range* owned = seal.add_owned();
        owned->set_first(range.first);
        owned->set_count(range.count);
      }
      *seal.add_groups() = groups[s];
      if (tied && (s == 0 || s + 1 == stage_count)) *seal.add_groups() = groups[stage_count];
      notify(seat, make_frame(MessageKind::kSeal, seal));
    }
  }
  board_.begin(step, std::move(members));
  arm_reduce_deadline(step);
  sequence_.on_sealed(step);
  advance();
}

void Coordinator::Impl::arm_reduce_deadline(std::uint64_t step) {
  reduce_deadline_ = runtime_.call_after(kReduceDeadline, [weak = weak(), step] {
    auto self = weak.lock();
    if (!self || !(*self)->board_.active() || (*self)->board_.step() != step) return;
    if ((*self)->was_stopped()) return (*self)->arm_reduce_deadline(step);
    std::string who;
    for (const Seat& seat : (*self)->board_.missing())
      who += (who.empty() ? "" : ", ") + to_string(seat);
    (*self)->fail_run(fmt::format("averaging step {} did not end in {:.0f} s; still missing: {}",
                                  step, to_seconds(kReduceDeadline), who));
  });
}

void Coordinator::Impl::on_reduced(const wire::Reduced& reduced) {
  const auto counts = board_.report(reduced);
  if (!counts) return fail_run(counts.error().what);
  if (!*counts) return;
  stats_.on_reduced(reduced);
  boundaries_.on_reduced(reduced);
  if (board_.done()) commit();
}

void Coordinator::Impl::commit() {
  runtime_.cancel(reduce_deadline_);
  const std::uint64_t step = board_.step();
  const Phase phase{PhaseKind::kTrain, step};
  const double norm = std::sqrt(board_.sum_of_squares());
  const RunConfig& config = options_.config;
  CommitRecord record;
  record.step = step;
  record.version = step + 1;
  record.tokens = config.tokens_per_step();
  record.loss = ledger_.loss_sum(phase) / static_cast<double>(record.tokens);
  record.gradient_norm = norm;
  record.skipped = !std::isfinite(norm);
  if (record.skipped && config.run.on_nonfinite == "stop")
    return fail_run(fmt::format(
        "the gradient of step {} is not finite (loss {}); lower the learning rate, or set "
        "run.on_nonfinite = \"skip\" to pass over such steps",
        step, record.loss));
  StepScalars scalars;
  if (!record.skipped)
    scalars = step_scalars(config.optimizer, step, config.run.steps, updates_++, norm);
  record.clip_scale = scalars.clip_scale;
  record.learning_rate = scalars.learning_rate;
  for (const wire::GroupDigest& group : board_.digests())
    record.group_digests.push_back(group.digest());
  // Durable before anybody hears of it.
  if (auto kept = journal_.record_commit(record); !kept)
    return fail_run("the journal can't be written: " + kept.error().what);

  wire::Commit commit;
  commit.set_step(step);
  commit.set_skipped(record.skipped);
  for (const wire::GroupDigest& group : board_.digests()) *commit.add_groups() = group;
  commit.set_learning_rate(scalars.learning_rate);
  commit.set_clip_scale(scalars.clip_scale);
  commit.set_bias_correction1(scalars.bias_correction1);
  commit.set_bias_correction2(scalars.bias_correction2);
  commit.set_loss(record.loss);
  broadcast(make_frame(MessageKind::kCommit, commit));

  std::vector<PeerContributions> shares;
  for (const auto& [peer, member] : membership_.members()) {
    std::uint32_t owned = 0;
    for (const IndexRange& range : ledger_.owned_by(phase, member.seat.stage, peer))
      owned += range.count;
    membership_.at(peer).contributions += owned;
    shares.push_back({.peer = peer, .stage = member.seat.stage, .microbatches = owned});
  }
  const std::uint64_t reduce_bytes = board_.reduce_bytes();
  for (std::uint16_t s = 0; s < stages_.size(); ++s) ledger_.mark_reduced(phase, StageId{s});
  ledger_.commit(phase);
  board_.end();
  std::erase_if(failures_, [&](const auto& entry) { return entry.first.phase == phase; });
  sequence_.on_committed(step);
  stats_.on_commit(record, reduce_bytes, runtime_.now());
  choose_codecs();
  if (ended_ || state_ == State::kFailed) return;
  if (options_.log_line)
    options_.log_line(
        stats_.log_line(record, shares, boundaries_, reduce_bytes, runtime_.wall_seconds()));
  const std::uint64_t every = config.checkpoint.every_steps;
  if (every > 0 && record.version % every == 0 && record.version < config.run.steps)
    begin_checkpoint(record.version, false);
  for (const Phase& open : ledger_.open_phases()) after_progress(open);
  advance();
}

// Phases that open from now on travel so; those that are open keep what they were opened with.
void Coordinator::Impl::choose_codecs() {
  std::vector<std::uint32_t> peers;
  for (const StageSpec& stage : stages_)
    peers.push_back(static_cast<std::uint32_t>(membership_.ready_of(stage.stage).size()));
  const std::vector<std::string> changes = boundaries_.on_commit(peers);
  if (changes.empty()) return;
  if (auto kept = journal_.put_meta("codecs", boundaries_.to_text()); !kept)
    return fail_run("the journal can't be written: " + kept.error().what);
  for (const std::string& change : changes) event("codec", change);
}

void Coordinator::Impl::on_stepped(const wire::Stepped& stepped) {
  const Seat seat = from_wire(stepped.seat());
  if (stepped.version() == 0 || stepped.version() > sequence_.committed())
    return fail_run(fmt::format("{} says it applied step {}, which is not committed",
                                to_string(seat), stepped.version()));
  membership_.at(seat.peer).stepped =
      std::max(membership_.at(seat.peer).stepped, stepped.version());
  const auto key = std::pair{seat.stage, stepped.version()};
  const auto [known, first] = state_digests_.emplace(key, std::pair{seat, stepped.state_digest()});
  if (!first && known->second.second != stepped.state_digest())
    return fail_run(fmt::format("{} and {} hold different parameters after step {}",
                                to_string(known->second.first), to_string(seat),
                                stepped.version() - 1));
  std::erase_if(state_digests_,
                [&](const auto& entry) { return entry.first.second + 2 < stepped.version(); });
  if (sequence_.finished()) advance();
}

}  // namespace swarmline
