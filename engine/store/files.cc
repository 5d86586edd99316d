#include "engine/store/files.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/mman.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "engine/store/descriptor.h"

namespace swarmline {

namespace {

namespace fs = std::filesystem;

std::unexpected<Error> system_failure(const char* doing, const std::string& path, int error) {
  const ErrorCode code =
      error == ENOENT || error == ENOTDIR ? ErrorCode::kNotFound : ErrorCode::kIo;
  return fail(code,
              fmt::format("cannot {} {}: {}", doing, path, std::generic_category().message(error)));
}

int open_retrying(const std::string& path, int flags, mode_t mode = 0) {
  int fd = -1;
  do {
    fd = ::open(path.c_str(), flags | O_CLOEXEC, mode);
  } while (fd < 0 && errno == EINTR);
  return fd;
}

std::string parent_of(const std::string& path) {
  const std::string parent = fs::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

Result<void> sync_folder(const std::string& path) {
  const Descriptor folder(open_retrying(path, O_RDONLY | O_DIRECTORY));
  if (folder.get() < 0) return system_failure("open folder", path, errno);
  if (::fsync(folder.get()) != 0) return system_failure("fsync folder", path, errno);
  return {};
}

Result<struct stat> stat_of(int fd, const std::string& path) {
  struct stat info{};
  if (::fstat(fd, &info) != 0) return system_failure("stat", path, errno);
  if (!S_ISREG(info.st_mode)) {
    return fail(ErrorCode::kIo, fmt::format("{} is not a regular file", path));
  }
  return info;
}

// For file systems that cannot exchange names (NFS).
Result<void> replace_in_two_steps(const std::string& from, const std::string& to) {
  const std::string aside = to + ".replaced";
  SWARMLINE_TRY(remove_folder(aside));
  if (::rename(to.c_str(), aside.c_str()) != 0) return system_failure("rename", to, errno);
  if (::rename(from.c_str(), to.c_str()) != 0) return system_failure("rename into", to, errno);
  SWARMLINE_TRY(sync_folder(parent_of(to)));
  return remove_folder(aside);
}

}  // namespace

Result<std::shared_ptr<const MappedFile>> MappedFile::open(const std::string& path) {
  const Descriptor file(open_retrying(path, O_RDONLY));
  if (file.get() < 0) return system_failure("open", path, errno);
  const Result<struct stat> info = stat_of(file.get(), path);
  if (!info) return std::unexpected(info.error());

  std::shared_ptr<MappedFile> mapped(new MappedFile());
  mapped->path_ = path;
  if (info->st_size > 0) {
    const auto size = static_cast<std::size_t>(info->st_size);
    void* start = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.get(), 0);
    if (start == MAP_FAILED) return system_failure("map", path, errno);
    mapped->bytes_ = BytesView(static_cast<const std::byte*>(start), size);
  }
  return mapped;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

Result<AtomicFile> AtomicFile::create(const std::string& path) {
  AtomicFile file;
  file.path_ = path;
  file.fd_ = open_retrying(file.partial_path(), O_RDWR | O_CREAT | O_TRUNC, 0644);
  if (file.fd_ < 0) return system_failure("create", file.partial_path(), errno);
  return file;
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      size_(other.size_),
      behind_(other.behind_),
      path_(std::move(other.path_)) {}

AtomicFile& AtomicFile::operator=(AtomicFile&& other) noexcept {
  if (this != &other) {
    drop();
    fd_ = std::exchange(other.fd_, -1);
    size_ = other.size_;
    behind_ = other.behind_;
    path_ = std::move(other.path_);
  }
  return *this;
}

AtomicFile::~AtomicFile() {
  drop();
}

void AtomicFile::drop() {
  if (fd_ < 0) return;
  ::close(std::exchange(fd_, -1));
  ::unlink(partial_path().c_str());
}

Result<void> AtomicFile::write_at(std::uint64_t offset_bytes, BytesView bytes) {
  SWARMLINE_CHECK(fd_ >= 0);
  const std::uint64_t end = offset_bytes + bytes.size();
  SWARMLINE_CHECK(end >= offset_bytes);
  while (!bytes.empty()) {
    const ssize_t written =
        ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset_bytes));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return system_failure("write", partial_path(), errno);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    offset_bytes += static_cast<std::uint64_t>(written);
  }
  size_ = std::max(size_, end);
  return size_ - behind_ < kWriteBehindBytes ? Result<void>() : write_behind();
}

// Waits for what was begun the last time, and begins with what came since.
Result<void> AtomicFile::write_behind() {
  const auto sync = [this](std::uint64_t from, std::uint64_t to, unsigned how) -> Result<void> {
    const int done =
        ::sync_file_range(fd_, static_cast<off_t>(from), static_cast<off_t>(to - from), how);
    // Not every file system can; its fsync does all of it then.
    if (done == 0 || errno == EINVAL || errno == ESPIPE || errno == ENOSYS) return {};
    return system_failure("write", partial_path(), errno);
  };
  const std::uint64_t before = behind_ - std::min(behind_, 2 * kWriteBehindBytes);
  if (before < behind_)
    SWARMLINE_TRY(
        sync(before, behind_,
             SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER));
  SWARMLINE_TRY(sync(behind_, size_, SYNC_FILE_RANGE_WRITE));
  behind_ = size_;
  return {};
}

Result<void> AtomicFile::append(BytesView bytes) {
  return write_at(size_, bytes);
}

Result<void> AtomicFile::finish() {
  SWARMLINE_CHECK(fd_ >= 0);
  if (::fsync(fd_) != 0) return system_failure("fsync", partial_path(), errno);
  if (::rename(partial_path().c_str(), path_.c_str()) != 0) {
    return system_failure("rename into", path_, errno);
  }
  ::close(std::exchange(fd_, -1));
  return sync_folder(parent_of(path_));
}

Result<LineFile> LineFile::open_append(const std::string& path) {
  LineFile file;
  file.path_ = path;
  file.fd_ = open_retrying(path, O_WRONLY | O_CREAT | O_APPEND, 0644);
  if (file.fd_ < 0) return system_failure("open", path, errno);
  return file;
}

LineFile::LineFile(LineFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}

LineFile& LineFile::operator=(LineFile&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(path_, other.path_);
  return *this;
}

LineFile::~LineFile() {
  if (fd_ >= 0) ::close(fd_);
}

Result<void> LineFile::append(std::string_view line_without_newline) {
  SWARMLINE_CHECK(fd_ >= 0);
  std::string line(line_without_newline);
  line.push_back('\n');
  ssize_t written = -1;
  do {
    written = ::write(fd_, line.data(), line.size());
  } while (written < 0 && errno == EINTR);
  if (written < 0) return system_failure("write", path_, errno);
  if (static_cast<std::size_t>(written) != line.size()) {
    return fail(ErrorCode::kIo, fmt::format("cannot write {}: the device is full", path_));
  }
  return {};
}

Result<std::string> read_text_file(const std::string& path, std::uint64_t bytes_max) {
  const Descriptor file(open_retrying(path, O_RDONLY));
  if (file.get() < 0) return system_failure("open", path, errno);
  const Result<struct stat> info = stat_of(file.get(), path);
  if (!info) return std::unexpected(info.error());

  // Read until the end, not st_size: files of /proc say 0. One byte more than allowed tells a
  // longer file apart.
  std::string text;
  char piece[16384];
  while (text.size() <= bytes_max) {
    const std::size_t want = std::min<std::uint64_t>(sizeof piece, bytes_max + 1 - text.size());
    const ssize_t got = ::read(file.get(), piece, want);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_failure("read", path, errno);
    if (got == 0) return text;
    text.append(piece, static_cast<std::size_t>(got));
  }
  return fail(ErrorCode::kRefused,
              fmt::format("{} is longer than the {} bytes allowed", path, bytes_max));
}

Result<void> write_text_file_atomically(const std::string& path, std::string_view text) {
  Result<AtomicFile> file = AtomicFile::create(path);
  if (!file) return std::unexpected(file.error());
  SWARMLINE_TRY(file->append(as_bytes(text)));
  return file->finish();
}

Result<std::string> file_stamp(const std::string& path) {
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0) return system_failure("stat", path, errno);
  return fmt::format("{} {} {} {}.{} {}.{}", info.st_dev, info.st_ino, info.st_size,
                     info.st_mtim.tv_sec, info.st_mtim.tv_nsec, info.st_ctim.tv_sec,
                     info.st_ctim.tv_nsec);
}

