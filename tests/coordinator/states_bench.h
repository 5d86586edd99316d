// What parts are made with that stand on steps and members: states, shadows, takeovers,
// checkpoints and moves, over a PartsBench.
#pragma once

#include <string>

#include "pipeline/coordinator/members/balance_desk.h"
#include "pipeline/coordinator/members/relocation.h"
#include "pipeline/coordinator/run/run_identity.h"
#include "pipeline/coordinator/run/run_stats.h"
#include "pipeline/coordinator/states/checkpointer.h"
#include "pipeline/coordinator/states/kept_heirs.h"
#include "pipeline/coordinator/states/standby_replicas.h"
#include "pipeline/coordinator/states/state_transfer.h"
#include "pipeline/coordinator/states/takeovers.h"
#include "tests/coordinator/fake_sink.h"
#include "tests/coordinator/parts_bench.h"

namespace swarmline {

struct StatesBench : PartsBench {
  using PartsBench::PartsBench;

  // After `commits` committed steps.
  void committed(std::uint64_t commits) { sequence.restore(commits, false, commits); }
  // A shadow of `stage` on the host, ready with the committed version.
  Seat ready_shadow(const Seat& host, std::uint16_t stage, std::uint64_t digest) {
    standbys.add(host, StageId{stage}, "test");
    const Seat shadow{host.peer, StageId{stage}, host.incarnation};
    standbys.on_want_state(shadow);
    states.freeze();
    standbys.on_ready(shadow, sequence.committed(), digest);
    check_shadows();
    return shadow;
  }
  void check_shadows() {
    standbys.check([this](StageId stage) { return members.count_ready(stage); });
  }

  RunSequence sequence{SequenceOptions{.steps = 100}};
  ReplicaAudit audit;
  RunStats stats{static_cast<std::uint32_t>(shape.stages.size())};
  BalanceDesk balancer{options.config, options.model, shape.stages};
  StateTransfer states{shape, alarms, detector, members, shadows, sequence, outbox};
  StandbyReplicas standbys{{.alarms = alarms,
                            .sequence = sequence,
                            .shadows = shadows,
                            .audit = audit,
                            .states = states,
                            .round = round,
                            .balancer = balancer,
                            .outbox = outbox,
                            .events = events,
                            .rulings = rulings}};
  Duration patience = std::chrono::seconds(30);
  Takeovers takeovers{{.alarms = alarms,
                       .sequence = sequence,
                       .members = members,
                       .shadows = shadows,
                       .standbys = standbys,
                       .round = round,
                       .probe = probe,
                       .events = events,
                       .rulings = rulings},
                      [this] { return patience; }};
  KeptHeirs kept_heirs{{.alarms = alarms,
                        .sequence = sequence,
                        .members = members,
                        .shadows = shadows,
                        .states = states,
                        .takeovers = takeovers,
                        .probe = probe,
                        .events = events,
                        .rulings = rulings},
                       [this] { return patience; }};
  RunIdentity run_identity;
  FakeSink sink;
  Checkpointer checkpointer{{.shape = shape,
                             .identity = run_identity,
                             .alarms = alarms,
                             .sink = sink,
                             .journal = journal,
                             .detector = detector,
                             .members = members,
                             .outbox = outbox,
                             .events = events,
                             .rulings = rulings}};
  Relocation relocation{{.shape = shape,
                         .alarms = alarms,
                         .members = members,
                         .balancer = balancer,
                         .ledger = ledger,
                         .round = round,
                         .stats = stats,
                         .checkpointer = checkpointer,
                         .shadows = shadows,
                         .standbys = standbys,
                         .takeovers = takeovers,
                         .kept_heirs = kept_heirs,
                         .events = events,
                         .rulings = rulings}};
};

}  // namespace swarmline
