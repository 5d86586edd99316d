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

void Checkpointer::on_committed(std::uint64_t version, std::uint64_t updates) {
  // The one before is not done: the next commit is asked, too.
  if (!round_ && schedule_.is_due(version, in_.alarms.now())) begin(version, updates);
}

bool Checkpointer::begin_last(std::uint64_t version, std::uint64_t updates) {
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
  begin(version, updates);
  if (!round_) return false;
  round_->is_last = true;
  if (last_failures_ > 0) SWARMLINE_MARK("checkpointer.last_again");
  return true;
}

void Checkpointer::begin(std::uint64_t version, std::uint64_t updates) {
  for (const StageSpec& stage : in_.shape.stages)
    if (in_.members.ready_of(stage.stage).empty()) return;  // it is being taken over
  const RunConfig& config = in_.shape.config;
  const Instant now = in_.alarms.now();
  round_ = Round();
  Round& round = *round_;
  round.name = fmt::format("step-{}", version);
  round.token = fmt::format("{}#{}.{}", round.name, in_.identity.term.value, ++begun_);
  round.version = version;
  round.progressed = now;
  in_.sink.begin({.name = round.name,
                  .version = version,
                  .era = in_.identity.era,
                  .stages = in_.shape.stages,
                  .config_toml = in_.shape.options.config_toml,
                  .optimizer_state = config.checkpoint.optimizer,
                  .updates = updates},
                 of_this_round([this](const Result<void>& begun) {
                   if (!begun) failed("it can't be written: " + begun.error().what);
                 }));
  for (const StageSpec& spec : in_.shape.stages) {
    const StageId stage = spec.stage;
    std::vector<Seat> seats = in_.members.staying_of(stage);
    if (seats.empty()) seats = in_.members.ready_of(stage);
    Saver& saver = round.savers[stage];
    saver.seat = seats[schedule_.failures() % seats.size()];  // it may have been that one's fault
    saver.bytes_max =
        saved_state(config, in_.shape.layouts[stage.value], config.checkpoint.optimizer).bytes +
        Limits::safetensors_header_bytes_max;
    saver.progressed = now;
    wire::SaveStage save;
    save.set_version(version);
    save.set_checkpoint(round.token);
    in_.outbox.send(saver.seat, make_frame(MessageKind::kSaveStage, save));
  }
  schedule_.on_begun(now);
  arm_deadline();
}

// ---- Progress -----------------------------------------------------------------------------------