Result<void> make_folders(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) {
    return fail(ErrorCode::kIo, fmt::format("cannot make folder {}: {}", path, error.message()));
  }
  return {};
}

bool file_exists(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

bool is_folder(const std::string& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

Result<std::uint64_t> file_bytes(const std::string& path) {
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0) return system_failure("stat", path, errno);
  return static_cast<std::uint64_t>(info.st_size);
}

Result<bool> lies_below(const std::string& path, const std::string& root) {
  std::error_code error;
  const fs::path folder = fs::canonical(root, error);
  if (error) return system_failure("find", root, error.value());
  const fs::path there = fs::weakly_canonical(path, error);
  if (error) return system_failure("find", path, error.value());
  return std::ranges::mismatch(folder, there).in1 == folder.end();
}

Result<std::vector<std::string>> list_folder(const std::string& path) {
  std::error_code error;
  std::vector<std::string> names;
  fs::directory_iterator entry(path, error);
  while (!error && entry != fs::directory_iterator()) {
    names.push_back(entry->path().filename().string());
    entry.increment(error);
  }
  if (error) return system_failure("list folder", path, error.value());
  std::ranges::sort(names);
  return names;
}

Result<void> remove_folder(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) return system_failure("remove", path, error.value());
  return {};
}

Result<void> replace_folder(const std::string& from, const std::string& to) {
  SWARMLINE_TRY(sync_folder(from));
  if (!file_exists(to)) {
    if (::rename(from.c_str(), to.c_str()) != 0) return system_failure("rename into", to, errno);
    return sync_folder(parent_of(to));
  }
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) != 0) {
    if (errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP) {
      return system_failure("exchange folder with", to, errno);
    }
    return replace_in_two_steps(from, to);
  }
  SWARMLINE_TRY(sync_folder(parent_of(to)));
  return remove_folder(from);
}

}  // namespace swarmline
