// What the bench commands share: the machine they measure, and a line that says how far they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "engine/runtime/runtime.h"
#include "tools/measure/bench_codec.h"

namespace swarmline {

std::string processor_name();       // "unknown" where the system does not say
int processor_cores();              // at least 1
std::uint64_t free_memory_bytes();  // that can be had without swapping; 0: the system does not say
SecondsClock seconds_clock(const Runtime& runtime);  // which outlives it

// What is being measured, in place of the next line of the output; nothing where nobody watches.
class BenchProgress {
 public:
  explicit BenchProgress(std::size_t cases);
  void begin(const std::string& what);
  void end(const std::string& line) const;  // the line takes its place
  void clear() const;

 private:
  std::size_t cases_;
  std::size_t number_ = 0;
  bool visible_, utf8_;
};

}  // namespace swarmline
