#include "pipeline/protocol/message_bounds.h"

#include "base/limits.h"
#include "engine/fabric/fabric.h"
#include "pipeline/protocol/message_kinds.h"

namespace swarmline {
namespace {

constexpr FrameRoom kControl{.meta_bytes_max = Limits::control_meta_bytes_max,
                             .payload_bytes_max = 0};
constexpr FrameRoom kList{.meta_bytes_max = Limits::hello_meta_bytes_max, .payload_bytes_max = 0};
constexpr FrameRoom kPiece{.meta_bytes_max = Limits::control_meta_bytes_max,
                           .payload_bytes_max = Limits::state_piece_bytes};
constexpr FrameRoom kStranger{.meta_bytes_max = Limits::stranger_meta_bytes_max,
                              .payload_bytes_max = 0};

FrameRoom room_before_hello(std::uint16_t kind) {
  if (static_cast<MessageKind>(kind) != MessageKind::kHello) return kStranger;
  return {.meta_bytes_max = Limits::hello_meta_bytes_max, .payload_bytes_max = 0};
}

FrameRoom room_before_link_hello(std::uint16_t) {
  return kStranger;
}

FrameRoom room_for_peer(std::uint16_t kind) {
  switch (static_cast<MessageKind>(kind)) {
    case MessageKind::kReport:
    case MessageKind::kSealMismatch:  // a line of each microbatch, as a Hello's
      return {.meta_bytes_max = Limits::hello_meta_bytes_max, .payload_bytes_max = 0};
    case MessageKind::kReduced:
      return {.meta_bytes_max = Limits::frame_meta_ahead_bytes_max, .payload_bytes_max = 0};
    case MessageKind::kStateFrozen:
    case MessageKind::kSumsFrozen:
      return kList;
    case MessageKind::kCheckpointPiece:
      return {.meta_bytes_max = Limits::control_meta_bytes_max,
              .payload_bytes_max = Limits::checkpoint_piece_bytes};
    default:
      return kControl;
  }
}

FrameRoom room_for_coordinator(std::uint16_t kind) {
  switch (static_cast<MessageKind>(kind)) {
    case MessageKind::kWelcome:
    case MessageKind::kDataWanted:
    case MessageKind::kResume:
    case MessageKind::kMembership:
    case MessageKind::kOpenPhase:
    case MessageKind::kLeases:
    case MessageKind::kReportAck:
    case MessageKind::kSeal:
    case MessageKind::kReopen:
    case MessageKind::kFetchReduced:
    case MessageKind::kStateOffer:
    case MessageKind::kTakeSums:
    case MessageKind::kCommit:
      return kList;
    case MessageKind::kPiece:
      return kPiece;
    default:
      return kControl;
  }
}

FrameRoom room_for_mate(std::uint16_t kind) {
  switch (static_cast<MessageKind>(kind)) {
    case MessageKind::kForward:
    case MessageKind::kGradient:
      return {};
    case MessageKind::kReduceChunk:
      return {.meta_bytes_max = Limits::control_meta_bytes_max,
              .payload_bytes_max = 2 * Limits::reduce_chunk_bytes};
    case MessageKind::kFabricWord:
      return {.meta_bytes_max = Limits::control_meta_bytes_max,
              .payload_bytes_max = kFabricWordBytesMax};
    case MessageKind::kPiece:
      return kPiece;
    default:
      return kControl;
  }
}

FrameRoom room_for_answers(std::uint16_t) {
  return {.meta_bytes_max = 2 * Limits::status_bytes_max, .payload_bytes_max = 0};
}

}  // namespace

ConnectionBounds bounds_before_hello() {
  return {.room = room_before_hello, .unsent_bytes_max = Limits::stranger_unsent_bytes_max};
}
ConnectionBounds bounds_before_link_hello() {
  return {.room = room_before_link_hello, .unsent_bytes_max = Limits::stranger_meta_bytes_max};
}
ConnectionBounds bounds_of_peer() {
  return {.room = room_for_peer, .unsent_bytes_max = Limits::control_unsent_bytes_max};
}
ConnectionBounds bounds_of_coordinator() {
  return {.room = room_for_coordinator};
}
ConnectionBounds bounds_of_mate() {
  return {.room = room_for_mate};
}
ConnectionBounds bounds_of_answers() {
  return {.room = room_for_answers, .unsent_bytes_max = Limits::stranger_unsent_bytes_max};
}

}  // namespace swarmline
