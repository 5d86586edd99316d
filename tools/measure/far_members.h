// Members of an all-reduce on other machines: each end runs its own (own_member.h), and what one
// says or is told travels over the connection by which its machine joined.
//   Thread: that of host and guest; at a guest each member has one more, and one reads its line.
//   Errors: sentences that name the machine. kPeerGone: it has left; kDeadline: it said nothing for
//           kFarMemberPatience.
//   Bounds: kMemberTasksMax members of a guest at a time; kFarRoundPatience for a round.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/ip_range.h"
#include "tools/measure/meeting_guest.h"
#include "tools/measure/meeting_host.h"
#include "tools/measure/member_group.h"

namespace swarmline {

inline constexpr Duration kFarMemberPatience = std::chrono::minutes(15);
inline constexpr Duration kFarRoundPatience = std::chrono::minutes(10);
inline constexpr std::size_t kMemberTasksMax = 8;

// All addresses of the kind that the other end was found at.
std::string any_host_like(const std::string& host);

class MeetingMembers final : public FarMembers {
 public:
  MeetingMembers(MeetingHost& host, std::vector<IpRange> trusted)
      : host_(host), trusted_(std::move(trusted)) {}

  Result<std::uint32_t> begin(const OwnMemberSpec& spec) override;
  void end(std::uint32_t group) override;
  Result<void> tell(std::uint32_t group, std::uint32_t rank, const std::string& line) override;
  Result<std::string> hear(std::uint32_t group, std::uint32_t rank) override;
  std::string host_of(std::uint32_t rank) const override { return host_.host_of(rank - 1); }
  std::string own_host_for(std::uint32_t rank) const override {
    return host_.hello_of(rank - 1).dialled;
  }
  OwnMemberSpec own_spec() const override;

 private:
  MeetingHost& host_;
  const std::vector<IpRange> trusted_;
  std::uint32_t groups_ = 0;
  // By group and rank: heard while another group's were waited for.
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::deque<std::string>> heard_;
};

// What a guest does until it is over.
Result<void> serve_far_members(MeetingGuest& guest, const std::vector<IpRange>& trusted);

}  // namespace swarmline
