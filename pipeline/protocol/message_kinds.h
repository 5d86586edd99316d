// The number of each message of messages.proto in a frame's `kind`, and the two functions that turn
// messages into frames and back. Thread: any.
//   Errors: parse() returns kCorrupt when the meta is not that message.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/units.h"
#include "engine/net/frame.h"
#include "pipeline/protocol/messages.pb.h"

namespace swarmline {

inline constexpr std::uint32_t kPassesOfAMicrobatch = 3;  // that wire::Reduced counts

enum class MessageKind : std::uint16_t {
  kErrorReply = 1,
  // peer <-> coordinator
  kHello = 10,
  kWelcome = 11,
  kReady = 12,
  kHeartbeat = 13,
  kMembership = 14,
  kOpenPhase = 15,
  kWantLeases = 16,
  kLeases = 17,
  kReport = 18,
  kReportAck = 19,
  kClaim = 20,
  kClaimReply = 21,
  kComputeFailed = 22,
  kStallReport = 23,
  kSeal = 24,
  kSealMismatch = 25,
  kReduced = 26,
  kCommit = 27,
  kStepped = 28,
  kRetirePhase = 29,
  kSaveStage = 30,
  kCheckpointPiece = 31,
  kCheckpointPieceReply = 32,
  kShutdown = 33,
  kGoodbye = 34,
  kPeerLost = 35,
  kFenced = 36,
  kReopen = 37,
  kReleaseClaim = 38,
  kRoundBroken = 39,
  kHeartbeatAck = 40,
  kFetchReduced = 41,
  kWantState = 42,
  kFreezeState = 43,
  kStateFrozen = 44,
  kStateOffer = 45,
  kLeave = 46,
  kDataWanted = 47,
  kResume = 49,
  // peer <-> peer
  kLinkHello = 50,
  kForward = 51,
  kForwardDone = 52,
  kRefused = 53,
  kCredit = 54,
  kGradientArrived = 55,
  kGradient = 56,
  kCancel = 57,
  kReduceChunk = 58,
  kPieceRequest = 59,
  kPiece = 60,
  kLinkAnswer = 98,
  kFabricWord = 99,
  // coordinator -> peer, of the stages that it follows
  kFollow = 66,
  // 67 was a message that wrapped others for a shadow; it is not given again
  // peer <-> coordinator, of links between peers
  kCallMe = 68,
  kCall = 69,
  kOutOfReach = 70,
  kMeet = 71,
  // peer <-> coordinator, of the run's data
  kWantHashes = 86,
  kDataHashes = 87,
  kDataHolders = 88,
  // peer <-> coordinator, of sums that change hands
  kGiveSums = 93,
  kSumsFrozen = 94,
  kTakeSums = 95,
  kSumsTaken = 96,
  kSumsMoved = 97,
  // relay <-> coordinator
  kRelayHello = 72,
  kRelayWelcome = 73,
  kRelayTicket = 74,
  kRelayState = 75,
  // admin
  kStatusRequest = 80,
  kStatusReply = 81,
  kStopRequest = 82,
  kStopReply = 83,
  kChallengeRequest = 84,
  kChallengeReply = 85,
  kCheckpointRequest = 91,
  kCheckpointReply = 92,
};

std::string_view to_string(MessageKind kind);

inline MessageKind kind_of(const Frame& frame) {
  return static_cast<MessageKind>(frame.kind);
}

template <typename Message>
Frame make_frame(MessageKind kind, const Message& message, std::vector<SharedBytes> payload = {}) {
  Frame frame;
  frame.kind = static_cast<std::uint16_t>(kind);
  frame.meta = message.SerializeAsString();
  frame.payload = std::move(payload);
  return frame;
}

template <typename Message>
Result<Message> parse(const Frame& frame) {
  Message message;
  if (!message.ParseFromString(frame.meta))
    return fail(ErrorCode::kCorrupt,
                "a message of kind " + std::to_string(frame.kind) + " does not parse");
  return message;
}

// Whom a message to a peer is for, where its own seat and its shadows all may get such ones
// (wire::Addressed); none: another kind of message, for the peer whatever it serves. Fails when it
// should be there and is not.
Result<std::optional<Seat>> addressee(const Frame& frame);

// Between the strong types and their wire form.
wire::Phase to_wire(const Phase& phase);
Phase from_wire(const wire::Phase& phase);
wire::Seat to_wire(const Seat& seat);
Seat from_wire(const wire::Seat& seat);
wire::AttemptId to_wire(const AttemptId& id);
AttemptId from_wire(const wire::AttemptId& id);

// As a message says it; zero: it says none, or one that nobody can keep.
Duration heartbeat_period_from(double seconds);
// How long a peer stays that has a notice; empty: as long as it is needed.
std::optional<Duration> notice_from(double seconds);

// Stage masks: bit s of byte s/8. An empty string means every stage.
bool mask_has(const std::string& mask, StageId stage);
// No masked stage at or below `stage`: backward need not go deeper than this.
bool mask_empty_below(const std::string& mask, StageId stage);

}  // namespace swarmline
