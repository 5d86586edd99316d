// Processes that all-reduce a vector together, each a member, told over a socket when and how
// often.
// What they are made of is one of three: this program's own code, PyTorch's gloo, or plain sockets.
//   What one says: a line "ready", then for each line with a number of rounds that it is sent one
//              with the seconds and the CPU seconds that they took it, and the bytes it sent.
//   Ownership: the group owns its processes; they end with it. Nothing of them is left behind.
//   Thread:    one; it waits for the members. Made before the program has other threads (fork), but
//              for one with members on other machines, whose own member is a thread.
//   Errors:    kIo: a member ended, failed with a sentence, or said nothing for kMemberPatience.
//   Bounds:    kMembersMax members.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <sys/types.h>
#include <thread>
#include <vector>

#include "base/result.h"
#include "compression/codec.h"
#include "tools/measure/emulated_lines.h"
#include "tools/measure/own_member.h"

namespace swarmline {

// Members on other machines, who speak as own members do. Several groups of them may live at a
// time, each by its number. Errors: sentences that name the machine.
class FarMembers {
 public:
  virtual ~FarMembers() = default;
  // Each begins a member of that spec, whose rank is one more than its place.
  virtual Result<std::uint32_t> begin(const OwnMemberSpec& spec) = 0;
  virtual void end(std::uint32_t group) = 0;
  virtual Result<void> tell(std::uint32_t group, std::uint32_t rank, const std::string& line) = 0;
  virtual Result<std::string> hear(std::uint32_t group, std::uint32_t rank) = 0;
  virtual std::string host_of(std::uint32_t rank) const = 0;       // as others reach it
  virtual std::string own_host_for(std::uint32_t rank) const = 0;  // as that one reaches this end
  virtual OwnMemberSpec own_spec() const = 0;                      // host, guard, trust, patience
};

struct MemberGroupSpec {
  std::uint32_t members = 2;
  std::uint64_t bytes = 0;  // of fp32, each member's vector
  // Of own members, each behind one; none: all are on loopback. They outlive the group.
  const EmulatedLines* lines = nullptr;
  std::vector<double> mbit_per_second = {};  // of these, that slices are cut by
  FarMembers* far = nullptr;  // all but the first, of own members; null: all are here
};

struct ReduceSample {
  double seconds = 0;            // a round, of the member that took longest
  double cpu_seconds = 0;        // a round, of a member in the mean
  std::uint64_t wire_bytes = 0;  // a round, of all members; 0: not known
};

class MemberGroup {
 public:
  static constexpr std::uint32_t kMembersMax = 64;
  static constexpr std::chrono::seconds kMemberPatience{120};

  // With the code that averages gradients; sums are checked in the first round.
  // `way` as own_member.h has it; kNotFound: it can't be had here.
  static Result<MemberGroup> own(const MemberGroupSpec& spec, const CodecSpec& codec,
                                 const std::string& way = "tcp");
  // Plain sockets that carry the same bytes and nothing is done with: socket_member.h. No lines.
  static Result<MemberGroup> sockets(const MemberGroupSpec& spec);
  // torch.distributed with the gloo backend over loopback, as `python` has it.
  static Result<MemberGroup> gloo(const MemberGroupSpec& spec, const std::string& python);

  MemberGroup(MemberGroup&& other) noexcept;
  MemberGroup& operator=(MemberGroup&&) = delete;
  ~MemberGroup();

  // So many rounds, one after the other.
  Result<ReduceSample> run(std::uint32_t rounds);

 private:
  struct Member {
    pid_t pid;  // 0: it is this process's
    int line;   // a socket; -1: it is on another machine
    std::string unread;
    std::thread thread = {};
  };

  explicit MemberGroup(std::string what) : what_(std::move(what)) {}
  Result<void> start(const std::function<void(int line)>& body);
  Result<void> start_apart(const OwnMemberSpec& spec, FarMembers& far);
  Result<void> tell(std::uint32_t rank, const std::string& line) const;
  Result<std::string> hear(std::uint32_t rank);
  Result<std::string> hear_line(Member& member) const;
  std::string address_of(std::uint32_t rank, const std::string& port, std::uint32_t listener) const;
  // From each its port, to each all of them, from each that it is ready.
  Result<void> introduce();

  std::string what_;
  std::vector<Member> members_;
  std::vector<std::string> hosts_;  // by rank, of members here
  FarMembers* far_ = nullptr;
  std::uint32_t far_group_ = 0;
};

// Where a Python with PyTorch is: `given`, else .deps/compare's, else python3; empty: nowhere.
std::string find_gloo_python(const std::string& given);

}  // namespace swarmline
