// Frames from a fuzzer's bytes: any kind, any field of its message, values that break things rather
// than plain noise.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include "compression/codec.h"
#include "pipeline/protocol/message_kinds.h"

namespace swarmline {

// The fuzzer's bytes, taken one after the other; zeros when they are used up.
class FuzzInput {
 public:
  FuzzInput(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
  bool empty() const { return at_ >= size_; }
  std::uint8_t byte() { return empty() ? 0 : data_[at_++]; }
  std::uint64_t below(std::uint64_t bound) { return byte() % bound; }
  std::string text(std::size_t size) {
    std::string text;
    while (text.size() < size && !empty()) text.push_back(static_cast<char>(byte()));
    return text;
  }
  // Small numbers mostly, the ends of the types otherwise.
  std::uint64_t number() {
    const std::uint8_t choice = byte();
    if (choice < 200) return choice % 8;
    constexpr std::array<std::uint64_t, 12> kOdd = {UINT64_MAX,
                                                    UINT64_MAX - 1,
                                                    UINT32_MAX,
                                                    std::uint64_t{UINT32_MAX} + 1,
                                                    std::uint64_t{1} << 63,
                                                    1U << 20,
                                                    (1U << 20) + 1,
                                                    65536,
                                                    65535,
                                                    std::uint64_t{1} << 32 | 1,
                                                    1024,
                                                    255};
    return kOdd[choice % kOdd.size()];
  }
  double real() {
    constexpr std::array<double, 8> kOdd = {0, 1, -1, 1e300, -1e300, 0.5, 1e-300, 3};
    const std::uint8_t choice = byte();
    if (choice < 200) return kOdd[choice % kOdd.size()];
    if (choice < 220) return std::numeric_limits<double>::quiet_NaN();
    return choice < 240 ? std::numeric_limits<double>::infinity()
                        : -std::numeric_limits<double>::infinity();
  }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
  std::size_t at_ = 0;
};

// The ways that messages go.
enum Way : unsigned { kToCoordinator = 1, kFromCoordinator = 2, kBetweenPeers = 4, kToTools = 8 };

// Which of them a kind goes. Each kind has a line here, or this does not compile.
constexpr unsigned ways_of(MessageKind kind) {
  switch (kind) {
    case MessageKind::kErrorReply:
      return kToCoordinator | kFromCoordinator | kBetweenPeers | kToTools;
    case MessageKind::kHello:
    case MessageKind::kReady:
    case MessageKind::kHeartbeat:
    case MessageKind::kWantLeases:
    case MessageKind::kReport:
    case MessageKind::kClaim:
    case MessageKind::kReleaseClaim:
    case MessageKind::kComputeFailed:
    case MessageKind::kSealMismatch:
    case MessageKind::kReduced:
    case MessageKind::kRoundBroken:
    case MessageKind::kStepped:
    case MessageKind::kCheckpointPiece:
    case MessageKind::kGoodbye:
    case MessageKind::kWantHashes:
    case MessageKind::kWantState:
    case MessageKind::kStateFrozen:
    case MessageKind::kSumsFrozen:
    case MessageKind::kSumsTaken:
    case MessageKind::kLeave:
    case MessageKind::kCallMe:
    case MessageKind::kRelayHello:
    case MessageKind::kRelayState:
    case MessageKind::kStatusRequest:
    case MessageKind::kStopRequest:
    case MessageKind::kChallengeRequest:
    case MessageKind::kCheckpointRequest:
      return kToCoordinator;
    case MessageKind::kStallReport:
    case MessageKind::kOutOfReach:
      return kToCoordinator | kFromCoordinator;
    case MessageKind::kWelcome:
    case MessageKind::kDataHashes:
    case MessageKind::kDataHolders:
    case MessageKind::kDataWanted:
    case MessageKind::kMembership:
    case MessageKind::kOpenPhase:
    case MessageKind::kLeases:
    case MessageKind::kReportAck:
    case MessageKind::kClaimReply:
    case MessageKind::kSeal:
    case MessageKind::kCommit:
    case MessageKind::kRetirePhase:
    case MessageKind::kSaveStage:
    case MessageKind::kCheckpointPieceReply:
    case MessageKind::kShutdown:
    case MessageKind::kPeerLost:
    case MessageKind::kFenced:
    case MessageKind::kReopen:
    case MessageKind::kHeartbeatAck:
    case MessageKind::kFetchReduced:
    case MessageKind::kFreezeState:
    case MessageKind::kStateOffer:
    case MessageKind::kGiveSums:
    case MessageKind::kTakeSums:
    case MessageKind::kSumsMoved:
    case MessageKind::kResume:
    case MessageKind::kFollow:
    case MessageKind::kCall:
    case MessageKind::kMeet:
    case MessageKind::kRelayWelcome:
    case MessageKind::kRelayTicket:
      return kFromCoordinator;
    case MessageKind::kLinkHello:
    case MessageKind::kLinkAnswer:
    case MessageKind::kForward:
    case MessageKind::kForwardDone:
    case MessageKind::kRefused:
    case MessageKind::kCredit:
    case MessageKind::kGradientArrived:
    case MessageKind::kGradient:
    case MessageKind::kCancel:
    case MessageKind::kReduceChunk:
    case MessageKind::kFabricWord:
      return kBetweenPeers;
    case MessageKind::kPieceRequest:
      return kToCoordinator | kBetweenPeers;
    case MessageKind::kPiece:
      return kFromCoordinator | kBetweenPeers;
    case MessageKind::kStatusReply:
    case MessageKind::kStopReply:
    case MessageKind::kChallengeReply:
    case MessageKind::kCheckpointReply:
      return kToTools;
  }
  return 0;
}

// All kinds that go that way, and some that do not.
inline std::vector<MessageKind> kinds_that_go(Way way, std::vector<MessageKind> and_these) {
  constexpr unsigned kNumbers = 256;
  for (unsigned number = 0; number < kNumbers; ++number)
    if (const auto kind = static_cast<MessageKind>(number); (ways_of(kind) & way) != 0)
      and_these.push_back(kind);
  return and_these;
}

// Makes frames of a run: knows the seats it may name and a checkpoint's and the run's name.
struct HostileFrames {
  FuzzInput& input;
  std::vector<Seat> seats;  // first: the sender's own
  std::uint64_t activation_elements = 0;

