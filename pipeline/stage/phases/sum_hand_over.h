// Sums that change hands before their step is sealed: whoever has to go sooner gives what it has
// added to a mate, and nothing of it is computed again.
//   What:      the giver adds no more, and copies its sums for whoever fetches them; the taker
//              keeps them apart until the coordinator says that they are its own. Then they count
//              as added here, and the giver forgets them.
//   Invariant: a contribution is in the sums of one of the two that the ledger may ask for it: the
//              taker adds what the ledger says is its own, and nothing else.
//   Losses:    with the coordinator, the giver, or the seal of the step, what was fetched and not
//              moved is dropped. A giver that hears of another coordinator says that its sums are
//              in doubt: if the taker has them, the ledger refuses them, and it forgets them.
//   Ownership: owns the copies. Thread: control thread; copying, hashing and adding are jobs.
//   Errors:    a message that does not fit the phase is kCorrupt.
//   Bounds:    kTakingMax sums at a time, of the stage's gradients in size; one copy an open step.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/callback_guard.h"
#include "base/ids.h"
#include "pipeline/protocol/messages.pb.h"
#include "pipeline/stage/common/phase_book.h"
#include "pipeline/stage/common/piece_fetch.h"
#include "pipeline/stage/common/stage_context.h"
#include "pipeline/stage/common/stage_jobs.h"
#include "pipeline/stage/microbatches/contributions.h"

namespace swarmline {

class SumHandOver {
 public:
  static constexpr std::size_t kTakingMax = 2;

  SumHandOver(StageContext& context, StageJobs& jobs, const PhaseBook& phases,
              Contributions& contributions)
      : context_(context), jobs_(jobs), phases_(phases), contributions_(contributions) {}

  // ---- Of the coordinator ----
  Result<void> on_give(const wire::GiveSums& give);
  Result<void> on_take(const wire::TakeSums& take);
  Result<void> on_moved(const wire::SumsMoved& moved);
  // True: it was about sums that this peer gives, and is dealt with.
  bool on_ack(const wire::ReportAck& ack);
  void on_coordinator_lost();

  // ---- Of mates ----
  void on_piece(const Seat& from, const wire::Piece& piece, BytesView bytes);
  void on_link_lost(const Seat& peer);
  void on_peer_lost(const Seat& lost);
  BytesView bytes(const Phase& phase) const;  // for the taker; empty: it gives none of that step

  // The step is sealed, or over: what has not moved stays where it is.
  void end(const Phase& phase);
  void silence() { guard_.drop_callbacks(); }
  void check_invariants() const;

 private:
  struct Copy {
    SharedBytes bytes;
    std::vector<std::string> hashes;
    bool ready = false;
  };
  struct Taking {
    Seat giver;
    Contributions::List contributions;
    PieceFetch pieces;
    bool told = false;  // the coordinator: it is all here
  };
  using Key = std::pair<Phase, PeerId>;  // the giver's

  Result<void> check(const wire::TakeSums& take) const;
  void copy_sums(const Phase& phase, const std::shared_ptr<Copy>& copy);
  void hash_next(const Phase& phase, const std::shared_ptr<Copy>& copy);
  void say_frozen(const Phase& phase, const Copy* copy);
  void say_taken(const Phase& phase, const Seat& giver, bool refused);
  void forget_given(const Phase& phase);
  void adopt(const Phase& phase, Taking taking);
  void pump(const Key& key);
  void ask_again(const Key& key);
  void drop(const Key& key);

  StageContext& context_;
  StageJobs& jobs_;
  const PhaseBook& phases_;
  Contributions& contributions_;
  std::map<Phase, std::shared_ptr<Copy>> given_;
  std::map<Key, Taking> taking_;
  CallbackGuard guard_;
};

}  // namespace swarmline