void Checkpointer::arm_deadline() {
  Instant oldest = round_->committing ? round_->progressed : in_.alarms.now();
  for (const auto& [stage, saver] : round_->savers)
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
    for (auto& [stage, saver] : round_->savers) saver.progressed = now;
  }
  const auto is_late = [now](Instant since) { return now - since >= knobs().checkpoint_progress; };
  for (const auto& [stage, saver] : round_->savers) {
    if (saver.finished || !is_late(saver.progressed)) continue;
    SWARMLINE_MARK("checkpointer.no_progress");
    return failed(fmt::format("stage {} made no progress for {:.3g} s", stage.value,
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
  return round_ && round_->savers.at(seat.stage).seat == seat;
}

// ---- Pieces -------------------------------------------------------------------------------------

// Its sender did not hear in time that it came.
bool Checkpointer::is_sent_again(const Seat& seat, const wire::CheckpointPiece& piece,
                                 std::uint64_t bytes) const {
  if (!round_ || round_->token != piece.checkpoint() || piece.stage() >= in_.shape.stages.size())
    return false;
  const Saver& saver = round_->savers.at(StageId{static_cast<std::uint16_t>(piece.stage())});
  return saver.seat == seat && saver.received > 0 && piece.offset() == saver.piece_at &&
         piece.offset() + bytes == saver.received;
}

// Pieces come in order and end within what a stage can hold.
Result<void> Checkpointer::check_piece(const Seat& seat, const wire::CheckpointPiece& piece,
                                       std::uint64_t bytes) const {
  if (!round_ || round_->token != piece.checkpoint() || piece.stage() >= in_.shape.stages.size())
    return fail(ErrorCode::kRefused, "nobody asked for that piece");
  const Saver& saver = round_->savers.at(StageId{static_cast<std::uint16_t>(piece.stage())});
  if (saver.seat != seat || saver.finished)
    return fail(ErrorCode::kRefused, "nobody asked for that piece");
  const std::uint64_t room = saver.bytes_max - saver.received;
  if (saver.respond || piece.offset() != saver.received || bytes > room ||
      (bytes == 0 && !piece.last()) || (piece.last() && piece.size() != saver.received + bytes))
    return fail(ErrorCode::kCorrupt, "a piece out of order, or beyond the end of its stage");
  return {};
}

void Checkpointer::on_piece(const Seat& seat, const Frame& frame,
                            const RpcChannel::Respond& respond) {
  auto piece = parse<wire::CheckpointPiece>(frame);
  if (!piece) return in_.outbox.respond(respond, std::unexpected(piece.error()));
  const StageId stage{static_cast<std::uint16_t>(piece->stage())};
  if (is_sent_again(seat, *piece, frame.payload_bytes())) {
    SWARMLINE_MARK("checkpointer.piece_sent_again");
    Saver& saver = round_->savers.at(stage);
    if (saver.respond) {
      saver.respond = respond;
    } else {
      in_.outbox.respond(
          respond, make_frame(MessageKind::kCheckpointPieceReply, wire::CheckpointPieceReply()));
    }
    return;
  }
  if (is_saving(seat) && piece->stage() == seat.stage.value && !piece->error().empty() &&
      round_->token == piece->checkpoint()) {
    SWARMLINE_MARK("checkpointer.saver_failed");
    in_.outbox.respond(
        respond, make_frame(MessageKind::kCheckpointPieceReply, wire::CheckpointPieceReply()));
    return failed(to_string(seat) + " can't save its stage: " + piece->error());
  }
  if (auto fits = check_piece(seat, *piece, frame.payload_bytes()); !fits)
    return in_.outbox.respond(respond, std::unexpected(fits.error()));
  Saver& saver = round_->savers.at(stage);
  saver.respond = respond;
  take_piece(saver, *piece, frame);
}

void Checkpointer::take_piece(Saver& saver, const wire::CheckpointPiece& piece,
                              const Frame& frame) {
  const StageId stage = saver.seat.stage;
  saver.piece_at = saver.received;
  saver.received += frame.payload_bytes();
  saver.progressed = in_.alarms.now();
  bytes_ += frame.wire_bytes();
  in_.sink.write_piece(stage, piece.offset(),
                       frame.payload.empty() ? SharedBytes() : frame.payload.front(),
                       of_this_round([this, stage, last = piece.last()](const Result<void>& kept) {
                         if (!kept || !last) piece_kept(stage, false, kept);
                       }));
  if (!piece.last()) return;
  in_.sink.finish_stage(stage, piece.size(), piece.sha256(),
                        of_this_round([this, stage](const Result<void>& finished) {
                          piece_kept(stage, true, finished);
                        }));
}

void Checkpointer::piece_kept(StageId stage, bool last, const Result<void>& kept) {
  Saver& saver = round_->savers.at(stage);
  if (const auto respond = std::exchange(saver.respond, nullptr)) {
    auto reply = make_frame(MessageKind::kCheckpointPieceReply, wire::CheckpointPieceReply());
    in_.outbox.respond(respond,
                       kept ? Result<Frame>(std::move(reply))
                            : std::unexpected(Error{ErrorCode::kRefused, kept.error().what}));
  }
  if (!kept) {
    if (kept.error().code == ErrorCode::kCorrupt) {  // bytes changed on their way here
      SWARMLINE_MARK("checkpointer.damaged");
      return failed(kept.error().what);
    }
    return failed("it can't be written: " + kept.error().what);
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
  round_.reset();
  schedule_.on_done();
  last_failures_ = 0;
  if (auto kept = in_.journal.record_checkpoint(*path); !kept)
    return in_.rulings.journal_failed(kept.error());
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
  for (auto& [stage, saver] : round_->savers)
    if (saver.respond)
      in_.outbox.respond(saver.respond, fail(ErrorCode::kRefused, "the checkpoint is given up"));
  in_.events.event("checkpoint_abandoned", fmt::format("{}: {}", round_->name, why),
                   LogLevel::kWarn);
  round_.reset();
}

// Its file can't be ended by another: the bytes are the same, the version may be gone there.
void Checkpointer::on_seat_lost(const SeatLoss& lost) {
  if (is_saving(lost.seat) && !round_->savers.at(lost.seat.stage).finished)
    abandon(to_string(lost.seat) + " is lost");
}

void Checkpointer::on_rollback() {
  abandon("the run goes back");
  schedule_.forget();
  last_failures_ = 0;
}

void Checkpointer::began_with(const std::string& path, std::uint64_t version) {
  last_ = path;
  saved_version_.reset();
  if (!path.empty()) saved_version_ = version;
}

void Checkpointer::check_invariants() const {
  if (!round_) return;
  SWARMLINE_CHECK(round_->savers.size() == in_.shape.stages.size());
  SWARMLINE_CHECK(round_->committing == std::ranges::all_of(round_->savers, [](const auto& of) {
                    return of.second.finished;
                  }));
}

}  // namespace swarmline
