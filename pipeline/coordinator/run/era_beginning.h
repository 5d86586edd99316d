// Where an era begins: the newest checkpoint whose every byte is what was written, or the seed's
// parameters; and how often the run has gone back without getting further.
//   What:      looks for the checkpoint off the control thread, checks that it has what each stage
//              needs, and serves its tensors to peers, piece by piece.
//   Ownership: what it is made with outlives it. Thread: control thread.
//   Errors:    a checkpoint that does not fit the run ends it. A disk that can't be read is tried
//              again, knobs().checkpoint_reads_max times; a piece that can't be, begins an era.
//   Bounds:    knobs().fruitless_eras_max eras in a row that get no further than before; from
//              eras_at_once on each waits twice as long, at most era_pause_max.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "base/units.h"
#include "engine/optimizer/saved_state.h"
#include "pipeline/coordinator/members/outbox.h"
#include "pipeline/coordinator/run/alarms.h"
#include "pipeline/coordinator/run/coordinator_options.h"
#include "pipeline/coordinator/run/rulings.h"
#include "pipeline/coordinator/run/run_shape.h"
#include "pipeline/protocol/messages.pb.h"

namespace swarmline {

class EraBeginning {
 public:
  EraBeginning(const RunShape& shape, Alarms& alarms, Outbox& outbox, Rulings& rulings)
      : shape_(shape), alarms_(alarms), outbox_(outbox), rulings_(rulings) {}

  void reached(std::uint64_t version) { furthest_ = std::max(furthest_, version); }
  std::uint64_t furthest() const { return furthest_; }  // version ever committed
  // The run goes back after `committed` commits. False: it has too often, without getting further.
  bool count_rollback(std::uint64_t committed);

  // Looks, after a pause where the run has gone back often; take_found() has it then.
  void look();
  std::optional<Result<void>> take_found() { return std::exchange(found_, std::nullopt); }

  std::uint64_t version() const { return version_; }
  std::uint64_t updates() const { return updates_; }
  Era era() const { return era_; }  // in which that checkpoint was saved; 0: there is none
  const std::string& path() const { return path_; }  // empty: the seed's parameters

  // Returns the bytes that went out.
  std::uint64_t on_piece_request(const SessionPtr& session, const wire::PieceRequest& request);

 private:
  Duration pause() const;
  void open_newest();
  void read_again(const Error& error);
  Result<void> take(Result<std::optional<CheckpointSource::Saved>> newest);
  Result<Buffer> read_piece(StageId stage, std::uint64_t version, std::uint32_t piece) const;

  const RunShape& shape_;
  Alarms& alarms_;
  Outbox& outbox_;
  Rulings& rulings_;
  std::uint64_t version_ = 0;
  std::uint64_t updates_ = 0;  // optimizer updates before it
  Era era_;
  std::string path_;
  std::vector<SavedState> saved_;  // by stage, where there is a checkpoint
  std::optional<Result<void>> found_;
  std::uint64_t furthest_ = 0;
  std::uint32_t reads_ = 0;      // that failed, in a row
  std::uint32_t fruitless_ = 0;  // eras in a row that did not get beyond it
};

}  // namespace swarmline
