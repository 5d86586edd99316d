// What this peer has added into its accumulator, and what the ledger says of it: reports in
// batches, acknowledgements, claims, taking back.
//   Invariant: an index is added at most once per phase, whatever the number of attempts seen.
//   Thread:    control thread. Bounds: one entry per index of an open phase; input and gradient of
//              a contribution are kept until its report is acknowledged.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <vector>

#include "base/callback_guard.h"
#include "base/ids.h"
#include "pipeline/protocol/messages.pb.h"
#include "pipeline/stage/common/stage_context.h"
#include "pipeline/stage/microbatches/microbatch_task.h"

namespace swarmline {

class Contributions {
 public:
  // `subtract` recomputes the task and takes its weight gradients out of the open accumulator;
  // calls back when done.
  using Subtract = std::function<void(const TaskPtr&, std::function<void()> done)>;
  Contributions(StageContext& context, Subtract subtract);
  // As a job of the stage's device.
  static Subtract subtract_on_device(StageContext& context);

  void open(const Phase& phase);
  // True when no other attempt of this index is added, being added or claimed and the accumulator
  // is not frozen: the caller now holds the right to add.
  bool reserve(const AttemptId& id);
  void unreserve(const AttemptId& id);  // the claim was refused or the compute dropped
  void added(const TaskPtr& task);      // reports it
  void evaluated(const TaskPtr& task);  // reports a loss; nothing was added
  void on_ack(const wire::ReportAck& ack);

  // Makes the accumulator hold exactly `owned` and freezes it: takes back what is too much, then
  // calls `done` with what is missing. kIncompatible when something that was acknowledged is too
  // much: the ledger contradicts itself.
  void settle(const Phase& phase, const std::set<std::uint32_t>& owned,
              std::function<void(Result<std::vector<std::uint32_t>> missing)> done);
  void reopen(const Phase& phase);  // no longer frozen

  // ---- Sums that change hands, before the phase is sealed ----
  using List = google::protobuf::RepeatedPtrField<wire::Contribution>;
  // Something is in the accumulator, the ledger has accepted all of it, and nothing is being added
  // or taken back.
  bool may_give(const Phase& phase) const;
  // From here on nothing is added, and what list() says of it is in doubt: another may have it.
  void give(const Phase& phase);
  void keep(const Phase& phase);  // it was not given after all
  bool gives(const Phase& phase) const;
  // What another has added is on its way: none of it is added here. False: one of these is here.
  bool expect(const Phase& phase, const List& others);
  void expect_no_more(const Phase& phase, const List& others);
  void adopt(const Phase& phase, const List& others);  // expected: it is in the accumulator now

  void unreserve_all(const Phase& phase);  // its tasks were dropped, and none is on the device
  void forget(const Phase& phase);         // the accumulator was emptied
  void retire(const Phase& phase);
  std::uint32_t count(const Phase& phase) const;  // contributions now in the accumulator
  // What is in the accumulator and stays there, as far as this peer knows.
  void list(wire::PhaseHoldings& holdings) const;
  void list_unacknowledged(std::set<MicrobatchId>& all) const;
  std::size_t size() const;  // entries
  void check_invariants() const;

 private:
  enum class CellState : std::uint8_t { kReserved, kAdded, kLeaving, kExpected };
  struct Cell {
    CellState state = CellState::kReserved;
    Attempt attempt;
    double loss_sum = 0;
  };
  struct Book {
    std::map<std::uint32_t, Cell> cells;
    std::map<std::uint32_t, TaskPtr> unacknowledged;
    int subtracting = 0;
    bool frozen = false;
    bool gives = false;
    std::function<void()> on_quiet;
  };
  void report(const TaskPtr& task);
  void flush();
  void take_back(const Phase& phase, std::uint32_t index);
  static void drop_cells(Book& book, CellState state);

  StageContext& context_;
  Subtract subtract_;
  std::map<Phase, Book> books_;
  std::map<Phase, wire::Report> pending_;
  bool flush_armed_ = false;
  CallbackGuard guard_;
};

}  // namespace swarmline
