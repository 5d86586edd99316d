#include "engine/store/secret_file.h"

#include <cerrno>
#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "engine/store/descriptor.h"
#include "engine/store/files.h"

namespace swarmline {
namespace {

constexpr mode_t kOwnerOnly = 0600;
constexpr mode_t kOthers = 077;
constexpr auto kLockLook = std::chrono::milliseconds(5);

std::unexpected<Error> failed(const char* what, const std::string& path) {
  const int error = errno;
  return fail(error == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
              fmt::format("cannot {} {}: {}", what, path, std::generic_category().message(error)));
}

Result<void> check_owner_only(const Descriptor& file, const std::string& path) {
  struct stat info{};
  if (fstat(file.get(), &info) != 0) return failed("look at", path);
  if (!S_ISREG(info.st_mode))
    return fail(ErrorCode::kUserMistake, fmt::format("{} is no regular file", path));
  if (info.st_uid != geteuid())
    return fail(ErrorCode::kUserMistake,
                fmt::format("{} belongs to another user; it must be this user's own", path));
  if ((info.st_mode & kOthers) != 0)
    return fail(ErrorCode::kUserMistake,
                fmt::format("{} has mode {:04o}, so that others may use what is secret in it; "
                            "expected 0600: if nobody has seen it, \"chmod 600 {}\", else make a "
                            "new one",
                            path, info.st_mode & 07777U, path));
  return {};
}

Result<std::string> read_all(const Descriptor& file, const std::string& path,
                             std::uint64_t bytes_max) {
  std::string text;
  while (text.size() <= bytes_max) {
    char part[4096];
    const ssize_t got = ::pread(file.get(), part, sizeof(part), static_cast<off_t>(text.size()));
    if (got == 0) return text;
    if (got < 0 && errno != EINTR) return failed("read", path);
    if (got > 0) text.append(part, static_cast<std::size_t>(got));
  }
  return fail(ErrorCode::kRefused, fmt::format("{} has more than {} bytes", path, bytes_max));
}

Result<void> write_all(const Descriptor& file, const std::string& path, std::string_view text) {
  while (!text.empty()) {
    const ssize_t put = ::write(file.get(), text.data(), text.size());
    if (put < 0 && errno != EINTR) return failed("write", path);
    if (put > 0) text.remove_prefix(static_cast<std::size_t>(put));
  }
  if (fsync(file.get()) != 0) return failed("write", path);
  return {};
}

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash + 1);
}

// A new name is durable once its folder is.
void sync_folder_of(const std::string& path) {
  const Descriptor folder(::open(folder_of(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() >= 0) static_cast<void>(fsync(folder.get()));
}

// Written beside its place, under a name that no other process has.
Result<std::string> write_beside(const std::string& path, std::string_view text) {
  const std::string beside = fmt::format("{}.{}.new", path, ::getpid());
  ::unlink(beside.c_str());
  const Descriptor file(
      ::open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, kOwnerOnly));
  if (file.get() < 0) return failed("write", beside);
  if (auto written = write_all(file, beside, text); !written) {
    ::unlink(beside.c_str());
    return std::unexpected(std::move(written).error());
  }
  return beside;
}

// Another process holds it for as long as a line takes.
Result<void> lock_file(const Descriptor& file, const std::string& path) {
  for (Duration waited{}; waited <= kSecretLockWait; waited += kLockLook) {
    if (flock(file.get(), LOCK_EX | LOCK_NB) == 0) return {};
    if (errno != EWOULDBLOCK && errno != EINTR) return failed("lock", path);
    ::poll(nullptr, 0, static_cast<int>(kLockLook.count()));
  }
  return fail(ErrorCode::kIo, fmt::format("another process has kept {} locked for {:.0f} s", path,
                                          to_seconds(kSecretLockWait)));
}

}  // namespace

Result<std::string> read_secret_file(const std::string& path, std::uint64_t bytes_max) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (file.get() < 0) return failed("read", path);
  SWARMLINE_TRY(check_owner_only(file, path));
  return read_all(file, path, bytes_max);
}

Result<void> create_secret_file(const std::string& path, std::string_view text) {
  const auto beside = write_beside(path, text);
  if (!beside) return std::unexpected(beside.error());
  const int linked = ::link(beside->c_str(), path.c_str());
  const int error = errno;
  ::unlink(beside->c_str());
  errno = error;
  if (linked != 0 && error == EEXIST)
    return fail(ErrorCode::kRefused, fmt::format("{} is there already", path));
  if (linked != 0) return failed("write", path);
  sync_folder_of(path);
  return {};
}

Result<void> replace_secret_file(const std::string& path, std::string_view text) {
  const auto beside = write_beside(path, text);
  if (!beside) return std::unexpected(beside.error());
  if (::rename(beside->c_str(), path.c_str()) != 0) {
    const auto error = failed("write", path);
    ::unlink(beside->c_str());
    return error;
  }
  sync_folder_of(path);
  return {};
}

namespace {

// Held against all who change it in these ways; released with the descriptor.
Result<Descriptor> open_locked(const std::string& path) {
  for (Duration waited{}; waited <= kSecretLockWait; waited += kLockLook) {
    Descriptor file(
        ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, kOwnerOnly));
    if (file.get() < 0) return failed("write", path);
    SWARMLINE_TRY(check_owner_only(file, path));
    SWARMLINE_TRY(lock_file(file, path));
    struct stat held{}, there{};
    if (fstat(file.get(), &held) == 0 && ::stat(path.c_str(), &there) == 0 &&
        held.st_ino == there.st_ino && held.st_dev == there.st_dev)
      return file;
    ::poll(nullptr, 0, static_cast<int>(kLockLook.count()));  // another has taken its place
  }
  return fail(ErrorCode::kIo, fmt::format("{} is replaced again and again", path));
}

}  // namespace

Result<void> rewrite_secret_file(const std::string& path, std::uint64_t bytes_max,
                                 const NextText& text) {
  const auto file = open_locked(path);
  if (!file) return std::unexpected(file.error());
  const auto so_far = read_all(*file, path, bytes_max);
  if (!so_far) return std::unexpected(so_far.error());
  const auto next = text(*so_far);
  if (!next) return std::unexpected(next.error());
  return next->empty() ? Result<void>() : replace_secret_file(path, *next);
}

Result<void> append_secret_line(const std::string& path, std::uint64_t bytes_max,
                                const NextLine& line) {
  const auto opened = open_locked(path);
  if (!opened) return std::unexpected(opened.error());
  const Descriptor& file = *opened;
  auto so_far = read_all(file, path, bytes_max);
  if (!so_far) return std::unexpected(std::move(so_far).error());
  // The last line may be half there, of a process that died: it is none.
  const std::size_t whole = so_far->rfind('\n') == std::string::npos ? 0 : so_far->rfind('\n') + 1;
  if (whole < so_far->size() && ftruncate(file.get(), static_cast<off_t>(whole)) != 0)
    return failed("write", path);
  so_far->resize(whole);
  auto next = line(*so_far);
  if (!next) return std::unexpected(std::move(next).error());
  if (next->empty()) return {};
  if (whole + next->size() + 1 > bytes_max)
    return fail(ErrorCode::kRefused, fmt::format("{} has grown to {} bytes", path, whole));
  return write_all(file, path, *next + "\n");
}

}  // namespace swarmline
