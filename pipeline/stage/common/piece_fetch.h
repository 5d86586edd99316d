// Fetches immutable bytes piece by piece from several holders at once. Pure: says whom to ask for
// what, and takes what comes.
//   Pieces:    Limits::state_piece_bytes each, the last one shorter; 0-based.
//   Errors:    a piece whose length or checksum is wrong is asked again; a holder whose pieces come
//              so knobs().damaged_in_a_row times in a row rests until it is forgiven. One whose
//              content is not what the hashes say is not asked again. One that is late is asked
//              again when nobody else is left; what it sends meanwhile is taken. So is one whose
//              link ends twice without a piece between: it may be out of reach for long, and this
//              end hears of each try at once.
//   Bounds:    kWindow pieces asked of one holder at a time, and of all as many as the owner
//              allows; kPatienceMax with one answer. Deadlines are the owner's: it says when a
//              holder is lost, and looks for late ones.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/units.h"

namespace swarmline {

class PieceFetch {
 public:
  static constexpr std::size_t kWindow = 2;
  static constexpr Duration kPatienceMax = std::chrono::minutes(10);
  static constexpr std::size_t kPiecesMax = std::numeric_limits<std::size_t>::max();

  struct Ask {
    Seat holder;
    std::uint32_t piece = 0;
    bool operator==(const Ask&) const = default;
  };

  // `hashes`: SHA-256 of each piece, 64 hex digits; none: only transport checksums are checked.
  PieceFetch(std::uint64_t bytes, std::vector<std::string> hashes = {});

  void forgive() { refused_.clear(); }  // whoever had nothing may have it now
  bool forgive_damaged();               // those that rest are asked again; false: nobody rests
  void add_holder(const Seat& holder);  // known, resting or refused ones are ignored
  // Asks to send now; each is outstanding until its piece or a loss.
  std::vector<Ask> asks(std::size_t under_way_max = kPiecesMax);
  // False: the piece is of no use.
  bool on_piece(const Seat& from, std::uint32_t piece, BytesView bytes, std::uint64_t checksum);
  void on_missing(const Seat& from);  // it has none of it
  void on_lost(const Seat& lost);
  void on_link_lost(const Seat& from);  // what was asked may not have arrived: asked once more
  // Those that have owed an answer for knobs().piece_time, twice as long each time that somebody
  // is late, are asked no more until a piece comes from them, or nobody else is left.
  void asked(const Seat& holder, Instant now);
  std::vector<Seat> drop_late(Instant now);  // who they are
  void leave(const Seat& holder);            // it is late elsewhere
  bool forgive_late();  // those that are late are asked again; false: nobody is

  bool done() const { return left_ == 0; }
  bool stuck() const { return !done() && holders_.empty(); }
  bool damaged() const { return !resting_.empty(); }
  bool late() const { return !late_.empty(); }
  std::uint64_t bytes() const { return buffer_.size(); }
  std::map<PeerId, std::uint32_t> pieces_by_holder() const { return served_; }
  Buffer take() { return std::move(buffer_); }

 private:
  enum class State : std::uint8_t { kWanted, kAsked, kHere };
  std::uint64_t length(std::uint32_t piece) const;
  void drop(const Seat& holder);
  void refuse(const Seat& holder);
  void note_damage(const Seat& holder, std::uint32_t piece);
  void want(std::uint32_t piece);

  Buffer buffer_;
  std::vector<std::string> hashes_;
  std::vector<State> pieces_;
  std::uint32_t left_ = 0;
  std::uint32_t first_wanted_ = 0;                   // pieces below are not wanted
  std::map<Seat, std::set<std::uint32_t>> holders_;  // and what each is asked for
  std::set<Seat> refused_;
  std::map<Seat, std::uint32_t> damaged_in_a_row_;
  std::set<Seat> resting_;
  std::set<Seat> late_;
  std::set<Seat> cut_off_;         // whose link ended, and from whom no piece has come since
  std::map<Seat, Instant> asked_;  // when each was asked last
  Duration patience_;
  std::map<PeerId, std::uint32_t> served_;
};

}  // namespace swarmline
