#include "tools/prepare/byte_source.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <unistd.h>
#include <vector>
#include <zlib.h>
#include <zstd.h>

#include <fmt/format.h>

#include "base/bytes.h"
#include "base/check.h"
#include "engine/store/files.h"

namespace swarmline {

namespace {

constexpr int kZstdWindowLogMax = 31;         // 2 GiB, what --long=31 needs
constexpr int kGzipOrZlib = 15 + 32;          // window bits, and either header
constexpr std::size_t kAtOnceMax = 1U << 30;  // zlib counts in 32 bits

std::unexpected<Error> damaged(const std::string& path, std::string_view what) {
  return fail(ErrorCode::kUserMistake,
              fmt::format("{}: {}: the file is damaged or was cut short; get it anew", path, what));
}

class PlainFile final : public ByteSource {
 public:
  explicit PlainFile(std::shared_ptr<const MappedFile> file) : file_(std::move(file)) {}
  Result<std::size_t> read(std::span<char> out) override {
    const BytesView left = file_->bytes().subspan(at_);
    const std::size_t count = std::min(out.size(), left.size());
    if (count > 0) std::memcpy(out.data(), left.data(), count);
    at_ += count;
    return count;
  }
  std::uint64_t consumed() const override { return at_; }

 private:
  std::shared_ptr<const MappedFile> file_;
  std::size_t at_ = 0;
};

class StandardInput final : public ByteSource {
 public:
  Result<std::size_t> read(std::span<char> out) override {
    const auto filled = read_fully(STDIN_FILENO, out, "standard input");
    if (filled) consumed_ += *filled;
    return filled;
  }
  std::uint64_t consumed() const override { return consumed_; }

 private:
  std::uint64_t consumed_ = 0;
};

class GzipFile final : public ByteSource {
 public:
  explicit GzipFile(std::shared_ptr<const MappedFile> file) : file_(std::move(file)) {
    SWARMLINE_CHECK(::inflateInit2(&stream_, kGzipOrZlib) == Z_OK);
  }
  ~GzipFile() override { ::inflateEnd(&stream_); }

  Result<std::size_t> read(std::span<char> out) override {
    std::size_t filled = 0;
    while (filled < out.size() && !ended_) {
      const BytesView left = file_->bytes().subspan(at_);
      stream_.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(left.data()));
      stream_.avail_in = static_cast<uInt>(std::min(left.size(), kAtOnceMax));
      stream_.next_out = reinterpret_cast<Bytef*>(out.data() + filled);
      const auto room = static_cast<uInt>(std::min(out.size() - filled, kAtOnceMax));
      stream_.avail_out = room;
      const uInt given = stream_.avail_in;
      const int done = ::inflate(&stream_, Z_NO_FLUSH);
      at_ += given - stream_.avail_in;
      filled += room - stream_.avail_out;
      if (done == Z_STREAM_END) {
        SWARMLINE_TRY(next_member());
      } else if (done != Z_OK) {
        return damaged(file_->path(), stream_.msg ? stream_.msg : "gzip ends too early");
      }
    }
    return filled;
  }
  std::uint64_t consumed() const override { return at_; }

 private:
  // Another member follows, or zeros up to the end.
  Result<void> next_member() {
    const BytesView left = file_->bytes().subspan(at_);
    if (std::ranges::all_of(left, [](std::byte byte) { return byte == std::byte{0}; })) {
      ended_ = true;
      return {};
    }
    if (::inflateReset(&stream_) != Z_OK) return damaged(file_->path(), "gzip can't go on");
    return {};
  }

  std::shared_ptr<const MappedFile> file_;
  z_stream stream_{};
  std::size_t at_ = 0;
  bool ended_ = false;
};

class ZstandardFile final : public ByteSource {
 public:
  explicit ZstandardFile(std::shared_ptr<const MappedFile> file)
      : file_(std::move(file)), stream_(::ZSTD_createDStream(), &::ZSTD_freeDStream) {
    SWARMLINE_CHECK(stream_ != nullptr);
    (void)::ZSTD_DCtx_setParameter(stream_.get(), ZSTD_d_windowLogMax, kZstdWindowLogMax);
  }

  Result<std::size_t> read(std::span<char> out) override {
    ZSTD_outBuffer to{out.data(), out.size(), 0};
    const BytesView bytes = file_->bytes();
    ZSTD_inBuffer from{bytes.data(), bytes.size(), at_};
    while (to.pos < to.size) {
      const std::size_t before = to.pos;
      const std::size_t taken = from.pos;
      const std::size_t left = ::ZSTD_decompressStream(stream_.get(), &to, &from);
      if (::ZSTD_isError(left)) return damaged(file_->path(), ::ZSTD_getErrorName(left));
      if (left == 0 && from.pos == from.size) break;  // the end of the last frame
      if (to.pos == before && from.pos == taken && from.pos == from.size)
        return damaged(file_->path(), "Zstandard ends too early");
    }
    at_ = from.pos;
    return to.pos;
  }
  std::uint64_t consumed() const override { return at_; }

 private:
  std::shared_ptr<const MappedFile> file_;
  std::unique_ptr<ZSTD_DStream, decltype(&::ZSTD_freeDStream)> stream_;
  std::size_t at_ = 0;
};

bool starts_with(BytesView bytes, std::string_view magic) {
  return as_text(bytes).starts_with(magic);
}

}  // namespace

Result<std::size_t> read_fully(int file, std::span<char> out, std::string_view what) {
  std::size_t filled = 0;
  while (filled < out.size()) {
    const ssize_t got = ::read(file, out.data() + filled, out.size() - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      return fail(ErrorCode::kIo, fmt::format("cannot read {}: {}", what, std::strerror(errno)));
    if (got == 0) break;
    filled += static_cast<std::size_t>(got);
  }
  return filled;
}

Result<std::unique_ptr<ByteSource>> open_byte_source(const std::string& path) {
  if (path == kStandardInput) return std::unique_ptr<ByteSource>(new StandardInput());
  auto file = MappedFile::open(path);
  if (!file) return std::unexpected(file.error());
  const BytesView bytes = (*file)->bytes();
  std::unique_ptr<ByteSource> source;
  if (starts_with(bytes, "\x1f\x8b"))
    source = std::make_unique<GzipFile>(std::move(*file));
  else if (starts_with(bytes, "\x28\xb5\x2f\xfd"))
    source = std::make_unique<ZstandardFile>(std::move(*file));
  else
    source = std::make_unique<PlainFile>(std::move(*file));
  return source;
}

Result<void> skip_bytes(ByteSource& source, std::uint64_t bytes, const std::string& path) {
  std::vector<char> room(std::min<std::uint64_t>(bytes, 1U << 20));
  while (bytes > 0) {
    const auto got =
        source.read(std::span(room).first(std::min<std::uint64_t>(bytes, room.size())));
    if (!got) return std::unexpected(got.error());
    if (*got == 0)
      return fail(ErrorCode::kUserMistake,
                  fmt::format("{}: the input is shorter than it was; prepare it anew", path));
    bytes -= *got;
  }
  return {};
}

}  // namespace swarmline
