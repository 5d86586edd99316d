// What a run has trained of a timeline: spans of equal speed, losses and checkpoints between them.
//   Units:  seconds; tokens; speed in peers a stage: as many as serve the stage that has fewest.
//   Thread: any; pure. CHECK: times and periods are not negative, a period is above 0.
//   Source: J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart
//           dumps", Future Generation Computer Systems 22 (2006), equation 37.
#pragma once

#include <cstdint>
#include <vector>

namespace swarmline {

// What happens at its beginning comes first, in the order of the fields.
struct WorkSpan {
  double seconds = 0;
  double speed = 0;
  bool rolls_back = false;      // what was trained since the newest complete checkpoint is lost
  double steps_again = 0;       // so much of an open step is computed again
  bool saves = false;           // a checkpoint is written before anything else
  double stall_seconds = 0;     // nobody trains for so long; may reach into the spans that follow
  std::uint64_t fetches = 0;    // of a stage's state, begun here
  std::uint64_t followers = 0;  // shadows that take each step's sums
};

// Built instant by instant: the speed holds until the next one.
class WorkTimeline {
 public:
  // CHECK: `seconds` does not go back.
  void advance(double seconds);
  WorkSpan& now() { return open_; }  // what begins here
  std::vector<WorkSpan> finish(double end);

 private:
  double now_ = 0;
  WorkSpan open_;
  std::vector<WorkSpan> spans_;
};

// How fast equal peers train, by how many serve each stage; [0] is 0. Between whole numbers of
// peers the line, above the last one its value.
struct TrainingRate {
  std::vector<double> tokens_per_second;
  double step_tokens = 0;
  double at(double speed) const;
};

struct CheckpointRule {
  double period_seconds = 600;  // of training, between the end of one and the next
  double write_seconds = 0;     // nobody trains meanwhile
  // Training goes on meanwhile, and the period begins when writing does; one at a time.
  bool in_background = false;
};

struct WorkAccount {
  double seconds = 0;
  double tokens = 0;       // trained, and not lost
  double lost_tokens = 0;  // trained once more, or for nothing
  double stalled_seconds = 0;
  double saving_seconds = 0;
  std::uint64_t rollbacks = 0;
  std::uint64_t fetches = 0;
  double followed_tokens = 0;  // trained, times the shadows that followed
  double worked_tokens() const { return tokens + lost_tokens; }
  double lost_share() const { return lost_tokens > 0 ? lost_tokens / (tokens + lost_tokens) : 0; }
};

// A checkpoint holds what was trained when it was begun, and counts when it is complete. What was
// trained since the last one counts at the end.
WorkAccount account_work(const std::vector<WorkSpan>& spans, const TrainingRate& rate,
                         const CheckpointRule& checkpoints);

// Seconds of training between checkpoints that lose least, when failures are independent.
double daly_period(double write_seconds, double seconds_between_failures);

}  // namespace swarmline
