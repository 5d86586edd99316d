#include "tools/measure/member_group.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "engine/net/network.h"
#include "engine/store/files.h"
#include "tools/measure/gloo_member_text.h"
#include "tools/measure/own_member.h"
#include "tools/measure/socket_member.h"

namespace swarmline {
namespace {

constexpr const char* kComparePython = ".deps/compare/bin/python";

std::unexpected<Error> broken(const std::string& what, const std::string& why) {
  return fail(ErrorCode::kIo, fmt::format("bench allreduce: {} {}", what, why));
}

bool has_torch(const std::string& python) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    const int nowhere = ::open("/dev/null", O_RDWR);
    for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
      ::dup2(nowhere, standard);
    ::execlp(python.c_str(), python.c_str(), "-c",
             "import torch.distributed as d; assert d.is_gloo_available()", nullptr);
    ::_exit(127);
  }
  int status = -1;
  return pid > 0 && ::waitpid(pid, &status, 0) == pid && status == 0;
}

// Where members find each other. Nothing of it is left.
class MeetingFolder {
 public:
  MeetingFolder() {
    std::error_code error;
    std::string name = std::filesystem::temp_directory_path(error) / "swarmline-gloo-XXXXXX";
    if (!error && ::mkdtemp(name.data()) != nullptr) path_ = name;
  }
  ~MeetingFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  MeetingFolder(const MeetingFolder&) = delete;
  MeetingFolder& operator=(const MeetingFolder&) = delete;

  const std::string& path() const { return path_; }  // empty: it can't be made

 private:
  std::string path_;
};

}  // namespace

std::string find_gloo_python(const std::string& given) {
  if (!given.empty()) return has_torch(given) ? given : std::string();
  if (file_exists(kComparePython) && has_torch(kComparePython)) return kComparePython;
  return has_torch("python3") ? "python3" : std::string();
}

MemberGroup::MemberGroup(MemberGroup&& other) noexcept
    : what_(std::move(other.what_)),
      members_(std::exchange(other.members_, {})),
      hosts_(std::move(other.hosts_)),
      far_(std::exchange(other.far_, nullptr)),
      far_group_(other.far_group_) {}

MemberGroup::~MemberGroup() {
  if (far_ != nullptr) far_->end(far_group_);  // their links end, and who waits for them knows it
  for (Member& member : members_) {
    if (member.line < 0) continue;
    ::close(member.line);
    if (member.thread.joinable()) member.thread.join();
    if (member.pid == 0) continue;
    ::kill(member.pid, SIGKILL);  // it may wait for another one
    ::waitpid(member.pid, nullptr, 0);
  }
}

Result<void> MemberGroup::start(const std::function<void(int line)>& body) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return broken(what_, std::strerror(errno));
  std::fflush(nullptr);
  const pid_t pid = ::fork();
  if (pid < 0) {
    const int error = errno;
    for (const int end : ends) ::close(end);
    return broken(what_, std::strerror(error));
  }
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (const Member& other : members_) ::close(other.line);  // or it would outlive its word
    ::close(ends[0]);
    body(ends[1]);
    ::_exit(0);
  }
  ::close(ends[1]);
  members_.push_back({.pid = pid, .line = ends[0], .unread = {}});
  return {};
}

// The first is a thread of this process, which has others by now.
Result<void> MemberGroup::start_apart(const OwnMemberSpec& spec, FarMembers& far) {
  const auto group = far.begin(spec);
  if (!group) return std::unexpected(group.error());
  far_ = &far;
  far_group_ = *group;
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return broken(what_, std::strerror(errno));
  members_.push_back({.pid = 0, .line = ends[0], .unread = {}});
  members_.back().thread = std::thread([spec, line = ends[1]] {
    serve_own_member(spec, line);
    ::close(line);
  });
  for (std::uint32_t rank = 1; rank < spec.members; ++rank)
    members_.push_back({.pid = 0, .line = -1, .unread = {}});
  return {};
}

Result<void> MemberGroup::tell(std::uint32_t rank, const std::string& line) const {
  const Member& member = members_[rank];
  if (member.line < 0) return far_->tell(far_group_, rank, line);
  const std::string text = line + "\n";
  if (::send(member.line, text.data(), text.size(), MSG_NOSIGNAL) ==
      static_cast<ssize_t>(text.size()))
    return {};
  return broken(what_, "ended");
}

Result<std::string> MemberGroup::hear_line(Member& member) const {
  while (true) {
    if (const std::size_t end = member.unread.find('\n'); end != std::string::npos) {
      std::string line = member.unread.substr(0, end);
      member.unread.erase(0, end + 1);
      return line;
    }
    pollfd ready{.fd = member.line, .events = POLLIN, .revents = 0};
    const int patience = static_cast<int>(std::chrono::milliseconds(kMemberPatience).count());
    if (::poll(&ready, 1, patience) == 0) return broken(what_, "said nothing for two minutes");
    std::array<char, 256> bytes;
    const ssize_t got = ::read(member.line, bytes.data(), bytes.size());
    if (got <= 0) return broken(what_, "ended");
    member.unread.append(bytes.data(), static_cast<std::size_t>(got));
  }
}

