#include "tools/measure/far_members.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include <fmt/format.h>

#include "tools/measure/member_line.h"

namespace swarmline {
namespace {

// A guest's member, and who reads what it says.
class GuestMember {
 public:
  static Result<std::unique_ptr<GuestMember>> begin(MeetingGuest& guest, std::uint32_t task,
                                                    OwnMemberSpec spec) {
    std::array<int, 2> ends{};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
      return fail(ErrorCode::kIo, fmt::format("bench allreduce: {}", std::strerror(errno)));
    return std::unique_ptr<GuestMember>(new GuestMember(guest, task, std::move(spec), ends));
  }
  ~GuestMember() {
    ::shutdown(line_, SHUT_RDWR);
    member_.join();
    reader_.join();
    ::close(line_);
  }
  GuestMember(const GuestMember&) = delete;
  GuestMember& operator=(const GuestMember&) = delete;

  void tell(const std::string& line) const { write_line(line_, line); }

 private:
  GuestMember(MeetingGuest& guest, std::uint32_t task, OwnMemberSpec spec,
              const std::array<int, 2>& ends)
      : line_(ends[0]),
        member_([spec = std::move(spec), line = ends[1]] {
          serve_own_member(spec, line);
          ::close(line);
        }),
        reader_([&guest, task, line = ends[0]] {
          while (auto said = read_line(line))
            guest.runtime().post([&guest, task, said = std::move(*said)] {
              guest.say(kMemberLine, encode(MemberLine{.task = task, .line = said}));
            });
        }) {}

  const int line_;
  std::thread member_, reader_;
};

class GuestMembers {
 public:
  GuestMembers(MeetingGuest& guest, const std::vector<IpRange>& trusted)
      : guest_(guest), trusted_(trusted) {}

  Result<void> hear(const Frame& frame) {
    if (frame.kind == kMemberTask) return begin(frame);
    if (frame.kind != kMemberLine)
      return fail(ErrorCode::kCorrupt, "bench allreduce: the other end says what is no word of it");
    const auto line = parse_member_line(frame.meta);
    if (!line) return std::unexpected(line.error());
    const auto member = members_.find(line->task);
    if (member == members_.end()) return {};
    if (line->over)
      members_.erase(member);
    else
      member->second->tell(line->line);
    return {};
  }

 private:
  Result<void> begin(const Frame& frame) {
    const auto task = parse_member_task(frame.meta);
    if (!task) return std::unexpected(task.error());
    if (members_.size() == kMemberTasksMax || members_.contains(task->task))
      return fail(ErrorCode::kCorrupt, "bench allreduce: the other end begins too many members");
    auto member = GuestMember::begin(guest_, task->task,
                                     {.rank = task->rank,
                                      .members = task->members,
                                      .bytes = task->bytes,
                                      .codec = task->codec,
                                      .way = task->way,
                                      .host = any_host_like(guest_.host().host),
                                      .mbit_per_second = task->mbit_per_second,
                                      .guard = guest_.guard(),
                                      .trusted = trusted_,
                                      .patience = kFarRoundPatience});
    if (!member) return std::unexpected(member.error());
    members_.emplace(task->task, std::move(*member));
    return {};
  }

  MeetingGuest& guest_;
  const std::vector<IpRange>& trusted_;
  std::map<std::uint32_t, std::unique_ptr<GuestMember>> members_;
};

}  // namespace

std::string any_host_like(const std::string& host) {
  return host.find(':') != std::string::npos ? "::" : "0.0.0.0";
}

Result<std::uint32_t> MeetingMembers::begin(const OwnMemberSpec& spec) {
  const std::uint32_t group = ++groups_;
  for (std::uint32_t rank = 1; rank < spec.members; ++rank)
    SWARMLINE_TRY(host_.tell(rank - 1, kMemberTask,
                             encode(MemberTask{.task = group,
                                               .rank = rank,
                                               .members = spec.members,
                                               .bytes = spec.bytes,
                                               .way = spec.way,
                                               .codec = spec.codec,
                                               .mbit_per_second = spec.mbit_per_second})));
  return group;
}

void MeetingMembers::end(std::uint32_t group) {
  for (std::uint32_t guest = 0; guest < host_.guests(); ++guest) {
    static_cast<void>(
        host_.tell(guest, kMemberLine, encode(MemberLine{.task = group, .over = true})));
    heard_.erase({group, guest + 1});
  }
}

Result<void> MeetingMembers::tell(std::uint32_t group, std::uint32_t rank,
                                  const std::string& line) {
  return host_.tell(rank - 1, kMemberLine, encode(MemberLine{.task = group, .line = line}));
}

Result<std::string> MeetingMembers::hear(std::uint32_t group, std::uint32_t rank) {
  auto& lines = heard_[{group, rank}];
  while (lines.empty()) {
    const auto frame = host_.hear(rank - 1, kFarMemberPatience);
    if (!frame) return std::unexpected(frame.error());
    auto line = parse_member_line(frame->meta);
    if (frame->kind != kMemberLine || !line)
      return fail(ErrorCode::kCorrupt,
                  fmt::format("bench allreduce: {} says what is no word of it", host_of(rank)));
    if (line->task <= groups_) heard_[{line->task, rank}].push_back(std::move(line->line));
  }
  std::string line = std::move(lines.front());
  lines.pop_front();
  return line;
}

OwnMemberSpec MeetingMembers::own_spec() const {
  return {.codec = {},
          .way = {},
          .host = any_host_like(own_host_for(1)),
          .guard = host_.guard(),
          .trusted = trusted_,
          .patience = kFarRoundPatience};
}

Result<void> serve_far_members(MeetingGuest& guest, const std::vector<IpRange>& trusted) {
  GuestMembers members(guest, trusted);
  return guest.serve([&](const Frame& frame) { return members.hear(frame); });
}

}  // namespace swarmline
