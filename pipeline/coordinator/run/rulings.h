// What parts of a coordinator have found and others have to carry out: seats to end, a run that
// must go back, end, or be handed to another coordinator.
//   What:      a part that finds such a thing says it here and goes on; the coordinator carries it
//              out when it settles. So no part calls those above it.
//   Thread:    control thread.
//   Bounds:    one loss a seat; of everything else the first word counts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace swarmline {

// How a seat ends: it vanished, its process failed, it left for good, it is refused, or it goes to
// another stage (or joins its own anew, where it came too late to begin with the others).
enum class Departure : std::uint8_t { kLost, kFailed, kLeft, kRefused, kMoves };
inline constexpr int kRefusedExitCode = 3;  // of the process
// It does not come back by itself.
inline bool ends_process(Departure how) {
  return how == Departure::kLeft || how == Departure::kRefused;
}

struct SeatLoss {
  Seat seat;
  std::string why;
  Departure how = Departure::kLost;
};

class Rulings {
 public:
  void lose(const Seat& seat, const std::string& why, Departure how = Departure::kLost);
  // A stage's last member is lost, and nobody is left who could take it over.
  void stage_is_gone(const SeatLoss& last);
  void fail_run(const std::string& sentence);
  void roll_back(const std::string& why);  // nobody holds a stage's state any more
  void step_down(const std::string& why);  // another coordinator leads
  void begin_again(const std::string& why, bool heard_nobody);

  bool any() const;
  std::vector<SeatLoss> take_losses() { return std::exchange(losses_, {}); }
  std::vector<SeatLoss> take_gone_stages() { return std::exchange(gone_, {}); }
  std::optional<std::string> take_failure() { return std::exchange(failure_, {}); }
  std::optional<std::string> take_rollback() { return std::exchange(rollback_, {}); }
  std::optional<std::string> take_step_down() { return std::exchange(step_down_, {}); }
  struct SelfRestart {
    std::string why;
    bool heard_nobody = false;
  };
  std::optional<SelfRestart> take_self_restart() { return std::exchange(self_restart_, {}); }
  void clear_losses();  // all seats are over

 private:
  std::vector<SeatLoss> losses_;
  std::vector<SeatLoss> gone_;
  std::optional<std::string> failure_;
  std::optional<std::string> rollback_;
  std::optional<std::string> step_down_;
  std::optional<SelfRestart> self_restart_;
};

}  // namespace swarmline
