#include "node/admission/handover.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>

#include <fmt/format.h>

#include "node/admission/invites.h"

namespace swarmline {
namespace {

constexpr std::string_view kHandoverBegins = "swarmline handover 1";
constexpr std::size_t kHandoverLines = 6;

std::unexpected<Error> bad_handover(std::string_view why) {
  return fail(ErrorCode::kRefused, fmt::format("a handover of the run's key {}", why));
}

std::string signed_part(const Handover& handover) {
  return fmt::format("{}\n{}\n{}\n{}\n{} {}\n", kHandoverBegins, handover.run,
                     to_hex(as_bytes(handover.from)), to_hex(as_bytes(handover.into)),
                     static_cast<std::uint64_t>(handover.made),
                     static_cast<std::uint64_t>(handover.until));
}

bool take_seconds(std::string_view& text, double& seconds) {
  std::uint64_t whole = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), whole);
  if (error != std::errc()) return false;
  const auto taken = static_cast<std::size_t>(end - text.data()) + 1;
  text.remove_prefix(std::min(text.size(), taken));
  seconds = static_cast<double>(whole);
  return true;
}

Result<Handover> take_one(std::string_view& text) {
  const std::string_view whole = text;
  std::array<std::string_view, kHandoverLines> lines;
  for (std::string_view& line : lines) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) return bad_handover("is cut off");
    line = text.substr(0, end);
    text.remove_prefix(end + 1);
  }
  const std::size_t size = whole.size() - text.size();
  const auto from = from_hex(lines[2], kPublicKeyBytes), into = from_hex(lines[3], kPublicKeyBytes);
  const auto signature = from_hex(lines[5], kSignatureBytes);
  Handover handover{.run = std::string(lines[1]), .from = {}, .into = {}, .text = {}};
  std::string_view times = lines[4];
  if (size > kHandoverBytesMax || !from || !into || !signature ||
      !take_seconds(times, handover.made) || !take_seconds(times, handover.until))
    return bad_handover("can't be read");
  if (!verify_signature(*from, whole.substr(0, size - lines[5].size() - 1), *signature))
    return bad_handover("is not signed by the key that it names");
  handover.from = *from;
  handover.into = *into;
  handover.text = whole.substr(0, size);
  return handover;
}

}  // namespace

bool Handover::holds(double now) const {
  return now <= until + kClockSkewSeconds && now + kClockSkewSeconds >= made &&
         until - made <= kKeyOverlapMaxSeconds;
}

Handover make_handover(const std::string& run, const Identity& from, const Identity& into,
                       double now, double overlap_seconds) {
  Handover handover{.run = run,
                    .from = from.public_key(),
                    .into = into.public_key(),
                    .made = std::floor(now),
                    .until = std::floor(now) + std::floor(overlap_seconds),
                    .text = {}};
  handover.text = signed_part(handover);
  handover.text += to_hex(as_bytes(from.sign(handover.text))) + "\n";
  return handover;
}

Result<std::vector<Handover>> take_handovers(std::string_view& text) {
  std::vector<Handover> handovers;
  while (text.starts_with(kHandoverBegins)) {
    auto handover = take_one(text);
    if (!handover) return std::unexpected(std::move(handover).error());
    handovers.push_back(std::move(*handover));
  }
  return handovers;
}

std::string vouchers_of(std::span<const Handover> handovers, double now) {
  std::string text;
  std::size_t told = 0;
  // More may hold than were let in: by a clock that was set back.
  for (auto newest = handovers.rbegin(); newest != handovers.rend() && told < kHandoversMax;
       ++newest) {
    if (!newest->holds(now)) continue;
    text.insert(0, newest->text);
    ++told;
  }
  return text;
}

std::vector<Handover> succession(const KeyHash& known, std::span<const Handover> handovers,
                                 const std::string& run, std::optional<double> now) {
  std::vector<Handover> path;
  KeyHash last = known;
  const auto next = [&](const Handover& handover) {
    return hash_of_public_key(handover.from) == last && handover.run == run &&
           (!now || handover.holds(*now));
  };
  // Keys that hand over to each other in a circle lead nowhere.
  while (path.size() < handovers.size()) {
    const auto found = std::ranges::find_if(handovers, next);
    if (found == handovers.end()) break;
    path.push_back(*found);
    last = *hash_of_public_key(found->into);
  }
  return path;
}

}  // namespace swarmline
