#include "tools/link_proxy/link_shape.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "base/unit_suffix.h"

namespace swarmline {
namespace {

struct Suffix {
  std::string_view text;
  double factor;
};
constexpr Suffix kTimeSuffixes[] = {{"us", 1e-6}, {"ms", 1e-3}, {"s", 1}};
constexpr Suffix kPlain[] = {{"", 1}};
constexpr double kSecondsMax = 3600;

template <std::size_t N>
std::optional<double> number(std::string_view text, const Suffix (&suffixes)[N]) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || !std::isfinite(value) || value < 0) return std::nullopt;
  const std::string_view rest = text.substr(static_cast<std::size_t>(end - text.data()));
  for (const Suffix& suffix : suffixes) {
    if (rest == suffix.text) return value * suffix.factor;
  }
  return std::nullopt;
}

std::optional<Duration> duration(std::string_view text) {
  const auto seconds = text == "0" ? std::optional<double>(0) : number(text, kTimeSuffixes);
  if (!seconds || *seconds > kSecondsMax) return std::nullopt;
  return from_seconds(*seconds);
}

bool assign(LinkShape& shape, std::string_view key, std::string_view value) {
  if (key == "rate") {
    const auto rate = number_with_suffix(value, 1000);
    if (rate) shape.bits_per_second = *rate;
    return rate.has_value();
  }
  if (key == "corrupt") {
    const auto share = number(value, kPlain);
    if (!share || *share > 1) return false;
    shape.corrupt = *share;
    return true;
  }
  if (key != "delay" && key != "jitter") return false;
  const auto time = duration(value);
  if (time) (key == "delay" ? shape.delay : shape.jitter) = *time;
  return time.has_value();
}

}  // namespace

Result<LinkShape> parse_link_shape(std::string_view text, LinkShape shape) {
  while (true) {
    const std::size_t begin = text.find_first_not_of(" ,\t");
    if (begin == std::string_view::npos) return shape;
    text.remove_prefix(begin);
    const std::string_view word = text.substr(0, text.find_first_of(" ,\t"));
    text.remove_prefix(word.size());
    const std::size_t equals = word.find('=');
    if (equals == std::string_view::npos ||
        !assign(shape, word.substr(0, equals), word.substr(equals + 1))) {
      return fail(
          ErrorCode::kUserMistake,
          fmt::format("\"{}\": expected rate=100M, delay=20ms, jitter=5ms or corrupt=1e-6", word));
    }
  }
}

std::string to_string(const LinkShape& shape) {
  const std::string rate =
      shape.bits_per_second > 0 ? fmt::format("{}M", shape.bits_per_second / 1e6) : "0";
  return fmt::format("rate={} delay={}ms jitter={}ms corrupt={}", rate,
                     to_seconds(shape.delay) * 1e3, to_seconds(shape.jitter) * 1e3, shape.corrupt);
}

Instant LinkLine::arrival(Instant now, std::uint64_t bytes) {
  line_free_ = std::max(line_free_, now);
  if (shape_.bits_per_second > 0)
    line_free_ += from_seconds(static_cast<double>(bytes) * 8 / shape_.bits_per_second);
  const double sway = to_seconds(shape_.jitter) * (2 * rng_.uniform() - 1);
  const Duration delay = std::max(Duration{}, shape_.delay + from_seconds(sway));
  last_arrival_ = std::max(last_arrival_, line_free_ + delay);
  return last_arrival_;
}

std::uint64_t LinkLine::corrupt(MutableBytes piece) {
  if (shape_.corrupt <= 0) return 0;
  std::uint64_t flipped = 0;
  // Gaps between hits of a small probability: exponential, rounded down.
  const double mean = shape_.corrupt < 1 ? -1 / std::log1p(-shape_.corrupt) : 0;
  double at = rng_.exponential(mean);
  while (at < static_cast<double>(piece.size())) {
    piece[static_cast<std::size_t>(at)] ^= std::byte{1} << rng_.below(8);
    ++flipped;
    at = std::floor(at) + 1 + rng_.exponential(mean);
  }
  return flipped;
}

std::uint64_t LinkLine::window_bytes() const {
  if (shape_.bits_per_second <= 0) {
    return shape_.delay > Duration{} ? kWindowBytesMax / 4 : kWindowBytesMin;
  }
  const double flight = to_seconds(shape_.delay + shape_.jitter) * shape_.bits_per_second / 8;
  return std::clamp(static_cast<std::uint64_t>(2 * flight), kWindowBytesMin, kWindowBytesMax);
}

std::size_t LinkLine::piece_bytes() const {
  if (shape_.bits_per_second <= 0) return kPieceBytesMax;
  const double millisecond = std::min(shape_.bits_per_second / 8e3, 1e9);
  return std::clamp(static_cast<std::size_t>(millisecond), kPieceBytesMin, kPieceBytesMax);
}

}  // namespace swarmline
