#include "tools/measure/meeting_words.h"

#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "base/limits.h"
#include "base/printable.h"
#include "base/units.h"
#include "tools/measure/meeting.pb.h"
#include "tools/measure/member_group.h"
#include "tools/measure/member_line.h"

namespace swarmline {
namespace {

constexpr std::uint64_t kMemberBytesMax = 4 * kGiB;

std::unexpected<Error> none(std::string_view why) {
  return fail(ErrorCode::kCorrupt, fmt::format("this is no word of a measurement: {}", why));
}

template <typename Message>
Result<Message> parse(std::string_view bytes) {
  Message message;
  if (bytes.size() > kMeetingWordBytesMax) return none("it is too long");
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    return none("its bytes do not parse");
  return message;
}

bool is_rate(double mbit_per_second) {
  return std::isfinite(mbit_per_second) && mbit_per_second >= 0;
}

Result<void> check(const wire::MemberTask& task) {
  if (task.members() < 2 || task.members() > MemberGroup::kMembersMax ||
      task.rank() >= task.members())
    return none("no such member");
  if (task.bytes() == 0 || task.bytes() > kMemberBytesMax || task.bytes() % kMiB != 0)
    return none("a vector of another size");
  if (task.way().size() > Limits::name_bytes_max) return none("a long name of a way");
  if (task.mbit_per_second_size() != 0 &&
      static_cast<std::uint32_t>(task.mbit_per_second_size()) != task.members())
    return none("rates of other members");
  for (const double rate : task.mbit_per_second())
    if (!is_rate(rate)) return none("a rate that is none");
  return {};
}

}  // namespace

ConnectionBounds bounds_of_words() {
  return {.room = [](std::uint16_t) {
    return FrameRoom{.meta_bytes_max = kMeetingWordBytesMax, .payload_bytes_max = 0};
  }};
}

std::string encode(const MeetingHello& hello) {
  wire::MeetingHello message;
  message.set_format(hello.format);
  message.set_program(hello.program);
  message.set_protocol(hello.protocol);
  message.set_what(hello.what);
  message.set_machine(hello.machine);
  message.set_dialled(hello.dialled);
  message.set_mbit_per_second(hello.mbit_per_second);
  return message.SerializeAsString();
}

Result<MeetingHello> parse_meeting_hello(std::string_view bytes) {
  const auto message = parse<wire::MeetingHello>(bytes);
  if (!message) return std::unexpected(message.error());
  MeetingHello hello{.format = message->format(),
                     .program = printable(message->program(), Limits::name_bytes_max),
                     .protocol = 0,
                     .what = {},
                     .machine = {},
                     .dialled = {},
                     .mbit_per_second = 0};
  if (hello.format != kMeetingFormat) return hello;
  if (!message->machine().empty() && message->machine().size() != kMeetingMachineBytes)
    return none("a machine of another size");
  if (message->dialled().size() > Limits::address_bytes_max) return none("a long address");
  if (!is_rate(message->mbit_per_second())) return none("a rate that is none");
  hello.protocol = message->protocol();
  hello.what = printable(message->what(), Limits::name_bytes_max);
  hello.machine = message->machine();
  hello.dialled = message->dialled();
  hello.mbit_per_second = message->mbit_per_second();
  return hello;
}

std::string encode(const LinkTask& task) {
  wire::LinkTask message;
  message.set_way(task.way);
  message.set_token(task.token);
  return message.SerializeAsString();
}

Result<LinkTask> parse_link_task(std::string_view bytes) {
  const auto message = parse<wire::LinkTask>(bytes);
  if (!message) return std::unexpected(message.error());
  if (message->way().size() > Limits::name_bytes_max) return none("a long name of a way");
  if (message->token().size() != kMeetingTokenBytes) return none("a token of another size");
  return LinkTask{.way = message->way(), .token = message->token()};
}

std::string encode(const SocketTask& task) {
  wire::SocketTask message;
  message.set_port(task.port);
  message.set_token(task.token);
  return message.SerializeAsString();
}

Result<SocketTask> parse_socket_task(std::string_view bytes) {
  const auto message = parse<wire::SocketTask>(bytes);
  if (!message) return std::unexpected(message.error());
  if (message->port() == 0 || message->port() > std::numeric_limits<std::uint16_t>::max())
    return none("a port that is none");
  if (message->token().size() != kMeetingTokenBytes) return none("a token of another size");
  return SocketTask{.port = static_cast<std::uint16_t>(message->port()), .token = message->token()};
}

std::string encode(const MemberTask& task) {
  wire::MemberTask message;
  message.set_task(task.task);
  message.set_rank(task.rank);
  message.set_members(task.members);
  message.set_bytes(task.bytes);
  message.set_way(task.way);
  message.set_codec(static_cast<std::uint32_t>(task.codec.kind));
  message.set_block(task.codec.block);
  message.set_scales(static_cast<std::uint32_t>(task.codec.scales));
  message.set_kept(task.codec.kept);
  message.set_checksums(task.codec.checksums);
  for (const double rate : task.mbit_per_second) message.add_mbit_per_second(rate);
  return message.SerializeAsString();
}

Result<MemberTask> parse_member_task(std::string_view bytes) {
  const auto message = parse<wire::MemberTask>(bytes);
  if (!message) return std::unexpected(message.error());
  SWARMLINE_TRY(check(*message));
  MemberTask task{
      .task = message->task(),
      .rank = message->rank(),
      .members = message->members(),
      .bytes = message->bytes(),
      .way = message->way(),
      .codec = {},
      .mbit_per_second = {message->mbit_per_second().begin(), message->mbit_per_second().end()}};
  if (message->codec() >= kCodecKinds || message->scales() > 0xffU) return none("no such codec");
  task.codec = {.kind = static_cast<CodecKind>(message->codec()),
                .block = message->block(),
                .scales = static_cast<kernels::ScaleKind>(message->scales()),
                .kept = message->kept(),
                .checksums = message->checksums()};
  if (!is_valid(task.codec)) return none("no such codec");
  return task;
}

std::string encode(const MemberLine& line) {
  wire::MemberLine message;
  message.set_task(line.task);
  message.set_line(line.line);
  message.set_over(line.over);
  return message.SerializeAsString();
}

Result<MemberLine> parse_member_line(std::string_view bytes) {
  const auto message = parse<wire::MemberLine>(bytes);
  if (!message) return std::unexpected(message.error());
  if (message->line().size() > kMemberLineBytesMax) return none("a long line");
  return MemberLine{.task = message->task(),
                    .line = printable(message->line(), kMemberLineBytesMax),
                    .over = message->over()};
}

std::string encode_answer(const std::string& refused) {
  wire::MeetingAnswer message;
  message.set_refused(refused);
  return message.SerializeAsString();
}

Result<std::string> parse_answer(std::string_view bytes) {
  const auto message = parse<wire::MeetingAnswer>(bytes);
  if (!message) return std::unexpected(message.error());
  return printable(message->refused(), Limits::reason_bytes_max);
}

std::string encode_task_answer(const std::string& without) {
  wire::TaskAnswer message;
  message.set_without(without);
  return message.SerializeAsString();
}

Result<std::string> parse_task_answer(std::string_view bytes) {
  const auto message = parse<wire::TaskAnswer>(bytes);
  if (!message) return std::unexpected(message.error());
  return printable(message->without(), Limits::reason_bytes_max);
}

}  // namespace swarmline
