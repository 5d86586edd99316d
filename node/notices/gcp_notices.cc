#include "node/notices/gcp_notices.h"

#include <fmt/format.h>

#include "base/printable.h"

namespace swarmline {
namespace {

constexpr Duration kWait = std::chrono::seconds(60);
constexpr Duration kAnswerMargin = std::chrono::seconds(10);
constexpr Duration kPreemptionNotice = std::chrono::seconds(30);
constexpr std::size_t kEtagBytesMax = 128;

bool is_plain(const std::string& etag) {
  for (const char c : etag)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-' && c != '_') return false;
  return etag.size() <= kEtagBytesMax;
}

}  // namespace

HttpClientRequest GcpNotices::next() const {
  std::string target = "/computeMetadata/v1/instance/preempted";
  if (!etag_.empty())
    target += fmt::format("?wait_for_change=true&timeout_sec={}&last_etag={}",
                          static_cast<int>(to_seconds(kWait)), etag_);
  return {.target = std::move(target), .headers = {{"Metadata-Flavor", "Google"}}};
}

Duration GcpNotices::patience() const {
  return etag_.empty() ? NoticeProvider::patience() : kWait + kAnswerMargin;
}

Result<std::optional<Notice>> GcpNotices::on_answer(const HttpClientAnswer& answer, double) {
  rests_ = true;
  if (answer.status != kHttpOk)
    return fail(ErrorCode::kCorrupt, fmt::format("the question whether this machine is preempted "
                                                 "was answered with HTTP status {}",
                                                 answer.status));
  const std::string value = answer.body.substr(0, answer.body.find_first_of("\r\n"));
  if (value != "TRUE" && value != "FALSE")
    return fail(ErrorCode::kCorrupt,
                fmt::format("the answer was \"{}\", expected TRUE or FALSE", printable(value, 32)));
  etag_ = is_plain(answer.etag) ? answer.etag : std::string();
  rests_ = etag_.empty();  // else the server makes us wait
  if (value == "FALSE" || std::exchange(told_, true)) {
    rests_ = rests_ || value == "TRUE";
    return std::nullopt;
  }
  return Notice{.kind = Notice::Kind::kLeave,
                .left = kPreemptionNotice,
                .words = "Compute Engine preempts this machine"};
}

}  // namespace swarmline
