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
    : what_(std::move(other.what_)), members_(std::exchange(other.members_, {})) {}

MemberGroup::~MemberGroup() {
  for (const Member& member : members_) {
    ::close(member.line);
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

Result<void> MemberGroup::tell(const Member& member, const std::string& line) const {
  if (::send(member.line, line.data(), line.size(), MSG_NOSIGNAL) ==
      static_cast<ssize_t>(line.size()))
    return {};
  return broken(what_, "ended");
}

Result<std::string> MemberGroup::hear(Member& member) const {
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

// A line of one that may have no way to the others.
Result<std::string> MemberGroup::hear_word(Member& member) const {
  auto word = hear(member);
  if (word && word->starts_with(kWithoutWay))
    return fail(ErrorCode::kNotFound, word->substr(kWithoutWay.size()));
  return word;
}

Result<void> MemberGroup::introduce() {
  std::string ports;
  for (Member& member : members_) {
    const auto port = hear_word(member);
    if (!port) return std::unexpected(port.error());
    ports += (ports.empty() ? "" : " ") + *port;
  }
  for (const Member& member : members_) SWARMLINE_TRY(tell(member, ports + "\n"));
  for (Member& member : members_) SWARMLINE_TRY(hear_word(member));
  return {};
}

Result<MemberGroup> MemberGroup::own(const MemberGroupSpec& spec, const CodecSpec& codec,
                                     const std::string& way) {
  MemberGroup group("a member");
  std::vector<std::string> addresses;
  if (spec.lines != nullptr)
    for (std::uint32_t rank = 0; rank < spec.members; ++rank)
      addresses.push_back(spec.lines->address(rank));
  for (std::uint32_t rank = 0; rank < spec.members; ++rank) {
    SWARMLINE_TRY(group.start([&](int line) {
      if (spec.lines != nullptr)
        if (const auto entered = spec.lines->enter(rank); !entered)
          return say_without(line, entered.error().what);
      serve_own_member({.rank = rank,
                        .members = spec.members,
                        .bytes = spec.bytes,
                        .codec = codec,
                        .way = way,
                        .addresses = addresses,
                        .mbit_per_second = spec.mbit_per_second},
                       line);
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
  for (Member& member : group.members_) SWARMLINE_TRY(group.hear(member));
  return group;
}

Result<ReduceSample> MemberGroup::run(std::uint32_t rounds) {
  for (const Member& member : members_) SWARMLINE_TRY(tell(member, fmt::format("{}\n", rounds)));
  ReduceSample sample;
  for (Member& member : members_) {
    const auto line = hear(member);
    if (!line) return std::unexpected(line.error());
    double seconds = 0, cpu = 0;
    std::uint64_t bytes = 0;
    if (std::sscanf(line->c_str(), "%lf %lf %lu", &seconds, &cpu, &bytes) != 3)
      return broken(what_, "said: " + *line);
    sample.seconds = std::max(sample.seconds, seconds / rounds);
    sample.cpu_seconds += cpu / rounds / static_cast<double>(members_.size());
    sample.wire_bytes += bytes / rounds;
  }
  return sample;
}

}  // namespace swarmline
