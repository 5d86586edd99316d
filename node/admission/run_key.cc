#include "node/admission/run_key.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "engine/identity/key_file.h"
#include "engine/store/secret_file.h"
#include "node/admission/invites.h"

namespace swarmline {
namespace {

constexpr std::string_view kPemEnds = "-----END PRIVATE KEY-----\n";

}  // namespace

Result<RunKey> parse_run_key(std::string_view text, const std::string& where) {
  auto identity = Identity::from_pem(text, where);
  if (!identity) return fail(ErrorCode::kUserMistake, identity.error().what);
  const std::size_t end = text.find(kPemEnds);
  std::string_view rest =
      end == std::string_view::npos ? std::string_view() : text.substr(end + kPemEnds.size());
  auto handovers = take_handovers(rest);
  if (!handovers)
    return fail(ErrorCode::kUserMistake, fmt::format("{}: {}", where, handovers.error().what));
  if (!handovers->empty() && handovers->back().into != identity->public_key())
    return fail(ErrorCode::kUserMistake,
                fmt::format("{}: what its keys before have signed leads to another key; restore "
                            "the file as \"swarmline keys rotate\" left it",
                            where));
  return RunKey{.identity = std::move(*identity), .handovers = std::move(*handovers)};
}

std::string to_text(const RunKey& key) {
  std::string text = key.identity.to_pem();
  for (const Handover& handover : key.handovers) text += handover.text;
  return text;
}

Result<RunKey> rotated(const RunKey& key, const std::string& run, double now,
                       double overlap_seconds, Identity into) {
  double first_end = 0;
  std::size_t holding = 0;
  for (const Handover& handover : key.handovers) {
    if (!handover.holds(now)) continue;
    first_end = holding == 0 ? handover.until : std::min(first_end, handover.until);
    ++holding;
  }
  if (holding >= kHandoversMax)
    return fail(
        ErrorCode::kUserMistake,
        fmt::format("the run's key was changed {} times, and peers that were away may still "
                    "follow each change: it can be changed again in {:.0f} s",
                    holding, std::ceil(first_end + kClockSkewSeconds - now)));
  RunKey next{.identity = std::move(into), .handovers = key.handovers};
  next.handovers.push_back(make_handover(run, key.identity, next.identity, now, overlap_seconds));
  if (next.handovers.size() > kHandoversKept) next.handovers.erase(next.handovers.begin());
  return next;
}

Result<RunKey> load_run_key(const std::string& path) {
  auto text = read_secret_file(path, kKeyFileBytesMax);
  if (!text && text.error().code == ErrorCode::kRefused)
    return fail(ErrorCode::kUserMistake, text.error().what + ": that is no key");
  if (!text) return std::unexpected(std::move(text).error());
  return parse_run_key(*text, path);
}

Result<RunKey> load_or_make_run_key(const std::string& path) {
  auto made = load_or_make_key(path);
  if (!made) return std::unexpected(std::move(made).error());
  return load_run_key(path);
}

Result<RunKey> rotate_run_key(const std::string& path, const std::string& run, double now,
                              double overlap_seconds) {
  SWARMLINE_TRY(load_run_key(path));
  Result<RunKey> next = fail(ErrorCode::kIo, "not rotated");
  SWARMLINE_TRY(rewrite_secret_file(path, kKeyFileBytesMax,
                                    [&](std::string_view text) -> Result<std::string> {
                                      const auto now_there = parse_run_key(text, path);
                                      if (!now_there) return std::unexpected(now_there.error());
                                      next = rotated(*now_there, run, now, overlap_seconds);
                                      if (!next) return std::unexpected(next.error());
                                      return to_text(*next);
                                    }));
  return next;
}

}  // namespace swarmline