// What a member says in the place of anything else is an error.
Result<std::string> MemberGroup::hear(std::uint32_t rank) {
  Member& member = members_[rank];
  auto word = member.line < 0 ? far_->hear(far_group_, rank) : hear_line(member);
  if (word && word->starts_with(kWithoutWay))
    return fail(ErrorCode::kNotFound, word->substr(kWithoutWay.size()));
  if (word && word->starts_with(kMemberFailed))
    return broken(fmt::format("member {}:", rank), word->substr(kMemberFailed.size()));
  return word;
}

// As `listener` reaches it.
std::string MemberGroup::address_of(std::uint32_t rank, const std::string& port,
                                    std::uint32_t listener) const {
  std::string host = "127.0.0.1";
  if (!hosts_.empty()) host = hosts_[rank];
  if (far_ != nullptr && rank > 0) host = far_->host_of(rank);
  if (far_ != nullptr && rank == 0 && listener > 0) host = far_->own_host_for(listener);
  return to_string(Address{.host = std::move(host),
                           .port = static_cast<std::uint16_t>(std::atoi(port.c_str()))});
}

Result<void> MemberGroup::introduce() {
  std::vector<std::string> ports;
  for (std::uint32_t rank = 0; rank < members_.size(); ++rank) {
    auto port = hear(rank);
    if (!port) return std::unexpected(port.error());
    ports.push_back(std::move(*port));
  }
  for (std::uint32_t listener = 0; listener < members_.size(); ++listener) {
    std::string addresses;
    for (std::uint32_t rank = 0; rank < members_.size(); ++rank)
      addresses += (rank == 0 ? "" : " ") + address_of(rank, ports[rank], listener);
    SWARMLINE_TRY(tell(listener, addresses));
  }
  // Who is far is heard first: one that has left is named by that.
  for (auto rank = static_cast<std::uint32_t>(members_.size()); rank-- > 0;)
    SWARMLINE_TRY(hear(rank));
  return {};
}

Result<MemberGroup> MemberGroup::own(const MemberGroupSpec& spec, const CodecSpec& codec,
                                     const std::string& way) {
  MemberGroup group("a member");
  OwnMemberSpec member = spec.far != nullptr ? spec.far->own_spec() : OwnMemberSpec{};
  member.members = spec.members;
  member.bytes = spec.bytes;
  member.codec = codec;
  member.way = way;
  member.mbit_per_second = spec.mbit_per_second;
  if (spec.far != nullptr) SWARMLINE_TRY(group.start_apart(member, *spec.far));
  for (std::uint32_t rank = 0; spec.far == nullptr && rank < spec.members; ++rank) {
    member.rank = rank;
    if (spec.lines != nullptr) group.hosts_.push_back(member.host = spec.lines->address(rank));
    SWARMLINE_TRY(group.start([&](int line) {
      if (spec.lines != nullptr)
        if (const auto entered = spec.lines->enter(rank); !entered)
          return say_without(line, entered.error().what);
      serve_own_member(member, line);
    }));
  }
  SWARMLINE_TRY(group.introduce());
  return group;
}

Result<MemberGroup> MemberGroup::sockets(const MemberGroupSpec& spec) {
  MemberGroup group("a member with plain sockets");
  for (std::uint32_t rank = 0; rank < spec.members; ++rank)
    SWARMLINE_TRY(group.start([&](int line) {
      serve_socket_member({.rank = rank, .members = spec.members, .bytes = spec.bytes}, line);
    }));
  SWARMLINE_TRY(group.introduce());
  return group;
}

Result<MemberGroup> MemberGroup::gloo(const MemberGroupSpec& spec, const std::string& python) {
  MemberGroup group("a member of gloo's");
  const MeetingFolder folder;
  if (folder.path().empty())
    return broken(group.what_, "has no folder for temporary files: TMPDIR names one");
  const std::string meeting = folder.path() + "/meeting";
  for (std::uint32_t rank = 0; rank < spec.members; ++rank) {
    SWARMLINE_TRY(group.start([&](int line) {
      ::dup2(line, STDIN_FILENO);
      ::dup2(line, STDOUT_FILENO);
      const std::string text(kGlooMember);
      ::execlp(python.c_str(), python.c_str(), "-c", text.c_str(), std::to_string(rank).c_str(),
               std::to_string(spec.members).c_str(), std::to_string(spec.bytes).c_str(),
               meeting.c_str(), nullptr);
      ::_exit(127);
    }));
  }
  for (std::uint32_t rank = 0; rank < spec.members; ++rank) SWARMLINE_TRY(group.hear(rank));
  return group;
}

Result<ReduceSample> MemberGroup::run(std::uint32_t rounds) {
  const auto members = static_cast<std::uint32_t>(members_.size());
  for (std::uint32_t rank = 0; rank < members; ++rank)
    SWARMLINE_TRY(tell(rank, std::to_string(rounds)));
  ReduceSample sample;
  for (std::uint32_t rank = members; rank-- > 0;) {
    const auto line = hear(rank);
    if (!line) return std::unexpected(line.error());
    double seconds = 0, cpu = 0;
    std::uint64_t bytes = 0;
    if (std::sscanf(line->c_str(), "%lf %lf %lu", &seconds, &cpu, &bytes) != 3)
      return broken(what_, "said: " + *line);
    sample.seconds = std::max(sample.seconds, seconds / rounds);
    sample.cpu_seconds += cpu / rounds / static_cast<double>(members);
    sample.wire_bytes += bytes / rounds;
  }
  return sample;
}

}  // namespace swarmline
