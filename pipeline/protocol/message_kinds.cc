#include "pipeline/protocol/message_kinds.h"

namespace swarmline {

namespace {
constexpr double kHeartbeatSecondsMin = 0.01;
constexpr double kHeartbeatSecondsMax = 3600;
constexpr double kNoticeSecondsMax = 86400;
}  // namespace

std::string_view to_string(MessageKind kind) {
  switch (kind) {
    case MessageKind::kErrorReply:
      return "ErrorReply";
    case MessageKind::kFollow:
      return "Follow";
    case MessageKind::kHello:
      return "Hello";
    case MessageKind::kWelcome:
      return "Welcome";
    case MessageKind::kDataWanted:
      return "DataWanted";
    case MessageKind::kReady:
      return "Ready";
    case MessageKind::kHeartbeat:
      return "Heartbeat";
    case MessageKind::kMembership:
      return "Membership";
    case MessageKind::kOpenPhase:
      return "OpenPhase";
    case MessageKind::kWantLeases:
      return "WantLeases";
    case MessageKind::kLeases:
      return "Leases";
    case MessageKind::kReport:
      return "Report";
    case MessageKind::kReportAck:
      return "ReportAck";
    case MessageKind::kClaim:
      return "Claim";
    case MessageKind::kClaimReply:
      return "ClaimReply";
    case MessageKind::kComputeFailed:
      return "ComputeFailed";
    case MessageKind::kStallReport:
      return "StallReport";
    case MessageKind::kSeal:
      return "Seal";
    case MessageKind::kSealMismatch:
      return "SealMismatch";
    case MessageKind::kReduced:
      return "Reduced";
    case MessageKind::kCommit:
      return "Commit";
    case MessageKind::kStepped:
      return "Stepped";
    case MessageKind::kRetirePhase:
      return "RetirePhase";
    case MessageKind::kSaveStage:
      return "SaveStage";
    case MessageKind::kCheckpointPiece:
      return "CheckpointPiece";
    case MessageKind::kCheckpointPieceReply:
      return "CheckpointPieceReply";
    case MessageKind::kShutdown:
      return "Shutdown";
    case MessageKind::kGoodbye:
      return "Goodbye";
    case MessageKind::kPeerLost:
      return "PeerLost";
    case MessageKind::kFenced:
      return "Fenced";
    case MessageKind::kReopen:
      return "Reopen";
    case MessageKind::kReleaseClaim:
      return "ReleaseClaim";
    case MessageKind::kRoundBroken:
      return "RoundBroken";
    case MessageKind::kHeartbeatAck:
      return "HeartbeatAck";
    case MessageKind::kFetchReduced:
      return "FetchReduced";
    case MessageKind::kWantState:
      return "WantState";
    case MessageKind::kFreezeState:
      return "FreezeState";
    case MessageKind::kStateFrozen:
      return "StateFrozen";
    case MessageKind::kGiveSums:
      return "GiveSums";
    case MessageKind::kSumsFrozen:
      return "SumsFrozen";
    case MessageKind::kTakeSums:
      return "TakeSums";
    case MessageKind::kSumsTaken:
      return "SumsTaken";
    case MessageKind::kSumsMoved:
      return "SumsMoved";
    case MessageKind::kStateOffer:
      return "StateOffer";
    case MessageKind::kLeave:
      return "Leave";
    case MessageKind::kResume:
      return "Resume";
    case MessageKind::kCallMe:
      return "CallMe";
    case MessageKind::kCall:
      return "Call";
    case MessageKind::kOutOfReach:
      return "OutOfReach";
    case MessageKind::kMeet:
      return "Meet";
    case MessageKind::kWantHashes:
      return "WantHashes";
    case MessageKind::kDataHashes:
      return "DataHashes";
    case MessageKind::kDataHolders:
      return "DataHolders";
    case MessageKind::kRelayHello:
      return "RelayHello";
    case MessageKind::kRelayWelcome:
      return "RelayWelcome";
    case MessageKind::kRelayTicket:
      return "RelayTicket";
    case MessageKind::kRelayState:
      return "RelayState";
    case MessageKind::kLinkHello:
      return "LinkHello";
    case MessageKind::kLinkAnswer:
      return "LinkAnswer";
    case MessageKind::kForward:
      return "Forward";
    case MessageKind::kForwardDone:
      return "ForwardDone";
    case MessageKind::kRefused:
      return "Refused";
    case MessageKind::kCredit:
      return "Credit";
    case MessageKind::kGradientArrived:
      return "GradientArrived";
    case MessageKind::kGradient:
      return "Gradient";
    case MessageKind::kCancel:
      return "Cancel";
    case MessageKind::kReduceChunk:
      return "ReduceChunk";
    case MessageKind::kFabricWord:
      return "FabricWord";
    case MessageKind::kPieceRequest:
      return "PieceRequest";
    case MessageKind::kPiece:
      return "Piece";
    case MessageKind::kStatusRequest:
      return "StatusRequest";
    case MessageKind::kStatusReply:
      return "StatusReply";
    case MessageKind::kStopRequest:
      return "StopRequest";
    case MessageKind::kStopReply:
      return "StopReply";
    case MessageKind::kChallengeRequest:
      return "ChallengeRequest";
    case MessageKind::kChallengeReply:
      return "ChallengeReply";
    case MessageKind::kCheckpointRequest:
      return "CheckpointRequest";
    case MessageKind::kCheckpointReply:
      return "CheckpointReply";
  }
  return "?";
}

Result<std::optional<Seat>> addressee(const Frame& frame) {
  switch (kind_of(frame)) {
    case MessageKind::kMembership:
    case MessageKind::kCommit:
    case MessageKind::kFetchReduced:
    case MessageKind::kStateOffer:
    case MessageKind::kPieceRequest:
    case MessageKind::kPiece:
      break;
    default:
      return std::nullopt;
  }
  const auto addressed = parse<wire::Addressed>(frame);
  if (!addressed) return std::unexpected(addressed.error());
  if (!addressed->has_to())
    return fail(ErrorCode::kCorrupt,
                std::string(to_string(kind_of(frame))) + " does not say whom it is for");
  return from_wire(addressed->to());
}

wire::Phase to_wire(const Phase& phase) {
  wire::Phase out;
  out.set_eval(phase.kind == PhaseKind::kEval);
  out.set_step(phase.step);
  return out;
}

Phase from_wire(const wire::Phase& phase) {
  return {phase.eval() ? PhaseKind::kEval : PhaseKind::kTrain, phase.step()};
}

wire::Seat to_wire(const Seat& seat) {
  wire::Seat out;
  out.set_peer(seat.peer.value);
  out.set_stage(seat.stage.value);
  out.set_incarnation(seat.incarnation.value);
  return out;
}

Seat from_wire(const wire::Seat& seat) {
  return {PeerId{seat.peer()}, StageId{static_cast<std::uint16_t>(seat.stage())},
          Incarnation{seat.incarnation()}};
}

wire::AttemptId to_wire(const AttemptId& id) {
  wire::AttemptId out;
  *out.mutable_phase() = to_wire(id.microbatch.phase);
  out.set_index(id.microbatch.index);
  out.set_attempt(id.attempt.value);
  return out;
}

AttemptId from_wire(const wire::AttemptId& id) {
  return {{from_wire(id.phase()), id.index()}, Attempt{id.attempt()}};
}

Duration heartbeat_period_from(double seconds) {
  const bool can_be = seconds >= kHeartbeatSecondsMin && seconds < kHeartbeatSecondsMax;
  return can_be ? from_seconds(seconds) : Duration{};
}

std::optional<Duration> notice_from(double seconds) {
  if (!(seconds > 0 && seconds < kNoticeSecondsMax)) return std::nullopt;
  return from_seconds(seconds);
}

bool mask_has(const std::string& mask, StageId stage) {
  if (mask.empty()) return true;
  const std::size_t byte = stage.value / 8U;
  return byte < mask.size() &&
         ((static_cast<unsigned char>(mask[byte]) >> (stage.value % 8U)) & 1U) != 0;
}

bool mask_empty_below(const std::string& mask, StageId stage) {
  for (std::uint16_t s = 0; s < stage.value; ++s)
    if (mask_has(mask, StageId{s})) return false;
  return true;
}

}  // namespace swarmline
