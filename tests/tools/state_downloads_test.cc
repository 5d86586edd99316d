#include "tools/chaos/state_downloads.h"

#include <gtest/gtest.h>

#include "pipeline/protocol/message_kinds.h"

namespace swarmline {
namespace {

const Seat kMate{PeerId{1}, StageId{1}, Incarnation{1}};
const Seat kHost{PeerId{2}, StageId{0}, Incarnation{1}};
const Seat kShadow{PeerId{2}, StageId{1}, Incarnation{1}};  // of stage 1, at kHost
const Seat kJoiner{PeerId{3}, StageId{1}, Incarnation{2}};

Frame offer_to(const Seat& seat) {
  wire::StateOffer offer;
  *offer.mutable_to() = to_wire(seat);
  return make_frame(MessageKind::kStateOffer, offer);
}
wire::BlobId state() {
  wire::BlobId blob;
  blob.set_stage(1);
  blob.set_state(4);
  return blob;
}
Frame request_of(const Seat& seat, const wire::BlobId& blob) {
  wire::PieceRequest request;
  *request.mutable_seat() = to_wire(seat);
  *request.mutable_to() = to_wire(kMate);
  *request.mutable_blob() = blob;
  return make_frame(MessageKind::kPieceRequest, request);
}
Frame piece_to(const Seat& seat, const wire::BlobId& blob) {
  wire::Piece piece;
  *piece.mutable_to() = to_wire(seat);
  *piece.mutable_blob() = blob;
  return make_frame(MessageKind::kPiece, piece);
}
Frame link(const Seat& from, const Seat& to) {
  wire::LinkHello hello;
  *hello.mutable_from() = to_wire(from);
  *hello.mutable_to() = to_wire(to);
  return make_frame(MessageKind::kLinkHello, hello);
}
Frame welcome(const Seat& seat) {
  wire::Welcome welcome;
  *welcome.mutable_seat() = to_wire(seat);
  return make_frame(MessageKind::kWelcome, welcome);
}

TEST(StateDownloads, AtTheCoordinatorOffersToSeatsMatchAndToShadowsDoNot) {
  StateDownloads downloads;
  downloads.passing(welcome(kHost));
  downloads.passing(welcome(kJoiner));
  EXPECT_TRUE(downloads.is_of_a_joiner(offer_to(kJoiner)));
  EXPECT_FALSE(downloads.is_of_a_joiner(offer_to(kShadow)));
  downloads.passing(welcome({PeerId{3}, StageId{0}, Incarnation{3}}));
  EXPECT_FALSE(downloads.is_of_a_joiner(offer_to(kJoiner))) << "it has another seat now";
}

TEST(StateDownloads, AtAMateRequestsOfThoseThatDialledIt) {
  StateDownloads downloads;
  downloads.passing(link(kHost, kMate));
  downloads.passing(link(kMate, kJoiner));  // it dialled that one itself
  EXPECT_TRUE(downloads.is_of_a_joiner(request_of(kJoiner, state())));
  EXPECT_FALSE(downloads.is_of_a_joiner(request_of(kShadow, state())));
}

TEST(StateDownloads, AtItsHostAShadowsPiecesAreNotItsOwn) {
  StateDownloads downloads;
  downloads.passing(welcome(kHost));
  EXPECT_TRUE(downloads.is_of_a_joiner(piece_to(kHost, state())));
  EXPECT_FALSE(downloads.is_of_a_joiner(piece_to(kShadow, state())));
}

TEST(StateDownloads, AnAveragedGradientIsNoState) {
  StateDownloads downloads;
  downloads.passing(welcome(kJoiner));
  wire::BlobId reduced;
  reduced.mutable_reduced()->set_group(1);
  EXPECT_FALSE(downloads.is_of_a_joiner(piece_to(kJoiner, reduced)));
  EXPECT_FALSE(downloads.is_of_a_joiner(request_of(kJoiner, reduced)));
  wire::BlobId saved;
  saved.set_saved(4);
  EXPECT_TRUE(downloads.is_of_a_joiner(piece_to(kJoiner, saved)));
}

}  // namespace
}  // namespace swarmline
