// A run's key says which key comes after it: whoever knows the one takes the other for the run's,
// and needs no other word. Pure.
//   Form:   lines "swarmline handover 1", the run's name, the public keys of before and after
//           (hex), "MADE UNTIL" (seconds since 1970); then the signature (Ed25519, hex) by the key
//           of before, and a line's end.
//   Time:   what one says holds from `made` until `until`, at most kKeyOverlapMaxSeconds later,
//           with kClockSkewSeconds granted: after that the key of before is worth nothing.
//   Errors: kRefused with a sentence. Thread: any.
//   Bounds: kHandoversMax that hold at a time, each of kHandoverBytesMax: together they fit into
//           what a link says of itself (kLinkVouchersMax).
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/identity/identity.h"
#include "node/admission/join_string.h"

namespace swarmline {

inline constexpr double kKeyOverlapSeconds = 24 * 3600;  // unless who rotates says otherwise
inline constexpr double kKeyOverlapMaxSeconds = 7 * 24 * 3600.0;
inline constexpr std::size_t kHandoversMax = 4;
inline constexpr std::size_t kHandoverBytesMax = kRunNameBytesMax + 400;

struct Handover {
  std::string run;         // its name
  std::string from, into;  // public keys
  double made = 0, until = 0;
  std::string text;  // the whole of it, signed

  bool holds(double now) const;
};

Handover make_handover(const std::string& run, const Identity& from, const Identity& into,
                       double now, double overlap_seconds);
// Those that `text` begins with, each signed by the key that it names; `text` is what follows them.
Result<std::vector<Handover>> take_handovers(std::string_view& text);
// The texts of those that hold, the newest kHandoversMax of them, one after the other.
std::string vouchers_of(std::span<const Handover> handovers, double now);

// The statements that lead from a key of the run to the one that none of them replaces, in order.
// Of those that hold now; without a time, of all.
std::vector<Handover> succession(const KeyHash& known, std::span<const Handover> handovers,
                                 const std::string& run, std::optional<double> now);

}  // namespace swarmline
