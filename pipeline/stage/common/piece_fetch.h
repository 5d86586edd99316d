// Fetches immutable bytes piece by piece from several holders at once. Pure: says whom to ask for
// what, and takes what comes.
//   Pieces:    knobs().state_piece_bytes each, the last one shorter; 0-based.
//   Errors:    a piece whose length or checksum is wrong is asked again; a holder whose content is
//              not what the hashes say is not asked again; the rest as in PieceAsks.
//   Bounds:    those of PieceAsks.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/units.h"
#include "pipeline/stage/common/piece_asks.h"

namespace swarmline {

class PieceFetch {
 public:
  static constexpr std::size_t kWindow = PieceAsks::kWindow;
  static constexpr Duration kPatienceMax = PieceAsks::kPatienceMax;
  static constexpr std::size_t kPiecesMax = PieceAsks::kPiecesMax;
  using Ask = PieceAsks::Ask;

  // `hashes`: SHA-256 of each piece, 64 hex digits; none: only transport checksums are checked.
  PieceFetch(std::uint64_t bytes, std::vector<std::string> hashes = {});

  // As in PieceAsks.
  void forgive() { asks_.forgive(); }
  bool forgive_damaged() { return asks_.forgive_damaged(); }
  void add_holder(const Seat& holder) { asks_.add_holder(holder); }
  std::vector<Ask> asks(std::size_t under_way_max = kPiecesMax) {
    return asks_.asks(under_way_max);
  }
  // False: the piece is of no use.
  bool on_piece(const Seat& from, std::uint32_t piece, BytesView bytes, std::uint64_t checksum);
  void on_missing(const Seat& from) { asks_.on_missing(from); }
  void on_lost(const Seat& lost) { asks_.on_lost(lost); }
  void on_link_lost(const Seat& from) { asks_.on_link_lost(from); }
  void asked(const Seat& holder, Instant now) { asks_.asked(holder, now); }
  std::vector<Seat> drop_late(Instant now) { return asks_.drop_late(now); }
  void leave(const Seat& holder) { asks_.leave(holder); }
  bool forgive_late() { return asks_.forgive_late(); }

  bool done() const { return asks_.done(); }
  bool has_first(std::uint64_t bytes) const;  // from the beginning
  bool stuck() const { return asks_.stuck(); }
  bool damaged() const { return asks_.any_damaged(); }
  bool late() const { return asks_.any_late(); }
  std::uint64_t bytes() const { return buffer_->size(); }
  std::map<PeerId, std::uint32_t> pieces_by_holder() const { return asks_.by_holder(); }
  Buffer take() { return std::move(*buffer_); }
  // Until take(): what is here of it does not change any more.
  std::shared_ptr<const Buffer> so_far() const { return buffer_; }

 private:
  std::uint64_t length(std::uint32_t piece) const;

  std::shared_ptr<Buffer> buffer_;
  std::vector<std::string> hashes_;
  PieceAsks asks_{1};
};

}  // namespace swarmline
