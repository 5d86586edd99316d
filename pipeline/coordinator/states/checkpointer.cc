#include "pipeline/coordinator/states/checkpointer.h"

#include <fmt/format.h>

#include "base/check.h"
#include "base/limits.h"
#include "base/marks.h"
#include "engine/optimizer/saved_state.h"
#include "pipeline/protocol/knobs.h"
#include "pipeline/protocol/message_kinds.h"

namespace swarmline {

void Checkpointer::begin(std::uint64_t version, std::uint64_t updates) {
  if (round_) return;  // the one before is not done; the next interval has its own
  for (const StageSpec& stage : in_.shape.stages)
    if (in_.members.ready_of(stage.stage).empty()) return;  // it is being taken over
  Round round;
  round.name = fmt::format("step-{}", version);
  round.token = fmt::format("{}#{}", round.name, ++begun_);
  round.version = version;
  const RunConfig& config = in_.shape.config;
  CheckpointSink::Description description{.name = round.name,
                                          .version = version,
                                          .stages = in_.shape.stages,
                                          .config_toml = in_.shape.options.config_toml,
                                          .optimizer_state = config.checkpoint.optimizer,
                                          .updates = updates};
  if (auto begun = in_.sink.begin(description); !begun)
    return in_.rulings.fail_run("the checkpoint can't be written: " + begun.error().what);
  for (const StageSpec& spec : in_.shape.stages) {
    const StageId stage = spec.stage;
    std::vector<Seat> seats = in_.members.staying_of(stage);
    if (seats.empty()) seats = in_.members.ready_of(stage);
    round.savers[stage] = seats.front();
    round.bytes_max[stage] =
        saved_state(config, in_.shape.layouts[stage.value], config.checkpoint.optimizer).bytes +
        Limits::safetensors_header_bytes_max;
    wire::SaveStage save;
    save.set_version(version);
    save.set_checkpoint(round.token);
    in_.outbox.send(seats.front(), make_frame(MessageKind::kSaveStage, save));
  }
  round_ = std::move(round);
  arm_deadline();
}

void Checkpointer::arm_deadline() {
  round_->deadline = in_.alarms.after(knobs().checkpoint_deadline, [this, token = round_->token] {
    if (!round_ || round_->token != token) return;
    if (in_.detector.was_stopped(in_.alarms.now())) return arm_deadline();
    SWARMLINE_MARK("checkpointer.deadline");
    in_.rulings.fail_run(fmt::format("checkpoint {} was not complete after {:.0f} s", round_->name,
                                     to_seconds(knobs().checkpoint_deadline)));
  });
}

bool Checkpointer::is_saving(const Seat& seat) const {
  return round_ && round_->savers.at(seat.stage) == seat;
}

// Pieces come in order and end within what a stage can hold.
Result<void> Checkpointer::check_piece(const Seat& seat, const wire::CheckpointPiece& piece,
                                       std::uint64_t bytes) const {
  const StageId stage{static_cast<std::uint16_t>(piece.stage())};
  if (!round_ || round_->token != piece.checkpoint() || piece.stage() >= in_.shape.stages.size() ||
      round_->savers.at(stage) != seat || round_->finished.contains(stage))
    return fail(ErrorCode::kRefused, "nobody asked for that piece");
  const auto found = round_->received.find(stage);
  const std::uint64_t received = found == round_->received.end() ? 0 : found->second;
  const std::uint64_t room = round_->bytes_max.at(stage) - received;
  if (piece.offset() != received || bytes > room || (bytes == 0 && !piece.last()) ||
      (piece.last() && piece.size() != received + bytes))
    return fail(ErrorCode::kCorrupt, "a piece out of order, or beyond the end of its stage");
  return {};
}

void Checkpointer::on_piece(const Seat& seat, const Frame& frame,
                            const RpcChannel::Respond& respond) {
  auto piece = parse<wire::CheckpointPiece>(frame);
  if (!piece) return in_.outbox.respond(respond, std::unexpected(piece.error()));
  if (auto fits = check_piece(seat, *piece, frame.payload_bytes()); !fits)
    return in_.outbox.respond(respond, std::unexpected(fits.error()));
  if (auto taken = take_piece(*piece, frame); !taken) {
    if (taken.error().code != ErrorCode::kCorrupt)
      return in_.rulings.fail_run("the checkpoint can't be written: " + taken.error().what);
    in_.outbox.respond(respond, std::unexpected(taken.error()));
    return came_damaged(taken.error());
  }
  in_.outbox.respond(respond,
                     make_frame(MessageKind::kCheckpointPieceReply, wire::CheckpointPieceReply()));
  if (round_->finished.size() == in_.shape.stages.size()) finish();
}

Result<void> Checkpointer::take_piece(const wire::CheckpointPiece& piece, const Frame& frame) {
  const StageId stage{static_cast<std::uint16_t>(piece.stage())};
  round_->received[stage] += frame.payload_bytes();
  bytes_ += frame.wire_bytes();
  auto kept = in_.sink.write_piece(stage, piece.offset(), frame.received_payload());
  if (!kept && kept.error().code == ErrorCode::kCorrupt)
    return fail(ErrorCode::kIo, kept.error().what);  // the sink's trouble, not the sender's
  SWARMLINE_TRY(kept);
  if (!piece.last()) return {};
  SWARMLINE_TRY(in_.sink.finish_stage(stage, piece.size(), piece.sha256()));
  round_->finished.insert(stage);
  return {};
}

void Checkpointer::finish() {
  in_.alarms.cancel(round_->deadline);
  auto path = in_.sink.commit();
  if (!path) return in_.rulings.fail_run("the checkpoint can't be written: " + path.error().what);
  in_.journal.record_checkpoint(*path);
  last_ = *path;
  saved_version_ = round_->version;
  in_.events.event("checkpoint", *path);
  round_.reset();
}

void Checkpointer::abandon(const std::string& why) {
  if (!round_) return;
  SWARMLINE_MARK("checkpointer.abandoned");
  in_.alarms.cancel(round_->deadline);
  in_.sink.abandon();
  in_.events.event("checkpoint_abandoned", fmt::format("{}: {}", round_->name, why));
  round_.reset();  // the last version's is begun again when the run settles
}

// Bytes changed on their way here.
void Checkpointer::came_damaged(const Error& error) {
  SWARMLINE_MARK("checkpointer.damaged");
  if (++damaged_ > knobs().damaged_checkpoints_max)
    return in_.rulings.fail_run(
        fmt::format("{} checkpoints came damaged, the last one so: {}", damaged_, error.what));
  abandon(error.what);
}

// Its file can't be ended by another: the bytes are the same, the version may be gone there.
void Checkpointer::on_seat_lost(const SeatLoss& lost) {
  if (is_saving(lost.seat) && !round_->finished.contains(lost.seat.stage))
    abandon(to_string(lost.seat) + " is lost");
}

void Checkpointer::began_with(const std::string& path, std::uint64_t version) {
  last_ = path;
  saved_version_.reset();
  if (!path.empty()) saved_version_ = version;
}

void Checkpointer::check_invariants() const {
  if (!round_) return;
  SWARMLINE_CHECK(round_->savers.size() == in_.shape.stages.size());
  SWARMLINE_CHECK(round_->finished.size() < round_->savers.size());
}

}  // namespace swarmline