  void fill_seat(wire::Seat& seat) {
    const std::uint64_t choice = input.below(8);
    if (choice < 4 && !seats.empty()) {
      seat = to_wire(seats.front());
    } else if (choice < 7 && !seats.empty()) {
      seat = to_wire(seats[input.below(seats.size())]);
    } else {
      seat.set_peer(static_cast<std::uint32_t>(input.number()));
      seat.set_stage(static_cast<std::uint32_t>(input.number()));
      seat.set_incarnation(static_cast<std::uint32_t>(input.number()));
    }
  }

  void fill(google::protobuf::Message& message, int depth = 0) {
    using Field = google::protobuf::FieldDescriptor;
    if (auto* seat = dynamic_cast<wire::Seat*>(&message)) return fill_seat(*seat);
    const auto* about = message.GetDescriptor();
    const auto* reflection = message.GetReflection();
    for (int i = 0; i < about->field_count(); ++i) {
      const Field* field = about->field(i);
      // One's own name is what gets a message past the door.
      const bool named = field->cpp_type() == Field::CPPTYPE_MESSAGE &&
                         field->message_type() == wire::Seat::descriptor() && depth == 0;
      const std::uint64_t times =
          field->is_repeated() ? input.below(4) : (named || input.byte() % 8 != 0);
      for (std::uint64_t n = 0; n < times; ++n) set(message, *reflection, field, depth);
    }
  }

  // One field of it, or of a message in it, becomes another: all else is as it was.
  void spoil(google::protobuf::Message& message, int depth = 0) {
    using Field = google::protobuf::FieldDescriptor;
    if (auto* seat = dynamic_cast<wire::Seat*>(&message)) return fill_seat(*seat);
    const auto* about = message.GetDescriptor();
    const auto& reflection = *message.GetReflection();
    if (about->field_count() == 0) return;
    const Field* field = about->field(static_cast<int>(input.below(about->field_count())));
    const bool is_message = field->cpp_type() == Field::CPPTYPE_MESSAGE;
    if (!field->is_repeated()) {
      if (input.below(4) == 0) return reflection.ClearField(&message, field);
      if (is_message) return spoil(*reflection.MutableMessage(&message, field), depth + 1);
      return set(message, reflection, field, depth);
    }
    const int size = reflection.FieldSize(message, field);
    const std::uint64_t how = input.below(4);
    if (how == 0 && size > 0) return reflection.RemoveLast(&message, field);
    if (how == 1 && size > 1) return reflection.SwapElements(&message, field, 0, size - 1);
    if (is_message && how != 2 && size > 0)
      return spoil(
          *reflection.MutableRepeatedMessage(&message, field, static_cast<int>(input.below(size))),
          depth + 1);
    if (!is_message && size > 0) reflection.RemoveLast(&message, field);
    set(message, reflection, field, depth);
  }

