// Checkpoints: one member of each stage sends its file, the sink puts them in place all at once.
#include <algorithm>

#include "base/limits.h"
#include "base/log.h"
#include "pipeline/coordinator/coordinator_impl.h"

namespace swarmline {

namespace {
constexpr Duration kCheckpointDeadline = std::chrono::seconds(600);
constexpr std::uint64_t kDamagedCheckpointsMax = 16;  // of a run
}  // namespace

bool Coordinator::Impl::all_stepped(std::uint64_t version) const {
  return std::all_of(
      membership_.members().begin(), membership_.members().end(), [&](const auto& entry) {
        return entry.second.state != MemberState::kReady || entry.second.stepped >= version;
      });
}

void Coordinator::Impl::begin_checkpoint(std::uint64_t version, bool final) {
  if (checkpoint_) return;  // the one before is not done; the next interval has its own
  CheckpointRound round;
  round.name = fmt::format("step-{}", version);
  round.token = fmt::format("{}#{}", round.name, ++checkpoints_begun_);
  round.version = version;
  round.final = final;
  CheckpointSink::Description description{.name = round.name,
                                          .version = version,
                                          .stages = shape_.stages,
                                          .config_toml = options_.config_toml,
                                          .optimizer_state = options_.config.checkpoint.optimizer,
                                          .updates = updates_};
  if (auto begun = sink_.begin(description); !begun)
    return fail_run("the checkpoint can't be written: " + begun.error().what);
  if (final) state_ = State::kCheckpointing;
  for (std::uint16_t s = 0; s < shape_.stages.size(); ++s) {
    std::vector<Seat> seats = membership_.staying_of(StageId{s});
    if (seats.empty()) seats = membership_.ready_of(StageId{s});
    round.savers[s] = seats.front();
    round.bytes_max[s] =
        saved_state(options_.config, shape_.layouts[s], options_.config.checkpoint.optimizer)
            .bytes +
        Limits::safetensors_header_bytes_max;
    wire::SaveStage save;
    save.set_version(version);
    save.set_checkpoint(round.token);
    notify(seats.front(), make_frame(MessageKind::kSaveStage, save));
  }
  checkpoint_ = std::move(round);
  arm_checkpoint_deadline();
}

void Coordinator::Impl::arm_checkpoint_deadline() {
  checkpoint_->deadline =
      runtime_.call_after(kCheckpointDeadline, [weak = weak(), token = checkpoint_->token] {
        auto self = weak.lock();
        if (!self || !(*self)->checkpoint_ || (*self)->checkpoint_->token != token) return;
        if ((*self)->detector_.was_stopped((*self)->runtime_.now()))
          return (*self)->arm_checkpoint_deadline();
        (*self)->fail_run(fmt::format("checkpoint {} was not complete after {:.0f} s",
                                      (*self)->checkpoint_->name, to_seconds(kCheckpointDeadline)));
      });
}

// Pieces come in order and end within what a stage can hold.
Result<void> Coordinator::Impl::check_piece(const Session& session,
                                            const wire::CheckpointPiece& piece,
                                            std::uint64_t bytes) const {
  const std::uint32_t stage = piece.stage();
  if (!checkpoint_ || checkpoint_->token != piece.checkpoint() ||
      !checkpoint_->savers.contains(stage) || checkpoint_->savers.at(stage) != session.seat ||
      checkpoint_->finished.contains(stage))
    return fail(ErrorCode::kRefused, "nobody asked for that piece");
  const auto found = checkpoint_->received.find(stage);
  const std::uint64_t received = found == checkpoint_->received.end() ? 0 : found->second;
  const std::uint64_t room = checkpoint_->bytes_max.at(stage) - received;
  if (piece.offset() != received || bytes > room || (bytes == 0 && !piece.last()) ||
      (piece.last() && piece.size() != received + bytes))
    return fail(ErrorCode::kCorrupt, "a piece out of order, or beyond the end of its stage");
  return {};
}

void Coordinator::Impl::on_piece(const SessionPtr& session, const Frame& frame,
                                 const RpcChannel::Respond& respond) {
  auto piece = parse<wire::CheckpointPiece>(frame);
  if (!piece) return respond(std::unexpected(piece.error()));
  if (auto fits = check_piece(*session, *piece, frame.payload_bytes()); !fits)
    return respond(std::unexpected(fits.error()));
  checkpoint_->received[piece->stage()] += frame.payload_bytes();
  checkpoint_bytes_ += frame.wire_bytes();
  const StageId stage{static_cast<std::uint16_t>(piece->stage())};
  if (auto kept = sink_.write_piece(stage, piece->offset(), frame.received_payload()); !kept)
    return fail_run("the checkpoint can't be written: " + kept.error().what);
  if (piece->last()) {
    auto done = sink_.finish_stage(stage, piece->size(), piece->sha256());
    if (!done && done.error().code == ErrorCode::kCorrupt) {
      respond(std::unexpected(done.error()));
      return checkpoint_damaged(done.error());
    }
    if (!done) return fail_run("the checkpoint can't be written: " + done.error().what);
    checkpoint_->finished.insert(piece->stage());
  }
  respond(make_frame(MessageKind::kCheckpointPieceReply, wire::CheckpointPieceReply()));
  if (checkpoint_->finished.size() == shape_.stages.size()) finish_checkpoint();
}

// Its file can't be ended by another: the bytes are the same, the version may be gone there.
void Coordinator::Impl::checkpoint_lost(const Seat& seat) {
  if (!checkpoint_) return;
  const auto stage = checkpoint_->savers.find(seat.stage.value);
  if (stage == checkpoint_->savers.end() || stage->second != seat ||
      checkpoint_->finished.contains(seat.stage.value))
    return;
  abandon_checkpoint(to_string(seat) + " is lost");
}

void Coordinator::Impl::abandon_checkpoint(const std::string& why) {
  runtime_.cancel(checkpoint_->deadline);
  sink_.abandon();
  event("checkpoint_abandoned", fmt::format("{}: {}", checkpoint_->name, why));
  checkpoint_.reset();  // the last version's is begun again by advance()
}

// Bytes changed on their way here.
void Coordinator::Impl::checkpoint_damaged(const Error& error) {
  if (++checkpoints_damaged_ > kDamagedCheckpointsMax)
    return fail_run(fmt::format("{} checkpoints came damaged, the last one so: {}",
                                checkpoints_damaged_, error.what));
  abandon_checkpoint(error.what);
  advance();
}

void Coordinator::Impl::finish_checkpoint() {
  runtime_.cancel(checkpoint_->deadline);
  auto path = sink_.commit();
  if (!path) return fail_run("the checkpoint can't be written: " + path.error().what);
  if (auto kept = journal_.record_checkpoint(*path); !kept) return journal_failed(kept.error());
  last_checkpoint_ = *path;
  saved_version_ = checkpoint_->version;
  event("checkpoint", *path);
  checkpoint_.reset();
  advance();
}

}  // namespace swarmline
