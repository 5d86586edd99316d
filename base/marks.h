// Coverage marks: points of the protocol that tests and seeds must be able to show they reached.
//   What:    SWARMLINE_MARK("ledger.doubt_resolved") counts how often the line was reached. A test
//            that forces an event shows so that its rule fired (tests/harness/mark_expected.h); a
//            run of seeds lists the marks that it hit, and those that it did not.
//   Names:   part.rule, unique: two lines with one name count together. Every mark of a program is
//            known before the first one is hit.
//   Thread:  any. A hit is one relaxed increment; not for loops over elements.
//   Source:  TigerBeetle's testing/marks.zig, FoundationDB's CODE_PROBE.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace swarmline {

class Mark {
 public:
  explicit Mark(std::string_view name);  // lives as long as the program
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;
  void hit() { hits_.fetch_add(1, std::memory_order_relaxed); }
  std::uint64_t hits() const { return hits_.load(std::memory_order_relaxed); }
  std::string_view name() const { return name_; }

  static std::vector<const Mark*> all();           // sorted by name
  static const Mark* find(std::string_view name);  // null: no line has that mark

 private:
  std::string_view name_;
  std::atomic<std::uint64_t> hits_{0};
};

template <std::size_t kSize>
struct MarkName {
  char text[kSize]{};
  consteval MarkName(const char (&name)[kSize]) { std::copy_n(name, kSize, text); }
};

template <MarkName kName>
inline Mark mark_named{std::string_view(kName.text, sizeof kName.text - 1)};

}  // namespace swarmline

#define SWARMLINE_MARK(name) (::swarmline::mark_named<name>.hit())
