#include "node/notices/notice_command.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <stdlib.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"
#include "base/printable.h"
#include "engine/store/files.h"

namespace swarmline {
namespace {

constexpr int kExitTaken = 0, kExitAtRisk = 10;
constexpr double kUsualNoticeSeconds = 30, kNoticeSecondsMax = 3600;
constexpr std::size_t kWordsMax = 200;

std::optional<double> first_number(std::string_view text) {
  const std::size_t at = text.find_first_of("0123456789");
  if (at == text.npos) return std::nullopt;
  double number = 0;
  const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), number);
  return error == std::errc() ? std::optional(number) : std::nullopt;
}

}  // namespace

std::optional<Notice> read_notice_command(int exit_code, const std::string& output) {
  if (exit_code != kExitTaken && exit_code != kExitAtRisk) return std::nullopt;
  std::string words = output.substr(0, output.find_last_not_of(" \r\n\t") + 1);
  words = words.empty() ? "the notice command ended" : printable(words, kWordsMax);
  if (exit_code == kExitAtRisk) return Notice{.kind = Notice::Kind::kAtRisk, .words = words};
  const double seconds =
      std::clamp(first_number(output).value_or(kUsualNoticeSeconds), 0.0, kNoticeSecondsMax);
  return Notice{.kind = Notice::Kind::kLeave, .left = from_seconds(seconds), .words = words};
}

NoticeCommand::NoticeCommand(Runtime& runtime, std::string command,
                             std::function<void(const Notice&)> on_notice)
    : runtime_(runtime), command_(std::move(command)), on_notice_(std::move(on_notice)) {}

NoticeCommand::~NoticeCommand() {
  child_.reset();
  if (!output_file_.empty()) ::unlink(output_file_.c_str());
}

Result<void> NoticeCommand::start() {
  if (output_file_.empty()) {
    std::error_code error;
    const auto folder = std::filesystem::temp_directory_path(error);
    std::string name = ((error ? "/tmp" : folder) / "swarmline-notice-XXXXXX").string();
    const int file = ::mkstemp(name.data());
    if (file < 0)
      return fail(ErrorCode::kIo, fmt::format("can't make a file for its output ({})", name));
    ::close(file);
    output_file_ = std::move(name);
  }
  std::error_code ignored;
  std::filesystem::resize_file(output_file_, 0, ignored);
  auto child = ChildProcess::start(
      {.program = "/bin/sh", .arguments = {"-c", command_}, .output_file = output_file_});
  if (!child) return std::unexpected(std::move(child).error());
  child_ = std::move(*child);
  runtime_.call_after(kLookPeriod, guard_.wrap([this] { look(); }));
  return {};
}

void NoticeCommand::look() {
  if (const auto exit_code = child_->poll()) return ended(*exit_code);
  runtime_.call_after(kLookPeriod, guard_.wrap([this] { look(); }));
}

void NoticeCommand::ended(int exit_code) {
  const auto read = read_text_file(output_file_, kOutputBytesMax);
  const std::string output = read ? *read : std::string();  // a long one says nothing
  const auto notice = read_notice_command(exit_code, output);
  if (!notice) {
    if (pause_ == Duration{})
      log(LogLevel::kWarn,
          "the command in peer.notice_command ended with code {} ({}); notices are not seen until "
          "it runs again",
          exit_code, printable(output, kWordsMax));
    pause_ = std::clamp(pause_ * 2, kPauseMin, kPauseMax);
    return again(pause_);
  }
  pause_ = {};
  if (notice->kind == Notice::Kind::kAtRisk) again(kPauseMin);
  on_notice_(*notice);
}

void NoticeCommand::again(Duration pause) {
  runtime_.call_after(pause, guard_.wrap([this] {
    if (const auto started = start(); !started) {
      log(LogLevel::kWarn, "peer.notice_command: {}", started.error().what);
      pause_ = kPauseMax;
      again(pause_);
    }
  }));
}

}  // namespace swarmline
