#include "node/notices/notice.h"

#include <ctime>

namespace swarmline {
namespace {

std::optional<double> parse_time(const std::string& text, const char* format) {
  std::tm parts{};
  const char* const end = ::strptime(text.c_str(), format, &parts);
  if (end == nullptr || *end != '\0') return std::nullopt;
  return static_cast<double>(::timegm(&parts));
}

}  // namespace

std::string text_at(const boost::json::object& object, std::string_view key) {
  const auto* found = object.if_contains(key);
  const auto* text = found != nullptr ? found->if_string() : nullptr;
  return text != nullptr ? std::string(*text) : std::string();
}

Duration time_left(double at, double now, Duration longest, Duration usual) {
  const double left = at - now;
  return left >= 0 && left <= to_seconds(longest) ? from_seconds(left) : usual;
}

std::optional<double> parse_iso_time(const std::string& text) {
  return parse_time(text, "%Y-%m-%dT%H:%M:%SZ");
}

std::optional<double> parse_http_time(const std::string& text) {
  return parse_time(text, "%a, %d %b %Y %H:%M:%S GMT");
}

}  // namespace swarmline
