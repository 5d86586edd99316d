#include "engine/store/tensorboard_log.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>
#include <utility>

#include <boost/crc.hpp>
#include <fmt/format.h>

#include "engine/store/tensorboard_events.pb.h"

namespace swarmline {
namespace {

constexpr const char* kFileVersion = "brain.Event:2";
constexpr std::uint32_t kMaskDelta = 0xA282EAD8;

// CRC-32C (Castagnoli), rotated and shifted as TFRecords have it.
std::uint32_t masked_crc(std::string_view bytes) {
  boost::crc_optimal<32, 0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, true, true> crc;
  crc.process_bytes(bytes.data(), bytes.size());
  return std::rotr(static_cast<std::uint32_t>(crc.checksum()), 15) + kMaskDelta;
}

template <typename Number>
void append_little_endian(std::string& out, Number number) {
  static_assert(std::endian::native == std::endian::little);
  char bytes[sizeof(Number)];
  std::memcpy(bytes, &number, sizeof(Number));
  out.append(bytes, sizeof(Number));
}

}  // namespace

std::string tensorboard_file_name(double wall_seconds, std::string_view host, int process) {
  return fmt::format("events.out.tfevents.{:010.0f}.{}.{}", wall_seconds, host, process);
}

std::string tensorboard_record(std::string_view bytes) {
  std::string length;
  append_little_endian(length, std::uint64_t{bytes.size()});
  std::string record = length;
  append_little_endian(record, masked_crc(length));
  record += bytes;
  append_little_endian(record, masked_crc(bytes));
  return record;
}

Result<TensorboardLog> TensorboardLog::create(const std::string& path, double wall_seconds) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0)
    return fail(ErrorCode::kIo, fmt::format("cannot write {}: {}", path, std::strerror(errno)));
  TensorboardLog log(fd, path);
  tensorboard::Event first;
  first.set_wall_time(wall_seconds);
  first.set_file_version(kFileVersion);
  SWARMLINE_TRY(log.append(first.SerializeAsString()));
  return log;
}

TensorboardLog::TensorboardLog(TensorboardLog&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      path_(std::move(other.path_)),
      newest_step_(other.newest_step_) {}

TensorboardLog& TensorboardLog::operator=(TensorboardLog&& other) noexcept {
  std::swap(fd_, other.fd_);
  path_ = std::move(other.path_);
  newest_step_ = other.newest_step_;
  return *this;
}

TensorboardLog::~TensorboardLog() {
  if (fd_ >= 0) ::close(fd_);
}

// An evaluation is of a step that may not be the newest.
Result<void> TensorboardLog::add(const LogPoint& point) {
  if (point.is_step && point.step != newest_step_ + 1) {
    tensorboard::Event begins;
    begins.set_wall_time(point.wall_seconds);
    begins.set_step(static_cast<std::int64_t>(point.step));
    begins.mutable_session_log()->set_status(tensorboard::SessionLog::START);
    SWARMLINE_TRY(append(begins.SerializeAsString()));
  }
  if (point.is_step) newest_step_ = point.step;
  tensorboard::Event event;
  event.set_wall_time(point.wall_seconds);
  event.set_step(static_cast<std::int64_t>(point.step));
  for (const auto& [tag, value] : point.values) {
    tensorboard::Summary::Value& written = *event.mutable_summary()->add_value();
    written.set_tag(std::string(tag));
    written.set_simple_value(static_cast<float>(value));
  }
  return append(event.SerializeAsString());
}

Result<void> TensorboardLog::append(std::string_view event) {
  const std::string record = tensorboard_record(event);
  std::size_t written = 0;
  while (written < record.size()) {
    const ssize_t more = ::write(fd_, record.data() + written, record.size() - written);
    if (more < 0 && errno == EINTR) continue;
    if (more < 0)
      return fail(ErrorCode::kIo, fmt::format("cannot write {}: {}", path_, std::strerror(errno)));
    written += static_cast<std::size_t>(more);
  }
  return {};
}

}  // namespace swarmline
