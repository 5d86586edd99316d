// What is measured of each boundary between stages, how tensors cross it, and with codec "auto" the
// choice of another codec. Pure: told of reports and commits.
//   Invariant: a phase's codecs are those of its opening, the same for all peers of a boundary;
//              they change by on_commit() only.
//   Measures:  of the newest step that had any; a rate that no step has measured counts as fast.
//   Errors:    numbers that cannot be measurements are left out.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "compression/codec_choice.h"
#include "compression/measure.h"
#include "engine/config/run_config.h"
#include "pipeline/protocol/messages.pb.h"

namespace swarmline {

// How tensors cross one boundary in a phase; names as in the config.
struct BoundaryCodecs {
  std::string forward, backward;
};

class BoundaryBoard {
 public:
  enum Way : std::uint8_t { kForward, kBackward };

  // `elements`: of one tensor that crosses a boundary.
  BoundaryBoard(const RunConfig& config, std::uint64_t elements);

  // A member's report of a step that is being reduced.
  void on_reduced(const wire::Reduced& reduced);
  // The step is committed; `peers` serve each stage. A sentence for every change of codec.
  std::vector<std::string> on_commit(const std::vector<std::uint32_t>& peers);
  std::vector<BoundaryCodecs> codecs() const;  // by boundary, of phases that open now

  // For the journal; restore() takes what to_text() gave, and nothing else.
  std::string to_text() const;
  bool restore(const std::string& text);

  struct View {
    CodecSpec codec;
    double relative_error = -1;   // of that codec; -1: not measured
    double bytes_per_second = 0;  // a link gave; 0: not measured
  };
  View view(std::uint32_t boundary, Way way) const;
  std::uint32_t boundaries() const { return static_cast<std::uint32_t>(links_.size()); }

 private:
  struct Trial {
    CodecError error;
    std::uint64_t elements = 0, ns = 0;
  };
  struct Measures {
    std::map<CodecKind, Trial> trials;
    std::uint64_t arrived_bytes = 0, arrived_ns = 0;
  };
  struct Link {
    CodecSpec codec;
    bool automatic = false;
    Measures step, known;
  };
  struct Stage {
    std::uint64_t busy_ns = 0, passes = 0;  // of the step
    double seconds = 0;                     // device time a microbatch, newest known
  };

  void add_sample(std::uint32_t stage, const wire::CodecSample& sample);
  void add_arrivals(std::uint32_t boundary, Way way, const wire::ArrivalRate& rate);
  BoundaryLoad load(std::uint32_t boundary, const Link& link,
                    const std::vector<std::uint32_t>& peers) const;

  CodecOptions options_;
  DType dtype_;
  std::uint64_t elements_;
  CodecChooser chooser_;
  std::vector<std::array<Link, 2>> links_;  // by boundary, way
  std::vector<Stage> stages_;
};

}  // namespace swarmline
