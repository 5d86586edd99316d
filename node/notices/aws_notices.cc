#include "node/notices/aws_notices.h"

#include <boost/json/object.hpp>
#include <fmt/format.h>

#include "base/printable.h"
#include "engine/store/strict_json.h"

namespace swarmline {
namespace {

constexpr double kTokenSeconds = 21600;      // the most there is
constexpr double kTokenSparedSeconds = 600;  // a new one is asked for so long before the end
constexpr std::size_t kTokenBytesMax = 1024;
constexpr Duration kPollPeriod = std::chrono::seconds(5);
constexpr Duration kUsualNotice = std::chrono::seconds(120);
constexpr int kUnauthorized = 401, kNotFound = 404;

std::unexpected<Error> unexpected_status(std::string_view of, int status) {
  return fail(ErrorCode::kCorrupt, fmt::format("{} was answered with HTTP status {}", of, status));
}

}  // namespace

HttpClientRequest AwsNotices::next() const {
  if (asks_ == Asks::kToken)
    return {.method = "PUT",
            .target = "/latest/api/token",
            .headers = {
                {"X-aws-ec2-metadata-token-ttl-seconds", fmt::format("{:.0f}", kTokenSeconds)}}};
  return {.target = asks_ == Asks::kAction ? "/latest/meta-data/spot/instance-action"
                                           : "/latest/meta-data/events/recommendations/rebalance",
          .headers = {{"X-aws-ec2-metadata-token", token_}}};
}

Duration AwsNotices::rest() const {
  return rested_ ? kPollPeriod : Duration{};
}

Result<std::optional<Notice>> AwsNotices::on_answer(const HttpClientAnswer& answer, double now) {
  const Asks asked = asks_;
  rested_ = true;
  if (asked == Asks::kToken) {
    if (answer.status != kHttpOk || answer.body.empty() || answer.body.size() > kTokenBytesMax ||
        !is_printable(answer.body))
      return unexpected_status("the request for a token", answer.status);
    token_ = answer.body;
    token_ends_ = now + kTokenSeconds;
    asks_ = Asks::kAction;
    rested_ = false;
    return std::nullopt;
  }
  if (answer.status == kUnauthorized || now > token_ends_ - kTokenSparedSeconds) {
    asks_ = Asks::kToken;
    rested_ = answer.status != kUnauthorized;
    if (answer.status == kUnauthorized) return std::nullopt;
  } else {
    // Both questions within one period: the second comes at once.
    asks_ = asked == Asks::kAction ? Asks::kRebalance : Asks::kAction;
    rested_ = asked == Asks::kRebalance;
  }
  if (answer.status == kNotFound) return std::nullopt;
  if (answer.status != kHttpOk) {
    rested_ = true;
    return unexpected_status("the question for notices", answer.status);
  }
  if (asked == Asks::kAction) return read_action(answer, now);
  if (std::exchange(told_rebalance_, true)) return std::nullopt;
  return Notice{.kind = Notice::Kind::kAtRisk, .words = "EC2 recommends to rebalance"};
}

Result<std::optional<Notice>> AwsNotices::read_action(const HttpClientAnswer& answer, double now) {
  const auto read = parse_strict_json(answer.body, "the spot instance action");
  if (!read) return std::unexpected(read.error());
  if (!read->is_object())
    return fail(ErrorCode::kCorrupt, "the spot instance action is no JSON object");
  if (std::exchange(told_action_, true)) return std::nullopt;
  const std::string action = text_at(read->get_object(), "action");
  const auto at = parse_iso_time(text_at(read->get_object(), "time"));
  return Notice{.kind = Notice::Kind::kLeave,
                .left = at ? time_left(*at, now, kUsualNotice, kUsualNotice) : kUsualNotice,
                .words = fmt::format("EC2 will {} this spot instance",
                                     action.empty() ? "take" : printable(action, 32))};
}

}  // namespace swarmline
