#include "pipeline/coordinator/states/checkpointer.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/limits.h"
#include "base/marks.h"
#include "engine/optimizer/saved_state.h"
#include "pipeline/protocol/knobs.h"
#include "pipeline/protocol/message_kinds.h"

namespace swarmline {

template <typename Function>
auto Checkpointer::of_this_round(Function function) {
  return in_.alarms.then_settle(
      [this, token = round_->token, function = std::move(function)](const auto& result) {
        if (round_ && round_->token == token) function(result);
      });
}

void Checkpointer::on_committed(const CommittedVersion& of) {
  // The one before is not done: the next commit is asked, too.
  if (!round_ && schedule_.is_due(of.version, in_.alarms.now())) begin(of);
}

bool Checkpointer::begin_last(const CommittedVersion& last) {
  if (last_failures_ >= knobs().final_checkpoints_max) {
    SWARMLINE_MARK("checkpointer.last_given_up");
    in_.rulings.fail_run(fmt::format(
        "the last step is done, and its checkpoint could not be written in {} tries: {}; the "
        "newest one is {}",
        last_failures_, failure_, last_.empty() ? "none" : last_));
    return true;
  }
  const Instant may_begin = schedule_.may_begin();
  if (in_.alarms.now() < may_begin) {
    if (!std::exchange(waits_, true)) in_.alarms.at(may_begin, [this] { waits_ = false; });
    return false;
  }
  begin(last);
  if (!round_) return false;
  round_->is_last = true;
  if (last_failures_ > 0) SWARMLINE_MARK("checkpointer.last_again");
  return true;
}

void Checkpointer::begin(const CommittedVersion& of) {
  const RunConfig& config = in_.shape.config;
  std::vector<std::uint32_t> parts;
  std::vector<std::vector<Seat>> savers;
  std::vector<std::uint64_t> bytes;
  for (const StageSpec& spec : in_.shape.stages) {
    if (in_.members.count_ready(spec.stage) == 0) return;  // it is being taken over
    bytes.push_back(
        saved_state(config, in_.shape.layouts[spec.stage.value], config.checkpoint.optimizer)
            .bytes);
    savers.push_back(savers_of(spec.stage, bytes.back()));
    parts.push_back(static_cast<std::uint32_t>(savers.back().size()));
  }
  const Instant now = in_.alarms.now();
  round_ = Round();
  round_->name = fmt::format("step-{}", of.version);
  round_->token = fmt::format("{}#{}.{}", round_->name, in_.identity.term.value, ++begun_);
  round_->attempt = std::uint64_t{in_.identity.term.value} << 32 | begun_;
  round_->version = of.version;
  round_->progressed = now;
  in_.sink.begin({.name = round_->name,
                  .version = of.version,
                  .era = in_.identity.era,
                  .stages = in_.shape.stages,
                  .config_toml = in_.shape.options.config_toml,
                  .optimizer_state = config.checkpoint.optimizer,
                  .updates = of.updates,
                  .tokens = of.tokens,
                  .attempt = round_->attempt,
                  .parts = parts},
                 of_this_round([this](const Result<void>& result) { begun(result); }));
  for (std::uint16_t stage = 0; stage < savers.size(); ++stage)
    for (std::uint32_t part = 0; part < parts[stage]; ++part)
      ask({StageId{stage}, part}, parts[stage],
          {.seat = savers[stage][part],
           .bytes_max = bytes[stage] + Limits::safetensors_header_bytes_max,
           .progressed = now});
  schedule_.on_begun(now);
  arm_deadline();
}

// One part each. Those who have not shown that they see the folder send it, and one is enough.
std::vector<Seat> Checkpointer::savers_of(StageId stage, std::uint64_t bytes) const {
  std::vector<Seat> seats = in_.members.staying_of(stage);
  if (seats.empty()) seats = in_.members.ready_of(stage);
  // If the one before failed it may have been that one's fault.
  std::ranges::rotate(seats, seats.begin() + schedule_.failures() % seats.size());
  const std::size_t most = std::min<std::size_t>(seats.size(), kCheckpointPartsMax);
  const bool all_write = seen_.contains(stage) && in_.shape.config.checkpoint.peers_write;
  seats.resize(all_write ? std::clamp<std::size_t>(bytes / knobs().part_bytes_min, 1, most) : 1);
  if (seats.size() > 1) SWARMLINE_MARK("checkpointer.stage_in_parts");
  return seats;
}

void Checkpointer::ask(CheckpointPart part, std::uint32_t parts, Saver saver) {
  wire::SaveStage save;
  save.set_version(round_->version);
  save.set_checkpoint(round_->token);
  save.set_part(part.part);
  save.set_parts(parts);
  save.set_attempt(round_->attempt);
  const auto shared = in_.sink.shared();
  if (shared && in_.shape.config.checkpoint.peers_write && !failing_.contains(saver.seat)) {
    save.mutable_folder()->set_path(shared->path);
    save.mutable_folder()->set_token(shared->token);
  }
  in_.outbox.send(saver.seat, make_frame(MessageKind::kSaveStage, save));
  round_->savers[part] = std::move(saver);
}

void Checkpointer::begun(const Result<void>& begun) {
  if (!begun) return failed("it can't be written: " + begun.error().what);
  round_->begun = true;
  for (auto& [part, saver] : round_->savers)
    if (saver.writes && saver.received == 0) answer(saver, {});
}

// ---- Progress -----------------------------------------------------------------------------------

void Checkpointer::arm_deadline() {
  Instant oldest = round_->committing ? round_->progressed : in_.alarms.now();
  for (const auto& [part, saver] : round_->savers)
    if (!saver.finished) oldest = std::min(oldest, saver.progressed);
  round_->deadline =
      in_.alarms.at(oldest + knobs().checkpoint_progress, [this, token = round_->token] {
        if (round_ && round_->token == token) look_for_progress();
      });
}

void Checkpointer::look_for_progress() {
  const Instant now = in_.alarms.now();
  if (in_.detector.was_stopped(now)) {
    round_->progressed = now;
    for (auto& [part, saver] : round_->savers) saver.progressed = now;
  }
  const auto is_late = [now](Instant since) { return now - since >= knobs().checkpoint_progress; };
  for (const auto& [part, saver] : round_->savers) {
    if (saver.finished || !is_late(saver.progressed)) continue;
    SWARMLINE_MARK("checkpointer.no_progress");
    return failed(fmt::format("stage {} made no progress for {:.3g} s", part.stage.value,
                              to_seconds(knobs().checkpoint_progress)));
  }
  if (round_->committing && is_late(round_->progressed)) {
    SWARMLINE_MARK("checkpointer.no_progress");
    return failed(
        fmt::format("it was not in place after {:.3g} s", to_seconds(knobs().checkpoint_progress)));
  }
  arm_deadline();
}

bool Checkpointer::is_saving(const Seat& seat) const {
  return round_ && std::ranges::any_of(round_->savers, [&](const auto& saver) {
           return saver.second.seat == seat;
         });
}

// ---- Pieces -------------------------------------------------------------------------------------

// What that one was asked for; null: nothing.
std::pair<const CheckpointPart, Checkpointer::Saver>* Checkpointer::asked(
    const Seat& seat, const wire::CheckpointPiece& piece) {
  if (!round_ || round_->token != piece.checkpoint() || piece.stage() >= in_.shape.stages.size())
    return nullptr;
  const auto found =
      round_->savers.find({StageId{static_cast<std::uint16_t>(piece.stage())}, piece.part()});
  return found == round_->savers.end() || found->second.seat != seat ? nullptr : &*found;
}

// Pieces come in order and end within what a stage can hold.
Result<void> Checkpointer::check_piece(const Saver& saver, const wire::CheckpointPiece& piece,
                                       std::uint64_t bytes) {
  const bool opens = piece.written() && !saver.heard;  // it says that it is going to write
  if (saver.finished || saver.respond || piece.offset() != saver.received ||
      bytes > saver.bytes_max - saver.received || (bytes == 0 && !piece.last() && !opens) ||
      (saver.heard && saver.writes != piece.written()) ||
      (piece.last() && piece.size() != saver.received + bytes))
    return fail(ErrorCode::kCorrupt, "a piece out of order, or beyond the end of its stage");
  return {};
}

void Checkpointer::on_piece(const Seat& seat, const Frame& frame,
                            const RpcChannel::Respond& respond) {
  auto piece = parse<wire::CheckpointPiece>(frame);
  if (!piece) return in_.outbox.respond(respond, std::unexpected(piece.error()));
  auto* const found = asked(seat, *piece);
  if (found == nullptr)
    return in_.outbox.respond(respond, fail(ErrorCode::kRefused, "nobody asked for that piece"));
  auto& [part, saver] = *found;
  if (!piece->error().empty()) {
    SWARMLINE_MARK("checkpointer.saver_failed");
    saver.respond = respond;
    failing_.insert(seat);
    return failed(in_.events.who(seat) + " can't save its stage: " + piece->error());
  }
  const std::uint64_t bytes = piece->written()
                                  ? piece->size() - std::min(piece->size(), piece->offset())
                                  : frame.payload_bytes();
  // Its sender did not hear in time that it came.
  if (saver.heard && piece->offset() == saver.piece_at &&
      piece->offset() + bytes == saver.received) {
    SWARMLINE_MARK("checkpointer.piece_sent_again");
    const bool answered = !saver.respond;
    saver.respond = respond;
    return answered ? answer(saver, {}) : void();
  }
  if (auto fits = check_piece(saver, *piece, bytes); !fits)
    return in_.outbox.respond(respond, std::unexpected(fits.error()));
  saver.respond = respond;
  saver.heard = true;
  saver.writes = piece->written();
  saver.piece_at = saver.received;
  saver.received += bytes;
  saver.progressed = in_.alarms.now();
  if (saver.writes) return take_written(part, *piece);
  take_piece(part, *piece, frame);
}

void Checkpointer::take_piece(CheckpointPart part, const wire::CheckpointPiece& piece,
                              const Frame& frame) {
  bytes_ += frame.wire_bytes();
  in_.sink.write_piece(part, piece.offset(),
                       frame.payload.empty() ? SharedBytes() : frame.payload.front(),
                       of_this_round([this, part, last = piece.last()](const Result<void>& kept) {
                         if (!kept || !last) piece_kept(part, false, kept);
                       }));
  if (!piece.last()) return;
  in_.sink.finish_part(part, piece.size(), piece.sha256(),
                       of_this_round([this, part](const Result<void>& finished) {
                         piece_kept(part, true, finished);
                       }));
}

// Its bytes are on the disk, or its writer waits for the folder.
void Checkpointer::take_written(CheckpointPart part, const wire::CheckpointPiece& piece) {
  if (!piece.last()) {
    if (round_->begun) answer(round_->savers.at(part), {});
    return;
  }
  SWARMLINE_MARK("checkpointer.part_written_by_its_peer");
  in_.sink.adopt_part(part, piece.size(), piece.sha256(),
                      of_this_round([this, part](const Result<void>& adopted) {
                        piece_kept(part, true, adopted);
                      }));
}

void Checkpointer::answer(Saver& saver, const Result<void>& kept) {
  const auto respond = std::exchange(saver.respond, nullptr);
  if (!respond) return;
  if (!kept) return in_.outbox.respond(respond, fail(ErrorCode::kRefused, kept.error().what));
  in_.outbox.respond(respond,
                     make_frame(MessageKind::kCheckpointPieceReply, wire::CheckpointPieceReply()));
}

void Checkpointer::piece_kept(CheckpointPart part, bool last, const Result<void>& kept) {
  Saver& saver = round_->savers.at(part);
  answer(saver, kept);
  if (!kept) {
    if (saver.writes) failing_.insert(saver.seat);  // what it wrote is not what is here
    if (kept.error().code != ErrorCode::kCorrupt)
      return failed("it can't be written: " + kept.error().what);
    SWARMLINE_MARK("checkpointer.damaged");
    return failed(kept.error().what);
  }
  saver.progressed = in_.alarms.now();
  saver.finished = last;
  if (std::ranges::all_of(round_->savers, [](const auto& of) { return of.second.finished; }))
    commit();
}

// ---- How it ends --------------------------------------------------------------------------------

void Checkpointer::commit() {
  round_->committing = true;
  round_->progressed = in_.alarms.now();
  in_.sink.commit(of_this_round([this](const Result<std::string>& path) { committed(path); }));
}

void Checkpointer::committed(const Result<std::string>& path) {
  if (!path) return failed("it can't be written: " + path.error().what);
  in_.alarms.cancel(round_->deadline);
  last_ = *path;
  saved_version_ = round_->version;
  seen_.clear();
  for (const StageSpec& spec : in_.shape.stages) seen_.insert(spec.stage);
  for (const auto& [part, saver] : round_->savers)
    if (!saver.writes) seen_.erase(part.stage);
  round_.reset();
  schedule_.on_done();
  last_failures_ = 0;
  in_.journal.record_checkpoint(*path);
  in_.events.event("checkpoint", *path);
}

void Checkpointer::failed(const std::string& why) {
  SWARMLINE_MARK("checkpointer.failed");
  failure_ = why;
  if (round_->is_last) ++last_failures_;
  schedule_.on_failed(in_.alarms.now());
  drop_round(why);
}

void Checkpointer::abandon(const std::string& why) {
  if (!round_) return;
  schedule_.on_interrupted();
  drop_round(why);
}

void Checkpointer::drop_round(const std::string& why) {
  SWARMLINE_MARK("checkpointer.abandoned");
  in_.alarms.cancel(round_->deadline);
  in_.sink.abandon();
  for (auto& [part, saver] : round_->savers)
    answer(saver, fail(ErrorCode::kRefused, "the checkpoint is given up"));
  in_.events.event("checkpoint_abandoned", fmt::format("{}: {}", round_->name, why),
                   LogLevel::kWarn);
  round_.reset();
}

// Its file can't be ended by another: the bytes are the same, the version may be gone there.
void Checkpointer::on_seat_lost(const SeatLoss& lost) {
  failing_.erase(lost.seat);
  if (round_ && std::ranges::any_of(round_->savers, [&](const auto& of) {
        return of.second.seat == lost.seat && !of.second.finished;
      }))
    abandon(in_.events.who(lost.seat) + " is lost");
}

void Checkpointer::on_rollback() {
  abandon("the run goes back");
  schedule_.forget();
  last_failures_ = 0;
  failing_.clear();
}

void Checkpointer::began_with(const std::string& path, std::uint64_t version) {
  last_ = path;
  saved_version_.reset();
  if (!path.empty()) saved_version_ = version;
}

void Checkpointer::check_invariants() const {
  if (!round_) return;
  SWARMLINE_CHECK(round_->savers.size() >= in_.shape.stages.size());
  SWARMLINE_CHECK(round_->committing == std::ranges::all_of(round_->savers, [](const auto& of) {
                    return of.second.finished;
                  }));
}

}  // namespace swarmline
