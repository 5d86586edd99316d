// Whom to ask for which pieces of immutable bytes that several hold. Pure: says whom to ask for
// what, and is told what came of it; the bytes are its owner's.
//   Pieces:    numbers, the lowest that is wanted first.
//   Holders:   one whose pieces come damaged knobs().damaged_in_a_row times in a row rests until it
//              is forgiven. One that sends another content `wrong_max` times is not asked again;
//              before that it is asked for other pieces, and for that one when nobody else is left.
//              One that is late is asked again when nobody else is left; what it sends meanwhile is
//              taken. So is one whose link ends twice without a piece between: it may be out of
//              reach for long, and this end hears of each try at once.
//   Thread:    control thread; pure. Errors: none.
//   Bounds:    kWindow pieces asked of one holder at a time, and of all as many as the owner
//              allows; kPatienceMax with one answer. Deadlines are the owner's: it says when a
//              holder is lost, and looks for late ones.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "base/ids.h"
#include "base/units.h"

namespace swarmline {

class PieceAsks {
 public:
  static constexpr std::size_t kWindow = 2;
  static constexpr Duration kPatienceMax = std::chrono::minutes(10);
  static constexpr std::size_t kPiecesMax = std::numeric_limits<std::size_t>::max();

  struct Ask {
    Seat holder;
    std::uint32_t piece = 0;
    bool operator==(const Ask&) const = default;
  };

  explicit PieceAsks(std::uint32_t wrong_max);

  void want(std::uint32_t piece);
  void want_no_more(std::uint32_t piece);
  bool wants(std::uint32_t piece) const { return outstanding_.contains(piece); }  // not here yet
  std::size_t outstanding() const { return outstanding_.size(); }

  void forgive();                       // whoever had nothing may have it now
  bool forgive_damaged();               // those that rest are asked again; false: nobody rests
  void add_holder(const Seat& holder);  // known, resting or refused ones are ignored
  // Asks to send now; each is outstanding until its piece or a loss.
  std::vector<Ask> asks(std::size_t under_way_max = kPiecesMax);
  // That holder sends that piece. False: it is of no use. Else one of the three is said of it:
  bool takes(const Seat& from, std::uint32_t piece);
  void here(const Seat& from, std::uint32_t piece);
  void damaged(const Seat& from, std::uint32_t piece);  // on its way, most likely
  void wrong(const Seat& from, std::uint32_t piece);    // another content

  void on_missing(const Seat& from);  // it has none of it
  void on_lost(const Seat& lost);
  void forget(const Seat& lost);        // the same, of who is not named as a holder again
  void on_link_lost(const Seat& from);  // what was asked may not have arrived: asked once more
  // Those that have owed an answer for knobs().piece_time, twice as long each time that somebody
  // is late, are asked no more until a piece comes from them, or nobody else is left.
  void asked(const Seat& holder, Instant now);
  std::vector<Seat> drop_late(Instant now);  // who they are
  void leave(const Seat& holder);            // it is late elsewhere
  bool forgive_late();  // those that are late are asked again; false: nobody is

  bool done() const { return outstanding_.empty(); }
  // All that are lower are here.
  bool has_below(std::uint32_t piece) const {
    return outstanding_.empty() || *outstanding_.begin() >= piece;
  }
  bool stuck() const { return !done() && holders_.empty(); }
  bool any_damaged() const { return !resting_.empty(); }
  bool any_late() const { return !late_.empty(); }
  bool is_refused(const Seat& holder) const { return refused_.contains(holder); }
  const std::map<PeerId, std::uint32_t>& by_holder() const { return served_; }  // pieces

 private:
  std::optional<std::uint32_t> next_for(const Seat& holder) const;
  bool others_may_have(std::uint32_t piece, const Seat& holder) const;
  void drop(const Seat& holder);
  void refuse(const Seat& holder);

  std::uint32_t wrong_max_;
  std::set<std::uint32_t> outstanding_;              // wanted, and not here
  std::set<std::uint32_t> unasked_;                  // of these, asked of nobody
  std::map<Seat, std::set<std::uint32_t>> holders_;  // and what each is asked for
  std::set<Seat> refused_;
  std::map<Seat, std::uint32_t> damaged_in_a_row_;
  std::map<Seat, std::set<std::uint32_t>> wrong_;  // that each has sent
  std::map<Seat, std::uint32_t> wrong_times_;
  std::set<Seat> resting_;
  std::set<Seat> late_;
  std::set<Seat> cut_off_;         // whose link ended, and from whom no piece has come since
  std::map<Seat, Instant> asked_;  // when each was asked last
  Duration patience_;
  std::map<PeerId, std::uint32_t> served_;
};

}  // namespace swarmline
