// What one direction of a shaped link does to bytes: when each piece comes out at the far end, and
// which of its bits are flipped. Pure: the caller brings the time.
//   What:      a serial line of `bits_per_second`, then a fixed delay with a uniform jitter; the
//              order of pieces is kept, so a late piece holds up those behind it.
//   Units:     bits (not bytes) per second, 0: no limit; corruption: flipped bits per byte, 0 to 1.
//   Thread:    control thread. Same seed and calls, same answers.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/bytes.h"
#include "base/result.h"
#include "base/rng.h"
#include "base/units.h"

namespace swarmline {

struct LinkShape {
  double bits_per_second = 0;
  Duration delay{};
  Duration jitter{};   // each piece: delay + uniform in [-jitter, jitter], never below 0
  double corrupt = 0;  // probability that a byte has one bit flipped
  bool operator==(const LinkShape&) const = default;
};

// Changes the named parts of `shape`: "rate=100M delay=20ms jitter=5ms corrupt=1e-6", parted by
// blanks or commas. Rates take K, M and G (powers of ten); durations us, ms and s.
// kUserMistake naming the word that was not understood.
Result<LinkShape> parse_link_shape(std::string_view text, LinkShape shape = {});
std::string to_string(const LinkShape& shape);

class LinkLine {
 public:
  explicit LinkLine(std::uint64_t seed) : rng_(seed) {}

  void set(const LinkShape& shape) { shape_ = shape; }
  const LinkShape& shape() const { return shape_; }
  // Puts a piece of `bytes` on the line at `now` and says when its last byte arrives.
  Instant arrival(Instant now, std::uint64_t bytes);
  // Flips bits of a piece; returns how many.
  std::uint64_t corrupt(MutableBytes piece);
  // Bytes worth keeping on the way: twice what the line holds in flight.
  std::uint64_t window_bytes() const;
  // A piece this long lasts about a millisecond on the line.
  std::size_t piece_bytes() const;

  static constexpr std::uint64_t kWindowBytesMin = 1 * kMiB;
  static constexpr std::uint64_t kWindowBytesMax = 256 * kMiB;
  static constexpr std::size_t kPieceBytesMin = 1448;
  static constexpr std::size_t kPieceBytesMax = 64 * kKiB;

 private:
  LinkShape shape_;
  Rng rng_;
  Instant line_free_{};
  Instant last_arrival_{};
};

}  // namespace swarmline
