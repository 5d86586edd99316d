#include "tools/prepare/parquet_rows.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "base/printable.h"
#include "base/units.h"
#include "node/child_process.h"
#include "tools/prepare/parquet_reader_text.h"

namespace swarmline {

namespace {

constexpr std::string_view kReader = "from the reader of Parquet";
constexpr Duration kEndsWithin = std::chrono::seconds(10);  // a reader that has closed its pipe
constexpr int kPipeBytes = 1 << 20;
constexpr std::size_t kComplaintBytesMax = 4096;
constexpr std::size_t kErrorBytesShown = 400;
constexpr int kUserMistakeExit = 2;                        // of the reader
constexpr int kNoSuchProgram = 127, kNoProgramFile = 126;  // of env
constexpr const char* kEnv = "/usr/bin/env";               // finds programs as a shell does

std::unexpected<Error> no_file(std::string_view what) {
  return fail(ErrorCode::kIo, fmt::format("cannot open {}: {}", what, std::strerror(errno)));
}

class OwnedFile {
 public:
  explicit OwnedFile(int number = -1) : number_(number) {}
  OwnedFile(OwnedFile&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  OwnedFile& operator=(OwnedFile&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~OwnedFile() {
    if (number_ >= 0) ::close(number_);
  }
  int get() const { return number_; }

 private:
  int number_;
};

class ParquetRows final : public ByteSource {
 public:
  ParquetRows(ChildProcess reader, OwnedFile rows, OwnedFile complaints, std::string path,
              std::uint64_t bytes, ParquetReading reading, ParquetFrom from)
      : reader_(std::move(reader)),
        rows_(std::move(rows)),
        complaints_(std::move(complaints)),
        path_(std::move(path)),
        bytes_(bytes),
        reading_(std::move(reading)),
        given_(from.offset) {}

  Result<void> begin() {
    std::array<char, sizeof(expected_)> head{};
    const auto got = read_fully(rows_.get(), head, kReader);
    if (!got) return std::unexpected(got.error());
    if (*got < head.size()) return ended();
    for (std::size_t i = head.size(); i-- > 0;)
      expected_ = (expected_ << 8) | static_cast<unsigned char>(head[i]);
    return {};
  }

  Result<std::size_t> read(std::span<char> out) override {
    const auto got = read_fully(rows_.get(), out, kReader);
    if (!got) return got;
    given_ += *got;
    if (*got < out.size()) SWARMLINE_TRY(ended());
    return got;
  }

  // In proportion to what the file says that its column has.
  std::uint64_t consumed() const override {
    if (at_end_ || given_ >= expected_) return bytes_;
    return static_cast<std::uint64_t>(static_cast<double>(bytes_) * static_cast<double>(given_) /
                                      static_cast<double>(expected_));
  }

 private:
  // The reader closed the pipe: it has come to the end, or something is wrong.
  Result<void> ended() {
    const int code = reader_.wait_or_kill(kEndsWithin);
    at_end_ = true;
    if (code == 0) return {};
    if (code == kNoSuchProgram || code == kNoProgramFile)
      return fail(
          ErrorCode::kUserMistake,
          fmt::format("{}: found no program {}, expected a Python with pyarrow, which reads "
                      "Parquet; install it, or name another by --python",
                      path_, printable_lines(reading_.python)));
    if (code == kUserMistakeExit) return fail(ErrorCode::kUserMistake, complaint());
    return fail(ErrorCode::kIo,
                fmt::format("{}: the reader of Parquet ({}) ended with {}: {}", path_,
                            printable_lines(reading_.python), code, complaint()));
  }

  // The last line that the reader wrote.
  std::string complaint() const {
    std::array<char, kComplaintBytesMax> room{};
    const off_t size = ::lseek(complaints_.get(), 0, SEEK_END);
    const off_t from = std::max<off_t>(0, size - static_cast<off_t>(room.size()));
    const ssize_t got = ::pread(complaints_.get(), room.data(), room.size(), from);
    std::string_view text(room.data(), got > 0 ? static_cast<std::size_t>(got) : 0);
    while (text.ends_with('\n')) text.remove_suffix(1);
    text.remove_prefix(text.rfind('\n') + 1);
    return text.empty() ? "it said nothing" : printable(text, kErrorBytesShown);
  }

  ChildProcess reader_;
  OwnedFile rows_;
  OwnedFile complaints_;
  std::string path_;
  std::uint64_t bytes_;
  ParquetReading reading_;
  std::uint64_t given_;
  std::uint64_t expected_ = 0;
  bool at_end_ = false;
};

}  // namespace

Result<std::unique_ptr<ByteSource>> open_parquet_rows(const std::string& path, std::uint64_t bytes,
                                                      const ParquetReading& reading,
                                                      ParquetFrom from) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return no_file("a pipe");
  OwnedFile rows(ends[0]), written(ends[1]);
  (void)::fcntl(written.get(), F_SETPIPE_SZ, kPipeBytes);  // faster, where it may
  OwnedFile complaints(::memfd_create("complaints", MFD_CLOEXEC));
  if (complaints.get() < 0) return no_file("a file in memory");
  // Not dying with its parent: that is a thread, which may end before the file. A reader whose pipe
  // nobody reads ends by itself.
  auto reader =
      ChildProcess::start({.program = kEnv,
                           .arguments = {reading.python, "-c", std::string(kParquetReader), path,
                                         reading.column, fmt::format("{}", from.row)},
                           .output_file = fmt::format("/proc/self/fd/{}", complaints.get()),
                           .output = written.get(),
                           .dies_with_parent = false});
  if (!reader) return std::unexpected(std::move(reader).error());
  written = OwnedFile();
  auto source = std::make_unique<ParquetRows>(std::move(*reader), std::move(rows),
                                              std::move(complaints), path, bytes, reading, from);
  SWARMLINE_TRY(source->begin());
  return std::unique_ptr<ByteSource>(std::move(source));
}

}  // namespace swarmline
