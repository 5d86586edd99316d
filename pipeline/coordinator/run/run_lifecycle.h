// The life of a run, as its coordinator sees it: one state at a time, and a table of what may
// follow what.
//   What:    code, page (pipeline/coordinator/README.md) and test share the table.
//   Thread:  control thread. Pure.
//   Errors:  a step that the table does not have is CHECKed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "base/transition_table.h"

namespace swarmline {

inline constexpr int kExitOfInterrupted = 130;  // of an end that its user did not wait for

namespace life {
struct Forming {};     // an era has begun: it waits for a peer at each stage
struct Recovering {};  // begun again on its journal: it hears what its peers hold
struct Training {};
struct Draining {};         // ends after the open step
struct FinalCheckpoint {};  // all steps are done
struct RollingBack {        // looks for the checkpoint to go back to
  std::string why;
};
struct RestartingItself {};  // it may be the one who was cut off: another reign follows
struct SteppedDown {         // another coordinator leads
  std::string why;
};
struct Ended {
  int exit_code = 0;
  std::string sentence;
};
}  // namespace life

// The alternatives of RunLifecycle::State, in their order.
enum class RunState : std::uint8_t {
  kForming,
  kRecovering,
  kTraining,
  kDraining,
  kFinalCheckpoint,
  kRollingBack,
  kRestartingItself,
  kSteppedDown,
  kEnded,
};
inline constexpr std::size_t kRunStates = 9;

class RunLifecycle {
 public:
  using State = std::variant<life::Forming, life::Recovering, life::Training, life::Draining,
                             life::FinalCheckpoint, life::RollingBack, life::RestartingItself,
                             life::SteppedDown, life::Ended>;
  static_assert(std::variant_size_v<State> == kRunStates);
  // What may follow what, and when.
  using Table = TransitionTable<RunState, kRunStates>;
  static const Table& table();

  void move_to(State next);
  template <typename Life>
  bool is() const {
    return std::holds_alternative<Life>(state_);
  }
  template <typename Life>
  const Life& as() const {
    return std::get<Life>(state_);
  }
  RunState state() const { return state_of(state_); }
  std::string_view name() const { return table().name(state()); }
  // This reign does nothing more.
  bool is_over() const {
    return is<life::RestartingItself>() || is<life::SteppedDown>() || is<life::Ended>();
  }
  // Steps are open, or may be opened.
  bool is_running() const {
    return is<life::Training>() || is<life::Draining>() || is<life::FinalCheckpoint>();
  }
  // As `status --json` names it.
  std::string_view shown() const { return shown_; }
  std::string sentence() const;  // of an end; empty before

  void check_invariants() const;

 private:
  static RunState state_of(const State& state) { return static_cast<RunState>(state.index()); }

  State state_ = life::Forming{};
  std::string_view shown_ = "waiting";
};

}  // namespace swarmline
