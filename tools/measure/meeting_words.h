// What machines that measure together say to each other, as values. Pure.
//   What:   the meta of a frame each; the frames have no payload.
//   Errors: kCorrupt with a sentence for bytes that are none, or beyond the bounds.
//   Bounds: kMeetingWordBytesMax in all; names and sentences as Limits say.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "compression/codec.h"
#include "engine/net/network.h"

namespace swarmline {

// Raised whenever what is said, or what measured members do, no longer fits what was before.
inline constexpr std::uint32_t kMeetingFormat = 1;
inline constexpr std::size_t kMeetingWordBytesMax = 48 * 1024;
inline constexpr std::size_t kMeetingTokenBytes = 32;
inline constexpr std::size_t kMeetingMachineBytes = 32;

enum MeetingKind : std::uint16_t {
  kMeetingHello = 1,
  kMeetingAnswer,
  kMeetingOver,  // with a MeetingAnswer
  kLinkTask,
  kLinkBegins,  // with its token alone
  kSocketTask,
  kTaskAnswer,
  kTaskOver,  // of a link
  kMemberTask,
  kMemberLine,
};

struct MeetingHello {
  std::uint32_t format = kMeetingFormat;
  std::string program;
  std::uint32_t protocol = 0;
  std::string what, machine, dialled;
  double mbit_per_second = 0;
  bool operator==(const MeetingHello&) const = default;
};
struct LinkTask {
  std::string way, token;
  bool operator==(const LinkTask&) const = default;
};
struct SocketTask {
  std::uint16_t port = 0;
  std::string token;
  bool operator==(const SocketTask&) const = default;
};
struct MemberTask {
  std::uint32_t task = 0, rank = 0, members = 0;
  std::uint64_t bytes = 0;
  std::string way;
  CodecSpec codec;
  std::vector<double> mbit_per_second;
  bool operator==(const MemberTask&) const = default;
};
struct MemberLine {
  std::uint32_t task = 0;
  std::string line;
  bool over = false;
  bool operator==(const MemberLine&) const = default;
};

// What each end takes of the other.
ConnectionBounds bounds_of_words();

std::string encode(const MeetingHello& hello);
std::string encode(const LinkTask& task);
std::string encode(const SocketTask& task);
std::string encode(const MemberTask& task);
std::string encode(const MemberLine& line);
std::string encode_answer(const std::string& refused);
std::string encode_task_answer(const std::string& without);

// Of another format: its format and program alone.
Result<MeetingHello> parse_meeting_hello(std::string_view bytes);
Result<LinkTask> parse_link_task(std::string_view bytes);
Result<SocketTask> parse_socket_task(std::string_view bytes);
Result<MemberTask> parse_member_task(std::string_view bytes);
Result<MemberLine> parse_member_line(std::string_view bytes);
Result<std::string> parse_answer(std::string_view bytes);       // why it is refused, or empty
Result<std::string> parse_task_answer(std::string_view bytes);  // why not, or empty

}  // namespace swarmline
