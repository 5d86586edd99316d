#include "pipeline/coordinator/run/era_beginning.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/marks.h"
#include "pipeline/protocol/knobs.h"
#include "pipeline/protocol/message_kinds.h"

namespace swarmline {
namespace {

// No checkpoint is of version 0: it is what the run was to begin with, parameters alone.
bool is_initial(const CheckpointSource::Saved& saved) {
  return saved.version == 0;
}

// The version before the first one is the first one, and so it is where a delay begins later: no
// step computes on what was before.
FindTensor tensors_of(const CheckpointSource& source) {
  return [&source](const std::string& name) {
    auto tensor = source.tensor(name);
    if (tensor || !name.starts_with(kPreviousPrefix)) return tensor;
    return source.tensor(name.substr(kPreviousPrefix.size()));
  };
}

}  // namespace

bool EraBeginning::count_rollback(std::uint64_t committed) {
  fruitless_ = committed > furthest_ ? 0 : fruitless_ + 1;
  reached(committed);
  return fruitless_ <= knobs().fruitless_eras_max;
}

// All of them together outlast what may disturb a whole swarm, such as a coordinator whose links
// break for a while.
Duration EraBeginning::pause() const {
  if (fruitless_ <= knobs().eras_at_once) return {};
  SWARMLINE_MARK("era_beginning.pause");
  const std::uint32_t doublings = std::min(fruitless_ - knobs().eras_at_once - 1, 20U);
  return std::min<Duration>(knobs().era_pause_min * (1 << doublings), knobs().era_pause_max);
}

void EraBeginning::look() {
  found_.reset();
  const Duration wait = pause();
  if (wait == Duration{}) return open_newest();
  alarms_.after(wait, [this] { open_newest(); });
}

void EraBeginning::open_newest() {
  auto opened = alarms_.then_settle([this](Result<std::optional<CheckpointSource::Saved>> newest) {
    if (!newest && newest.error().code == ErrorCode::kIo && reads_ < knobs().checkpoint_reads_max)
      return read_again(newest.error());
    reads_ = 0;
    found_ = take(std::move(newest));
  });
  if (shape_.options.checkpoints != nullptr)
    return shape_.options.checkpoints->open_newest(std::move(opened));
  alarms_.post(
      [this] { found_ = take(Result<std::optional<CheckpointSource::Saved>>(std::nullopt)); });
}

// A disk that fails may work again; until then nobody has a state to go on from.
void EraBeginning::read_again(const Error& error) {
  SWARMLINE_MARK("era_beginning.read_again");
  const std::uint32_t doublings = std::min(reads_++, 20U);
  const Duration wait = std::min<Duration>(knobs().checkpoint_pause_min * (1 << doublings),
                                           knobs().checkpoint_pause_max);
  log(LogLevel::kWarn, "the checkpoints can't be read: {}; they are tried again in {:.1f} s",
      error.what, to_seconds(wait));
  alarms_.after(wait, [this] { open_newest(); });
}

Result<void> EraBeginning::take(Result<std::optional<CheckpointSource::Saved>> newest) {
  version_ = updates_ = 0;
  era_ = {};
  path_.clear();
  saved_.clear();
  if (!newest) return std::unexpected(std::move(newest).error());
  if (!*newest) return {};
  SWARMLINE_MARK("era_beginning.from_checkpoint");
  const CheckpointSource::Saved& saved = **newest;
  if (saved.version > shape_.config.run.steps)
    return fail(ErrorCode::kUserMistake,
                fmt::format("{} is of step {}, and the run has {} steps", saved.path, saved.version,
                            shape_.config.run.steps));
  version_ = saved.version;
  updates_ = saved.updates;
  era_ = saved.era;
  path_ = saved.path;
  for (const ParameterLayout& layout : shape_.layouts) {
    saved_.push_back(saved_state(shape_.config, layout, true));
    if (is_initial(saved))  // moments of no update are zeros, as is what no tensor fills
      std::erase_if(saved_.back().tensors, [](const SavedTensor& tensor) {
        return tensor.name.starts_with(kOptimizerPrefix);
      });
    SWARMLINE_TRY(check_saved(saved_.back(), tensors_of(*shape_.options.checkpoints)));
  }
  return {};
}

// Empty: there is no such piece.
Result<Buffer> EraBeginning::read_piece(StageId stage, std::uint64_t version,
                                        std::uint32_t number) const {
  const std::uint64_t first = std::uint64_t{number} * knobs().state_piece_bytes;
  if (version != version_ || stage.value >= saved_.size() || first >= saved_[stage.value].bytes)
    return Buffer();
  const SavedState& saved = saved_[stage.value];
  Buffer piece(std::min<std::uint64_t>(knobs().state_piece_bytes, saved.bytes - first));
  SWARMLINE_TRY(read_saved(saved, tensors_of(*shape_.options.checkpoints), first, piece.bytes()));
  return piece;
}

std::uint64_t EraBeginning::on_piece_request(const SessionPtr& session,
                                             const wire::PieceRequest& request) {
  Result<Buffer> piece = Buffer();
  if (request.blob().has_saved())
    piece = read_piece(session->seat.stage, request.blob().saved(), request.piece());
  if (!piece) {
    SWARMLINE_MARK("era_beginning.piece_unreadable");
    rulings_.roll_back("the checkpoint can't be read: " + piece.error().what);
    return 0;
  }
  wire::Piece reply;
  *reply.mutable_to() = request.seat();
  *reply.mutable_blob() = request.blob();
  reply.set_piece(request.piece());
  reply.set_missing(piece->size() == 0);
  if (reply.missing()) {
    outbox_.send(session, make_frame(MessageKind::kPiece, reply));
    return 0;
  }
  const SharedBytes payload(std::move(*piece));
  reply.set_checksum(xxh3(payload.view()));
  Frame frame = make_frame(MessageKind::kPiece, reply, {payload});
  const std::uint64_t bytes = frame.wire_bytes();
  outbox_.send(session, std::move(frame));
  return bytes;
}

}  // namespace swarmline
