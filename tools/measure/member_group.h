// Processes that all-reduce a vector together, each a member, told over a socket when and how
// often.
// What they are made of is one of three: this program's own code, PyTorch's gloo, or plain sockets.
//   What one says: a line "ready", then for each line with a number of rounds that it is sent one
//              with the seconds and the CPU seconds that they took it, and the bytes it sent.
//   Ownership: the group owns its processes; they end with it. Nothing of them is left behind.
//   Thread:    one; it waits for the members. Made before the program has other threads (fork).
//   Errors:    kIo: a member ended or said nothing for kMemberPatience.
//   Bounds:    kMembersMax members.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "base/result.h"
#include "compression/codec.h"
#include "tools/measure/emulated_lines.h"

namespace swarmline {

struct MemberGroupSpec {
  std::uint32_t members = 2;
  std::uint64_t bytes = 0;  // of fp32, each member's vector
  // Of own members, each behind one; none: all are on loopback. They outlive the group.
  const EmulatedLines* lines = nullptr;
  std::vector<double> mbit_per_second = {};  // of these, that slices are cut by
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
    pid_t pid;
    int line;  // a socket
    std::string unread;
  };

  explicit MemberGroup(std::string what) : what_(std::move(what)) {}
  Result<void> start(const std::function<void(int line)>& body);
  Result<void> tell(const Member& member, const std::string& line) const;
  Result<std::string> hear(Member& member) const;
  Result<std::string> hear_word(Member& member) const;
  // From each its port, to each all of them, from each that it is ready.
  Result<void> introduce();

  std::string what_;
  std::vector<Member> members_;
};

// Where a Python with PyTorch is: `given`, else .deps/compare's, else python3; empty: nowhere.
std::string find_gloo_python(const std::string& given);

}  // namespace swarmline
