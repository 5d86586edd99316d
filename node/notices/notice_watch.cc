#include "node/notices/notice_watch.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"
#include "node/notices/aws_notices.h"
#include "node/notices/azure_notices.h"
#include "node/notices/cloud_vendor.h"
#include "node/notices/gcp_notices.h"
#include "node/notices/notice_command.h"

namespace swarmline {
namespace {

constexpr std::string_view kMetadataServer = "http://169.254.169.254";  // of all three

std::unique_ptr<NoticeProvider> make_provider(NoticeSource source) {
  switch (source) {
    case NoticeSource::kAws:
      return std::make_unique<AwsNotices>();
    case NoticeSource::kGcp:
      return std::make_unique<GcpNotices>();
    case NoticeSource::kAzure:
      return std::make_unique<AzureNotices>();
    default:
      return nullptr;
  }
}

}  // namespace

NoticeWatch::NoticeWatch(AsioRuntime& runtime, const PeerConfig& machine, OnNotice on_notice)
    : runtime_(runtime), machine_(machine), on_notice_(std::move(on_notice)), client_(runtime) {}

NoticeWatch::~NoticeWatch() = default;

Result<void> NoticeWatch::open() {
  const NoticeSource source =
      machine_.notices == NoticeSource::kAuto ? detect_notices() : machine_.notices;
  if (source == NoticeSource::kCommand) {
    command_ = std::make_unique<NoticeCommand>(runtime_, machine_.notice_command,
                                               guard_.wrap([this](const Notice& n) { tell(n); }));
    return {};
  }
  provider_ = make_provider(source);
  if (!provider_) return {};
  const auto server = parse_http_base(
      machine_.notice_url.empty() ? kMetadataServer : std::string_view(machine_.notice_url));
  if (!server) return fail(ErrorCode::kUserMistake, "peer.notice_url: " + server.error().what);
  server_ = *server;
  return {};
}

void NoticeWatch::start() {
  if (command_) {
    if (const auto started = command_->start(); !started)
      log(LogLevel::kWarn, "peer.notice_command: {}", started.error().what);
  } else if (provider_) {
    log(LogLevel::kInfo, "watching for notices of {} at {}", provider_->name(), to_string(server_));
    ask();
  }
}

void NoticeWatch::ask() {
  client_.ask(
      server_, provider_->next(), provider_->patience(),
      guard_.wrap([this](Result<HttpClientAnswer> answer) { answered(std::move(answer)); }));
}

void NoticeWatch::answered(Result<HttpClientAnswer> answer) {
  if (!answer) return failed(answer.error());
  const auto notice = provider_->on_answer(*answer, runtime_.wall_seconds());
  if (!notice) return failed(notice.error());
  if (pause_ > Duration{}) {
    log(LogLevel::kInfo, "{} answers again", provider_->name());
    pause_ = {};
  }
  runtime_.call_after(provider_->rest(), guard_.wrap([this] { ask(); }));
  if (*notice) tell(**notice);
}

void NoticeWatch::failed(const Error& error) {
  if (pause_ == Duration{})
    log(LogLevel::kWarn, "notices of {} can't be seen: {} ({}); it is asked again",
        provider_->name(), error.what, to_string(server_));
  pause_ = std::clamp(pause_ * 2, kPauseMin, kPauseMax);
  runtime_.call_after(pause_, guard_.wrap([this] { ask(); }));
}

void NoticeWatch::tell(const Notice& notice) {
  on_notice_(notice);
}

void NoticeWatch::leave(std::function<void()> done) {
  guard_.drop_callbacks();
  command_.reset();
  const auto farewell = provider_ ? provider_->farewell() : std::nullopt;
  if (!farewell) return done();
  client_.ask(server_, *farewell, kFarewellMax,
              guard_.wrap([done = std::move(done)](const Result<HttpClientAnswer>&) { done(); }));
}

}  // namespace swarmline
