#include "pipeline/protocol/money_text.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace swarmline {
namespace {

constexpr int kDigits = 3;      // that count
constexpr int kPlacesMax = 12;  // after the point

// Three digits that count, never as a power of ten.
std::string small_digits(double amount) {
  const int zeros = -static_cast<int>(std::floor(std::log10(std::abs(amount)))) - 1;
  std::string text = fmt::format("{:.{}f}", amount, std::min(zeros + kDigits, kPlacesMax));
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return text;
}

}  // namespace

std::string money_digits(double amount) {
  if (!std::isfinite(amount)) return "-";
  if (amount == 0) return "0";
  if (std::abs(amount) < 1) return small_digits(amount);
  std::string text = fmt::format("{:.2f}", amount);
  for (std::size_t at = text.size() - 3; at > 3; at -= 3) text.insert(at - 3, ",");
  return text;
}

std::string money_text(double amount, std::string_view currency) {
  return fmt::format("{} {}", money_digits(amount), currency);
}

}  // namespace swarmline
