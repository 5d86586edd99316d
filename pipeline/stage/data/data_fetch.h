// The pieces of the run's data that a source without it needs: found where they were kept before,
// else fetched from peers that have the data, and checked against the coordinator's hashes.
//   Pieces:    a piece wanted is Waiting -> Looked -> Asked -> Checked -> Here: the coordinator
//              says its hash (a block of hashes at a time), the folder is asked for it, then a
//              holder; what came is hashed, kept, and in use. One that is not what it should be is
//              counted, and asked of another; who sends kWrongMax of these is asked no more.
//   Turns:     what is needed first comes first; what is only ahead is begun when nothing that is
//              needed is missing.
//   Ownership: the folder outlives it; null: nothing is fetched.
//   Thread:    control thread; files elsewhere.
//   Errors:    a piece nobody asked its sender for, or a longer one than there is: kCorrupt, of the
//              sender. A folder that fails ends the peer, with a sentence. Without a holder it
//              waits, and says so once.
//   Holders:   the coordinator names them. One that does not have what it should rests as one whose
//              pieces come damaged.
//   Bounds:    as many pieces in use as the folder keeps, kInUseMax at most, those of one
//              microbatch whatever that is; kLooksMax looked for and kAskedMax asked for at a
//              time, so that the folder's queue has room for all;
//              kOwedMax unanswered of a holder are remembered.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/callback_guard.h"
#include "base/line_rate.h"
#include "base/units.h"
#include "engine/data/data_pieces.h"
#include "pipeline/protocol/messages.pb.h"
#include "pipeline/stage/common/piece_asks.h"
#include "pipeline/stage/common/stage_context.h"
#include "pipeline/stage/data_folder.h"

namespace swarmline {

class DataFetch {
 public:
  static constexpr std::uint32_t kWrongMax = 3;
  static constexpr std::size_t kOwedMax = 64;
  static constexpr std::size_t kInUseMax = 4096;  // pieces
  static constexpr std::size_t kLooksMax = 256;  // pieces that are looked for in the folder at once
  static constexpr std::size_t kAskedMax = 256;  // of all holders, and not judged yet
  static constexpr Duration kProgressEvery = std::chrono::seconds(10);  // a line in the log
  using Pieces = std::vector<std::uint32_t>;

  // `pieces`: of the run's data. `on_here`: more of what is needed is here.
  DataFetch(StageContext& context, DataFolder* folder, std::shared_ptr<const DataPieces> pieces,
            std::function<void()> on_here);

  bool on() const { return folder_ != nullptr; }
  // What microbatches need, in the order of their turn, and what comes after. The rest may go.
  void need(const std::vector<Pieces>& microbatches, const Pieces& ahead);
  bool here(const Pieces& pieces) const;

  Result<void> on_hashes(const wire::DataHashes& hashes);
  void on_holders(const wire::DataHolders& holders);
  Result<void> on_piece(const Seat& from, const wire::Piece& piece, BytesView bytes);
  void on_link_lost(const Seat& peer);
  void on_peer_lost(const Seat& lost);
  void on_coordinator_back();  // what was asked of the one before is asked again
  void silence() { guard_.drop_callbacks(); }

  std::optional<wire::DataProgress> progress() const;  // none: it fetches nothing
  void check_invariants() const;

 private:
  enum class State : std::uint8_t { kWaiting, kLooked, kAsked, kChecked, kHere };
  std::set<std::uint32_t> chosen(const std::vector<Pieces>& microbatches, const Pieces& ahead);
  void begin(std::uint32_t piece);
  void look(std::uint32_t piece);
  void look_for_those_that_wait();
  void ask_for_hashes(std::uint32_t block) const;
  std::string hash_of(std::uint32_t piece) const;
  bool is(std::uint32_t piece, State state) const;
  void came(std::uint32_t piece);
  void judged(const Seat& from, std::uint32_t piece, const Result<bool>& kept);
  void pump();
  void ask(const PieceAsks::Ask& ask);
  void watch();
  void on_stuck();
  void after_pause();
  void say_progress();

  StageContext& context_;
  DataFolder* folder_;
  std::shared_ptr<const DataPieces> pieces_;
  std::function<void()> on_here_;
  PieceAsks asks_{kWrongMax};
  std::map<std::uint32_t, State> wanted_;
  std::map<std::uint32_t, std::string> hashes_;   // by block; empty: asked for
  std::map<Seat, std::set<std::uint32_t>> owed_;  // asked, and not answered
  std::vector<bool> had_;                         // pieces that have been here
  std::uint32_t had_count_ = 0;
  std::size_t looks_ = 0;    // under way
  PeerId from_;              // who sent the newest
  std::uint32_t wrong_ = 0;  // pieces that were not what they should be
  bool watched_ = false, paused_ = false, waits_said_ = false;
  Instant progress_said_{};
  LineRate wrong_lines_;
  CallbackGuard guard_;
};

}  // namespace swarmline
