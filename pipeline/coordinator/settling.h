// What follows from what a coordinator's parts have recorded.
//   What:      settle() carries out one thing at a time, always the first of its list that is due:
//              rulings (seats end, the run goes back or ends), newcomers, digests, takeovers,
//              rounds and commits, complete phases, states to freeze, leases, the end. Then the
//              outbox says all of it, in order.
//   Invariant: nothing of it calls a handler, and nothing is said before all is settled.
//   Ownership: what it is made with outlives it.
//   Thread:    control thread.
//   Bounds:    kRoundsMax things an event; more is a broken invariant. While no step is committed
//              the journal has what the run has cost kCostPeriod ago.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "pipeline/coordinator/coordinator_parts.h"

namespace swarmline {

// Why another reign follows a reign, in the same process.
struct SelfRestart {
  std::uint32_t times = 0;    // in a row, without a commit between
  bool heard_nobody = false;  // it was cut off
  double step_seconds = 0;    // as measured; 0: not yet
};
struct RunEnds {
  static constexpr int kDeposed = 3;  // exit code: another coordinator leads
  std::function<void(RunOutcome)> finished;
  std::function<void(SelfRestart)> again;  // ends the reign
};

class Settling {
 public:
  static constexpr std::uint32_t kRoundsMax = 10'000;
  static constexpr std::uint32_t kFailedStagesMax = 3;  // in a row, without getting further
  static constexpr Duration kCostPeriod = std::chrono::seconds(30);

  Settling(CoordinatorParts& parts, Network& network, const SelfRestart& begun_so, RunEnds ends)
      : parts_(parts),
        network_(network),
        restarts_(begun_so.times),
        step_seconds_(begun_so.step_seconds),
        ends_(std::move(ends)) {}

  // If the journal already holds a run, it goes on. `heard_nobody`: this coordinator was cut off.
  Result<void> open_journal(bool heard_nobody);
  void settle();
  void request_stop(bool now);
  // A checkpoint at the next commit. A sentence for who asked; kRefused while nothing is trained.
  Result<std::string> request_checkpoint();
  void note_progress() { progress_ = true; }  // cells have owners that they had not
  void take_seat(const Seat& seat, std::uint64_t version);
  // It has the parameters of that version: from now on it serves the open step, if those are what
  // is computed on.
  void take_early_seat(const Seat& seat, std::uint64_t version);

  bool may_begin_again() const;
  // Nobody else holds its stage's state: before that is given up for lost, it may be this end.
  bool is_cut_off(const Seat& seat) const;
  // With peers that alone hold their stage's state (run/bargain.h).
  Duration patience() const;
  const std::string& era_sentence() const { return era_sentence_; }
  Frame shutdown() const;  // how the run has ended, once it has

 private:
  // ---- settling_life.cc ----
  Result<void> go_on_counting(std::uint64_t committed);
  void drain(const std::string& why);
  // ---- settling_segments.cc ----
  Result<void> take_up_segments(RunSegments recorded);
  SegmentWish wish() const;
  Result<void> begin_segment(std::uint64_t version);
  SequenceOptions sequence_at(std::uint64_t version) const;
  // ---- settling_money.cc ----
  Result<void> check_budget() const;
  void count_cost();
  void count_step(bool again);
  void set_rates();
  void look_at_budget();
  // ---- settling_early.cc ----
  bool may_serve_early(const Seat& seat, std::uint64_t version) const;
  void has_the_rest(const Seat& seat, std::uint64_t version);
  void end_early_seats();
  void end_early_seats_of(StageId stage);
  // ---- settling.cc ----
  void look_at_journal();
  bool settle_one();
  bool settle_steps();
  void carry_out_rulings();
  void end_seat(const SeatLoss& loss);
  std::optional<ReplicaAudit::Follower> heir_of(const Seat& last) const;
  void inherit(const ReplicaAudit::Follower& heir);
  struct Takes {                  // with it, from a seat that is over
    bool keeps = false;           // a copy of its state
    bool takes_followed = false;  // what it has as a shadow
    bool not_taken = false;       // it may not have heard of its seat
  };
  void tell_end_of_seat(const SeatLoss& loss, const Member& member, const Takes& takes);
  void after_lost_seat(const SeatLoss& loss);
  void forget_long_gone();
  void stage_is_gone(const SeatLoss& last);
  bool fails_again_and_again();
  void compare_states();
  void compare_state(StageId stage, std::uint64_t version);
  void seat_followers(StageId stage);
  void seat_follower(const ReplicaAudit::Follower& follower, std::uint64_t version);
  void holds_its_state(const Seat& seat, std::uint64_t version);
  void tell_views();
  bool has_data();
  void close_complete_phases();
  void finish_eval(const Phase& phase);
  void commit();
  bool moves_peers() const;
  CommittedVersion newest_version() const;
  StepLogLine log_line(const CommitRecord& commit, std::uint64_t reduce_bytes) const;
  void choose_codecs();
  void check_shadows();
  void lease();
  bool all_leased() const;  // of the steps that are open
  void open_phases(const CollectedHoldings* collected = nullptr);
  bool finish();

  // ---- settling_life.cc: eras, recovery, ends ----
  void start_training();
  void end_recovery();
  void roll_back(const std::string& why);
  void dismiss_everybody(const std::string& why);
  void take_initial_parameters();
  void go_on_without_journal();
  void begin_era(const Result<void>& found);
  void go_on_from(const std::string& path, std::uint64_t version);
  double step_seconds() const;
  void restart_itself(const Rulings::SelfRestart& why);
  void fail(const std::string& sentence);
  void end(int exit_code, const std::string& sentence);
  void end_again(const std::string& sentence);
  void say_ended();
  void step_down(const std::string& why);
  void tell_the_end();
  void say_farewell();
  void end_without_journal();
  void leave(int exit_code, const std::string& sentence);

  CoordinatorParts& parts_;
  Network& network_;
  std::uint32_t restarts_;  // of its own, in a row, without a commit between
  double step_seconds_;     // as the reign before measured it
  Instant went_back_at_{};
  Duration loading_{};               // from there to the next start, the last time
  std::uint64_t saved_version_ = 0;  // of the checkpoint that the journal names
  RunEnds ends_;
  bool is_settling_ = false;
  bool progress_ = false;        // cells have owners that they had not, or seats were lost
  bool phases_due_ = false;      // to be opened
  bool first_era_here_ = false;  // on a journal that held a run
  bool takes_initial_ = false;   // looks for the parameters that the run begins with
  std::optional<std::uint64_t> farewell_after_;  // so many records are durable
  std::string era_sentence_;                     // why the newest era began, and where
  std::string spent_;                            // the budget it ends for; empty: it does not
  std::optional<std::uint64_t> priced_;          // the members' changes() that rates are of
  bool priced_training_ = false;
  Instant cost_recorded_at_{};
  // Stages whose last peer failed, in a row, and how far the run had got then.
  std::uint32_t failed_stages_ = 0;
  std::uint64_t failed_after_ = 0;
};

}  // namespace swarmline
