#include "base/unit_suffix.h"

#include <charconv>
#include <cmath>
#include <system_error>

namespace swarmline {

std::optional<double> number_with_suffix(std::string_view text, double step) {
  constexpr std::string_view kUpper = "KMGT";
  constexpr std::string_view kLower = "kmgt";
  double number = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, number);
  if (error != std::errc() || !std::isfinite(number) || number < 0) return std::nullopt;
  if (end == last) return number;
  if (last - end != 1) return std::nullopt;
  const std::size_t upper = kUpper.find(*end);
  const std::size_t power = upper != kUpper.npos ? upper : kLower.find(*end);
  if (power == kLower.npos) return std::nullopt;
  number *= std::pow(step, static_cast<double>(power + 1));
  return std::isfinite(number) ? std::optional(number) : std::nullopt;
}

}  // namespace swarmline
