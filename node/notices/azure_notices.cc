#include "node/notices/azure_notices.h"

#include <algorithm>
#include <array>
#include <vector>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <fmt/format.h>

#include "base/printable.h"
#include "engine/store/strict_json.h"

namespace swarmline {
namespace {

namespace json = boost::json;

constexpr std::string_view kEventsTarget = "/metadata/scheduledevents?api-version=2020-07-01";
constexpr std::string_view kNameTarget =
    "/metadata/instance/compute/name?api-version=2021-02-01&format=text";
constexpr Duration kFirstPatience = std::chrono::seconds(130);
constexpr Duration kPreemptNotice = std::chrono::seconds(30);
constexpr Duration kLongestNotice = std::chrono::seconds(20 * 60);  // 15 minutes, and the clocks
constexpr std::size_t kNameBytesMax = 256, kIdBytesMax = 128;
constexpr std::array<std::string_view, 4> kTakenBy = {"Preempt", "Terminate", "Redeploy", "Reboot"};

bool names(const json::object& event, const std::string& machine) {
  if (machine.empty()) return true;
  const auto* found = event.if_contains("Resources");
  const auto* resources = found != nullptr ? found->if_array() : nullptr;
  if (resources == nullptr) return false;
  return std::ranges::any_of(*resources, [&](const json::value& resource) {
    return resource.is_string() && std::string_view(resource.get_string()) == machine;
  });
}

}  // namespace

HttpClientRequest AzureNotices::next() const {
  return {.target = std::string(asks_name_ ? kNameTarget : kEventsTarget),
          .headers = {{"Metadata", "true"}}};
}

Duration AzureNotices::patience() const {
  return asks_name_ || heard_ ? NoticeProvider::patience() : kFirstPatience;
}

Result<std::optional<Notice>> AzureNotices::on_answer(const HttpClientAnswer& answer, double now) {
  if (asks_name_) {
    asks_name_ = false;
    const bool has_name = answer.status == kHttpOk && answer.body.size() <= kNameBytesMax &&
                          is_printable(answer.body);
    name_ = has_name ? answer.body : std::string();
    return std::nullopt;
  }
  if (answer.status != kHttpOk)
    return fail(
        ErrorCode::kCorrupt,
        fmt::format("the question for events was answered with HTTP status {}", answer.status));
  const auto events = read(answer.body);
  if (!events) return std::unexpected(events.error());
  heard_ = true;
  std::optional<Notice> worst;
  for (const Event& event : *events) {
    const auto told = judge(event, now);
    if (!told) continue;
    const bool is_worse =
        !worst || (told->kind == Notice::Kind::kLeave &&
                   (worst->kind != Notice::Kind::kLeave || told->left < worst->left));
    if (is_worse) worst = told;
  }
  return worst;
}

Result<std::vector<AzureNotices::Event>> AzureNotices::read(const std::string& body) const {
  const auto parsed = parse_strict_json(body, "the scheduled events");
  if (!parsed) return std::unexpected(parsed.error());
  const auto* whole = parsed->if_object();
  const auto* listed = whole != nullptr ? whole->if_contains("Events") : nullptr;
  if (listed == nullptr || !listed->is_array())
    return fail(ErrorCode::kCorrupt, "the scheduled events are no list");
  std::vector<Event> events;
  for (const json::value& entry : listed->get_array()) {
    const auto* object = entry.if_object();
    if (object == nullptr || !names(*object, name_) || events.size() >= kEventsMax) continue;
    Event event{.id = text_at(*object, "EventId"),
                .type = text_at(*object, "EventType"),
                .status = text_at(*object, "EventStatus"),
                .at = parse_http_time(text_at(*object, "NotBefore"))};
    const bool taken = std::ranges::find(kTakenBy, event.type) != kTakenBy.end();
    if (taken && event.id.size() <= kIdBytesMax) events.push_back(std::move(event));
  }
  return events;
}

std::optional<Notice> AzureNotices::judge(const Event& event, double now) {
  if (leaving_.contains(event.id) || leaving_.size() >= kEventsMax) return std::nullopt;
  const bool preempts = event.type == "Preempt";
  // An event without a time begins as soon as it may.
  Duration left = preempts ? kPreemptNotice : kLeaveAhead;
  if (event.at) left = time_left(*event.at, now, preempts ? kPreemptNotice : kLongestNotice, left);
  if (event.status == "Started") left = {};
  Notice notice{.kind = left > kLeaveAhead ? Notice::Kind::kAtRisk : Notice::Kind::kLeave,
                .left = left,
                .words = fmt::format("Azure will {} this machine", printable(event.type, 32))};
  auto& told = notice.kind == Notice::Kind::kLeave ? leaving_ : at_risk_;
  if (told.size() >= kEventsMax || !told.insert(event.id).second) return std::nullopt;
  return notice;
}

std::optional<HttpClientRequest> AzureNotices::farewell() const {
  if (leaving_.empty()) return std::nullopt;
  json::array started;
  for (const std::string& id : leaving_) started.push_back({{"EventId", id}});
  return HttpClientRequest{
      .method = "POST",
      .target = std::string(kEventsTarget),
      .headers = {{"Metadata", "true"}, {"Content-Type", "application/json"}},
      .body = json::serialize(json::object{{"StartRequests", std::move(started)}})};
}

}  // namespace swarmline
