// The parts of one reign, in the order of who knows whom: each is made with those above it alone.
//   What:      the composition and nothing else. Larger than other classes because it is the list.
//   Ownership: what it is made with outlives it; parts go in the opposite order.
//   Thread:    control thread.
#pragma once

#include <array>
#include <functional>

#include "pipeline/coordinator/members/arrivals.h"
#include "pipeline/coordinator/members/audience.h"
#include "pipeline/coordinator/members/balance_desk.h"
#include "pipeline/coordinator/members/data_desk.h"
#include "pipeline/coordinator/members/data_holders.h"
#include "pipeline/coordinator/members/failure_detector.h"
#include "pipeline/coordinator/members/first_bits.h"
#include "pipeline/coordinator/members/gathering.h"
#include "pipeline/coordinator/members/link_probe.h"
#include "pipeline/coordinator/members/link_trial.h"
#include "pipeline/coordinator/members/membership.h"
#include "pipeline/coordinator/members/outbox.h"
#include "pipeline/coordinator/members/reach_desk.h"
#include "pipeline/coordinator/members/refusals.h"
#include "pipeline/coordinator/members/relay_desk.h"
#include "pipeline/coordinator/members/relocation.h"
#include "pipeline/coordinator/members/session_table.h"
#include "pipeline/coordinator/members/vigil.h"
#include "pipeline/coordinator/run/alarms.h"
#include "pipeline/coordinator/run/coordinator_options.h"
#include "pipeline/coordinator/run/cost_meter.h"
#include "pipeline/coordinator/run/era_beginning.h"
#include "pipeline/coordinator/run/event_log.h"
#include "pipeline/coordinator/run/recovery.h"
#include "pipeline/coordinator/run/resumption.h"
#include "pipeline/coordinator/run/rulings.h"
#include "pipeline/coordinator/run/run_identity.h"
#include "pipeline/coordinator/run/run_journal.h"
#include "pipeline/coordinator/run/run_lifecycle.h"
#include "pipeline/coordinator/run/run_sequence.h"
#include "pipeline/coordinator/run/run_shape.h"
#include "pipeline/coordinator/run/run_stats.h"
#include "pipeline/coordinator/run/segments.h"
#include "pipeline/coordinator/run/status_report.h"
#include "pipeline/coordinator/states/checkpointer.h"
#include "pipeline/coordinator/states/kept_heirs.h"
#include "pipeline/coordinator/states/standby_replicas.h"
#include "pipeline/coordinator/states/state_transfer.h"
#include "pipeline/coordinator/states/takeovers.h"
#include "pipeline/coordinator/steps/boundary_board.h"
#include "pipeline/coordinator/steps/commit_round.h"
#include "pipeline/coordinator/steps/committer.h"
#include "pipeline/coordinator/steps/leases.h"
#include "pipeline/coordinator/steps/open_phases.h"
#include "pipeline/coordinator/steps/replica_audit.h"
#include "pipeline/coordinator/steps/report_intake.h"
#include "pipeline/coordinator/steps/straggler_detector.h"
#include "pipeline/coordinator/steps/sum_hand_overs.h"
#include "pipeline/ledger/ledger.h"

namespace swarmline {

SequenceOptions sequence_from(const CoordinatorOptions& options, std::uint64_t version);

struct CoordinatorParts {
  struct Doors {
    Runtime& runtime;
    Network& network;
    AsyncJournal& journal;
    CheckpointSink& sink;
  };
  struct Questions {  // that only the whole can answer
    std::function<void()> settle;
    std::function<bool()> may_begin_again;
    std::function<bool(const Seat&)> cut_off;
    std::function<Duration()> patience;  // with those who alone hold a stage's state
  };
  CoordinatorParts(const Doors& doors, const CoordinatorOptions& options, Questions questions);

  void check_invariants() const;
  StatusSources status_sources() const;

  // ---- The run, and how parts speak ----
  const RunShape shape;
  RunIdentity identity;
  RunSegments segments;
  JournalWriter writer;
  RunJournal journal;
  EventLog events;
  Alarms alarms;
  Rulings rulings;
  Refusals refusals;
  RunLifecycle life;
  SessionTable sessions;
  Outbox outbox;
  // ---- Pure ----
  DataDesk data;
  Membership members;
  FailureDetector detector;
  RunSequence sequence;
  Ledger ledger;
  BoundaryBoard boundaries;
  RunStats stats;
  CostMeter cost;
  BalanceDesk balancer;
  ReplicaAudit audit;
  ShadowDesk shadows;
  DataHolders data_holders;
  // ---- Steps ----
  Audience audience;
  OpenPhases phases;
  Leases leases;
  ReportIntake intake;
  SumHandOvers hand_overs;
  StragglerDetector stragglers;
  LinkProbe probe;
  CommitRound round;
  // ---- States ----
  StateTransfer states;
  StandbyReplicas standbys;
  Takeovers takeovers;
  KeptHeirs kept_heirs;
  Checkpointer checkpointer;
  Committer committer;
  // ---- Who comes, goes, and comes back ----
  Relocation relocation;
  EraBeginning beginning;
  Gathering gathering;
  FirstBits first_bits;
  Recovery recovery;
  Resumption resumption;
  Vigil vigil;
  RelayDesk relays;
  ReachDesk reach;
  LinkTrial trial;
  Arrivals arrivals;

  // Who hears of a lost seat, a rollback, a commit, a phase that is over; in this order.
  const std::array<RunObserver*, 16> observers;
};

}  // namespace swarmline