  std::unique_ptr<google::protobuf::Message> message_of(MessageKind kind) const {
    const std::string name = "swarmline.wire." + std::string(to_string(kind));
    const auto* about =
        google::protobuf::DescriptorPool::generated_pool()->FindMessageTypeByName(name);
    if (about == nullptr) return nullptr;
    return std::unique_ptr<google::protobuf::Message>(
        google::protobuf::MessageFactory::generated_factory()->GetPrototype(about)->New());
  }

  SharedBytes payload() {
    switch (input.below(4)) {
      case 0:
        return {};
      case 1:
        return SharedBytes(Buffer::copy_of(as_bytes(input.text(input.byte()))));
      default:
        break;
    }
    // A tensor that checks, of the right size or another.
    const std::uint64_t elements = input.below(4) == 0 ? input.number() % 100 : activation_elements;
    Buffer values(elements * sizeof(double));
    for (double& value : values.as<double>()) value = input.real();
    return SharedBytes(encode(CodecSpec{}, values.bytes(), DType::kF64));
  }

  // One frame of one of `kinds`, or of any number and any bytes.
  Frame next(const std::vector<MessageKind>& kinds) {
    const std::uint64_t shape = input.below(16);
    Frame frame;
    if (shape == 0) {
      frame.kind = static_cast<std::uint16_t>(input.number());
      frame.meta = input.text(input.byte());
    } else {
      const MessageKind kind = kinds[input.below(kinds.size())];
      frame.kind = static_cast<std::uint16_t>(kind);
      if (auto message = message_of(kind)) {
        fill(*message);
        frame.meta = message->SerializePartialAsString();
      }
    }
    if (shape >= 8 && input.below(2) == 0) frame.request = input.number();
    if (shape == 1) frame.flags = static_cast<std::uint32_t>(input.number());
    if (SharedBytes bytes = payload(); !bytes.empty()) frame.payload.push_back(std::move(bytes));
    return frame;
  }

 private:
  void set(google::protobuf::Message& message, const google::protobuf::Reflection& reflection,
           const google::protobuf::FieldDescriptor* field, int depth) {
    using Field = google::protobuf::FieldDescriptor;
    const bool many = field->is_repeated();
    switch (field->cpp_type()) {
      case Field::CPPTYPE_MESSAGE:
        if (depth < 4)
          fill(many ? *reflection.AddMessage(&message, field)
                    : *reflection.MutableMessage(&message, field),
               depth + 1);
        return;
      case Field::CPPTYPE_UINT32: {
        const auto value = static_cast<std::uint32_t>(input.number());
        return many ? reflection.AddUInt32(&message, field, value)
                    : reflection.SetUInt32(&message, field, value);
      }
      case Field::CPPTYPE_UINT64:
        return many ? reflection.AddUInt64(&message, field, input.number())
                    : reflection.SetUInt64(&message, field, input.number());
      case Field::CPPTYPE_DOUBLE:
        return reflection.SetDouble(&message, field, input.real());
      case Field::CPPTYPE_BOOL:
        return reflection.SetBool(&message, field, input.below(2) == 1);
      case Field::CPPTYPE_ENUM:
        return reflection.SetEnumValue(&message, field, static_cast<int>(input.below(6)));
      case Field::CPPTYPE_STRING:
        return many ? reflection.AddString(&message, field, text_for(*field))
                    : reflection.SetString(&message, field, text_for(*field));
      default:
        return;
    }
  }

  std::string text_for(const google::protobuf::FieldDescriptor& field) {
    if (field.name() == "checkpoint") return "step-" + std::to_string(input.below(4));
    if (field.name() == "address") return "sim:" + std::to_string(input.below(8));
    if (field.name() == "run_id") return "simulated";
    if (field.name() == "targets") return std::string(activation_targets_bytes, '\0');
    if (field.type() == google::protobuf::FieldDescriptor::TYPE_BYTES)
      return input.text(input.below(8));
    return std::string(input.below(8), 'x');
  }

 public:
  std::size_t activation_targets_bytes = 0;
};

}  // namespace swarmline
