#include "engine/net/shm/shm_meeting.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include "engine/identity/secrets.h"
#include "engine/net/bulk/bulk_offer.h"

namespace swarmline {
namespace {

constexpr std::string_view kNamePrefix = "swarmline-";
constexpr std::size_t kNameBytes = 16;  // drawn, said in hex
constexpr std::size_t kHandedMax = 4;   // descriptors that a hostile end hands over at once
constexpr char kHere = 'm', kTaken = 't';

bool is_nothing_yet(ssize_t got) {
  return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
}

std::unexpected<Error> gone() {
  return fail(ErrorCode::kPeerGone, "the other end left while the link was made");
}

bool say(int socket, std::string_view bytes) {
  return ::send(socket, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL) ==
         static_cast<ssize_t>(bytes.size());
}

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

// The descriptors that came with a message; those beyond the first are closed.
int first_of_handed(msghdr& message) {
  int first = -1;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int descriptor = -1;
      std::memcpy(&descriptor, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
      if (first < 0) {
        first = descriptor;
      } else {
        ::close(descriptor);
      }
    }
  }
  return first;
}

}  // namespace

bool is_of_own_user(int socket) {
  ucred other{};
  socklen_t size = sizeof(other);
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &other, &size) == 0 &&
         other.uid == ::geteuid();
}

bool say_secret(int socket, std::string_view secret) {
  return say(socket, secret);
}

Result<std::optional<std::string>> hear_secret(int socket) {
  std::string secret(kBulkSecretBytes, '\0');
  const ssize_t got = ::recv(socket, secret.data(), secret.size(), MSG_DONTWAIT);
  if (is_nothing_yet(got)) return std::nullopt;
  if (got <= 0) return gone();
  if (static_cast<std::size_t>(got) != secret.size())  // it is sent whole
    return fail(ErrorCode::kCorrupt, "what was said is no secret of a link");
  return secret;
}

bool hand_over(int socket, const ShmSegment& segment) {
  char byte = kHere;
  iovec data{.iov_base = &byte, .iov_len = 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> room{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = room.data();
  message.msg_controllen = room.size();
  cmsghdr* const part = CMSG_FIRSTHDR(&message);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(sizeof(int));
  const int descriptor = segment.descriptor();
  std::memcpy(CMSG_DATA(part), &descriptor, sizeof(int));
  return ::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) == 1;
}

Result<std::unique_ptr<ShmSegment>> take_over(int socket) {
  char byte = 0;
  iovec data{.iov_base = &byte, .iov_len = 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kHandedMax * sizeof(int))> room{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = room.data();
  message.msg_controllen = room.size();
  const ssize_t got = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (is_nothing_yet(got)) return std::unique_ptr<ShmSegment>();
  const int descriptor = got < 0 ? -1 : first_of_handed(message);
  if (got <= 0) {
    if (descriptor >= 0) ::close(descriptor);
    return gone();
  }
  if (descriptor < 0) return fail(ErrorCode::kCorrupt, "no memory was handed over");
  return ShmSegment::open(descriptor);
}

bool say_taken(int socket) {
  return say(socket, {&kTaken, 1});
}

Result<bool> hear_taken(int socket) {
  char byte = 0;
  const ssize_t got = ::recv(socket, &byte, 1, MSG_DONTWAIT);
  if (is_nothing_yet(got)) return false;
  if (got <= 0) return gone();
  if (byte != kTaken) return fail(ErrorCode::kCorrupt, "the memory was not taken");
  return true;
}

std::string new_socket_name() {
  return std::string(kNamePrefix) + hex(random_secret(kNameBytes));
}

bool is_socket_name(std::string_view name) {
  return name.starts_with(kNamePrefix) && name.size() == kNamePrefix.size() + 2 * kNameBytes &&
         std::ranges::all_of(name.substr(kNamePrefix.size()), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

std::string own_machine() {
  // The namespace's inode is one number for all processes of one kernel that are in it; that two
  // kernels have the same one says the boot's id.
  struct stat names{};
  std::string boot(64, '\0');
  const int file = ::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  const ssize_t got = file < 0 ? -1 : ::read(file, boot.data(), boot.size());
  if (file >= 0) ::close(file);
  if (got <= 0 || ::stat("/proc/self/ns/net", &names) != 0) return {};
  boot.resize(static_cast<std::size_t>(got));
  return as_string(sha256_of(fmt::format("swarmline machine 1 {} {} {} {}", boot, names.st_dev,
                                         names.st_ino, ::geteuid())));
}

}  // namespace swarmline
