// The fourth door, files half. Blocking; called from tools, from start-up, or from a device/storage job, not from
// handlers of a serving process (small atomic writes excepted).
//   Errors: kNotFound, kIo, with the path and the system's reason in the sentence.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/bytes.h"
#include "engine/base/result.h"

namespace swarmline {

// A file mapped read-only for its lifetime. Thread: immutable.
class MappedFile {
 public:
  static Result<std::shared_ptr<const MappedFile>> open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  BytesView bytes() const { return bytes_; }
  const std::string& path() const { return path_; }

 private:
  MappedFile() = default;
  BytesView bytes_;
  std::string path_;
};

// A file written aside as PATH.partial; finish() fsyncs, renames over PATH and fsyncs the folder. Dropped unfinished: removed.
class AtomicFile {
 public:
  static Result<AtomicFile> create(const std::string& path);
  AtomicFile(AtomicFile&&) noexcept;
  AtomicFile& operator=(AtomicFile&&) noexcept;
  ~AtomicFile();
  Result<void> write_at(std::uint64_t offset_bytes, BytesView bytes);
  Result<void> append(BytesView bytes);
  Result<void> finish();

 private:
  AtomicFile() = default;
  int fd_ = -1;
  std::uint64_t size_ = 0;
  std::string path_;
};

// Appends whole lines; each append is one write(2).
class LineFile {
 public:
  static Result<LineFile> open_append(const std::string& path);
  LineFile(LineFile&&) noexcept;
  LineFile& operator=(LineFile&&) noexcept;
  ~LineFile();
  Result<void> append(std::string_view line_without_newline);

 private:
  LineFile() = default;
  int fd_ = -1;
  std::string path_;
};

Result<std::string> read_text_file(const std::string& path, std::uint64_t bytes_max);
Result<void> write_text_file_atomically(const std::string& path, std::string_view text);
Result<void> make_folders(const std::string& path);
bool file_exists(const std::string& path);
// Sorted matches of a shell glob; `**` descends folders. Only regular files. At most `files_max` (kRefused beyond).
Result<std::vector<std::string>> glob_files(const std::string& pattern, std::size_t files_max);

}  // namespace swarmline
