#include "tools/chaos/state_downloads.h"

#include "pipeline/protocol/message_kinds.h"

namespace swarmline {

namespace {

// Pieces of averaged gradients are asked for in the same way.
bool is_state(const wire::BlobId& blob) {
  return blob.has_state() || blob.has_saved();
}

}  // namespace

void StateDownloads::has_seat(const Seat& seat) {
  if (const auto known = seats_.find(seat.peer); known != seats_.end()) {
    if (known->second.incarnation < seat.incarnation) known->second = seat;
  } else if (seats_.size() < kPeersMax) {
    seats_.emplace(seat.peer, seat);
  }
}

bool StateDownloads::is_seated(const Seat& seat) const {
  const auto known = seats_.find(seat.peer);
  return known != seats_.end() && known->second == seat;
}

void StateDownloads::passing(const Frame& frame) {
  if (kind_of(frame) == MessageKind::kWelcome) {
    if (const auto welcome = parse<wire::Welcome>(frame)) has_seat(from_wire(welcome->seat()));
  } else if (kind_of(frame) == MessageKind::kLinkHello) {
    const auto hello = parse<wire::LinkHello>(frame);
    if (!hello) return;
    has_seat(from_wire(hello->from()));
    has_seat(from_wire(hello->to()));
  }
}

bool StateDownloads::is_of_a_joiner(const Frame& frame) const {
  switch (kind_of(frame)) {
    case MessageKind::kStateOffer: {
      const auto offer = parse<wire::StateOffer>(frame);
      return offer && is_seated(from_wire(offer->to()));
    }
    case MessageKind::kPieceRequest: {
      const auto request = parse<wire::PieceRequest>(frame);
      return request && is_state(request->blob()) && is_seated(from_wire(request->seat()));
    }
    case MessageKind::kPiece: {
      const auto piece = parse<wire::Piece>(frame);
      return piece && is_state(piece->blob()) && is_seated(from_wire(piece->to()));
    }
    default:
      return false;
  }
}

}  // namespace swarmline
