// The fourth door, files half. Blocking; called from tools, from start-up, or from a device/storage
// job, not from handlers of a serving process (small atomic writes excepted).
//   Errors: kNotFound, kIo, with the path and the system's reason in the sentence.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"

namespace swarmline {

// A regular file mapped read-only for its lifetime; an empty file is an empty view. Whoever
// shortens the file meanwhile kills the reader (SIGBUS), as with every mapping. Thread: immutable.
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

// A file written aside as PATH.partial; finish() fsyncs, renames over PATH and fsyncs the folder.
// The disk is kept busy while bytes come: no call, finish() included, waits for more than about two
// kWriteBehindBytes, however large the file is.
// Dropped unfinished: removed. Using it after finish() is a programmer's error.
class AtomicFile {
 public:
  static constexpr std::uint64_t kWriteBehindBytes = 8 << 20;
  static Result<AtomicFile> create(const std::string& path);
  AtomicFile(AtomicFile&&) noexcept;
  AtomicFile& operator=(AtomicFile&&) noexcept;
  ~AtomicFile();
  Result<void> write_at(std::uint64_t offset_bytes, BytesView bytes);
  Result<void> append(BytesView bytes);  // after the furthest byte written so far
  Result<void> finish();
  std::uint64_t size_bytes() const { return size_; }
  std::string partial_path() const { return path_ + ".partial"; }  // where the bytes are until then

 private:
  AtomicFile() = default;
  void drop();
  Result<void> write_behind();
  int fd_ = -1;
  std::uint64_t size_ = 0;
  std::uint64_t behind_ = 0;  // on its way to the disk, or there
  std::string path_;
};

// Appends whole lines; each append is one write(2), so that a reader never sees half a line of two.
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

// kRefused when the file is longer than `bytes_max`.
Result<std::string> read_text_file(const std::string& path, std::uint64_t bytes_max);
Result<void> write_text_file_atomically(const std::string& path, std::string_view text);
Result<void> make_folders(const std::string& path);
bool file_exists(const std::string& path);  // a file or a folder
bool is_folder(const std::string& path);
Result<std::uint64_t> file_bytes(const std::string& path);
// Which file it is, its size and its times of change, as text: another one once it is changed.
Result<std::string> file_stamp(const std::string& path);
// Names in a folder, sorted, without "." and "..".
Result<std::vector<std::string>> list_folder(const std::string& path);
// With everything in it; an absent one is fine.
Result<void> remove_folder(const std::string& path);
// Fsyncs `from`, puts it in the place of `to` and fsyncs their parent. An existing `to` is
// exchanged in one system call and then removed, so that at every instant `to` is one of the two,
// whole; where the file system cannot exchange (NFS), `to` is for an instant TO.replaced.
Result<void> replace_folder(const std::string& from, const std::string& to);
// Whether what is there lies below `root`, once all links are followed; kIo with a sentence where
// that can't be found out.
Result<bool> lies_below(const std::string& path, const std::string& root);
// Sorted matches of a shell glob; `**` descends folders (at most 64 deep). Only regular files.
// At most `files_max` (kRefused beyond). A pattern without * ? [ names one file.
Result<std::vector<std::string>> glob_files(const std::string& pattern, std::size_t files_max);
bool has_wildcard(const std::string& pattern);

}  // namespace swarmline
