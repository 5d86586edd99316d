#include "pipeline/coordinator/coordinator_parts.h"

#include <utility>

namespace swarmline {

SequenceOptions sequence_from(const CoordinatorOptions& options, std::uint64_t version) {
  return {.steps = options.config.run.steps,
          .delay = options.config.pipeline.delay,
          .eval_every_steps = options.config.eval.every_steps,
          .eval = options.eval_sequences > 0,
          .begin = version};
}

CoordinatorParts::CoordinatorParts(const Doors& doors, const CoordinatorOptions& options,
                                   Questions questions)
    : shape(options),
      identity{.run_id = options.run_id},
      writer(doors.runtime, doors.journal, questions.settle),
      journal(writer),
      events(doors.runtime, journal, options.log_line),
      alarms(doors.runtime, std::move(questions.settle)),
      outbox(sessions, journal.progress()),
      members(options.config.pipeline.peers, shape.layouts.front().has_tied()),
      detector(options.config.net, options.config.wiring.hop_timeout_seconds),
      sequence(sequence_from(options, 0)),
      boundaries(options.config, std::uint64_t{options.config.batch.microbatch} *
                                     options.config.batch.sequence * options.model.hidden_width()),
      stats(options.config.pipeline.stages),
      balancer(options.config, options.model, shape.stages),
      audience(sessions, members, outbox),
      phases(shape, ledger, audience, outbox),
      leases(ledger, phases, members, outbox),
      intake(shape, ledger, leases, members, outbox, rulings),
      stragglers(shape, alarms, life, ledger, phases, leases, stats),
      round({.shape = shape,
             .alarms = alarms,
             .detector = detector,
             .members = members,
             .shadows = shadows,
             .ledger = ledger,
             .phases = phases,
             .leases = leases,
             .outbox = outbox,
             .events = events,
             .rulings = rulings}),
      states(shape, alarms, detector, members, shadows, sequence, outbox),
      standbys({.alarms = alarms,
                .sequence = sequence,
                .shadows = shadows,
                .audit = audit,
                .states = states,
                .round = round,
                .balancer = balancer,
                .outbox = outbox,
                .events = events,
                .rulings = rulings}),
      takeovers({.alarms = alarms,
                 .sequence = sequence,
                 .members = members,
                 .shadows = shadows,
                 .standbys = standbys,
                 .round = round,
                 .events = events,
                 .rulings = rulings}),
      checkpointer({.shape = shape,
                    .identity = identity,
                    .alarms = alarms,
                    .sink = doors.sink,
                    .journal = journal,
                    .detector = detector,
                    .members = members,
                    .outbox = outbox,
                    .events = events,
                    .rulings = rulings}),
      committer({.shape = shape,
                 .alarms = alarms,
                 .journal = journal,
                 .sessions = sessions,
                 .members = members,
                 .ledger = ledger,
                 .round = round,
                 .states = states,
                 .standbys = standbys,
                 .outbox = outbox,
                 .rulings = rulings}),
      relocation({.shape = shape,
                  .alarms = alarms,
                  .members = members,
                  .balancer = balancer,
                  .ledger = ledger,
                  .round = round,
                  .checkpointer = checkpointer,
                  .shadows = shadows,
                  .standbys = standbys,
                  .takeovers = takeovers,
                  .events = events,
                  .rulings = rulings}),
      beginning(shape, alarms, outbox, rulings),
      probe(doors.network, alarms, members, rulings, std::move(questions.may_begin_again)),
      gathering(shape, alarms, events, members, probe, rulings),
      recovery({.shape = shape,
                .alarms = alarms,
                .detector = detector,
                .sessions = sessions,
                .members = members,
                .probe = probe,
                .outbox = outbox,
                .events = events},
               questions.patience),
      resumption({.shape = shape,
                  .members = members,
                  .ledger = ledger,
                  .phases = phases,
                  .leases = leases,
                  .audit = audit,
                  .outbox = outbox,
                  .rulings = rulings}),
      vigil({.alarms = alarms,
             .detector = detector,
             .members = members,
             .probe = probe,
             .events = events,
             .rulings = rulings},
            {.has_heir =
                 [this](StageId stage) {
                   return takeovers.is_emptied(stage) || takeovers.candidate_for(stage).has_value();
                 },
             .patience = questions.patience}),
      arrivals({.shape = shape,
                .identity = identity,
                .life = life,
                .sequence = sequence,
                .alarms = alarms,
                .journal = journal,
                .sessions = sessions,
                .members = members,
                .detector = detector,
                .recovery = recovery,
                .beginning = beginning,
                .states = states,
                .takeovers = takeovers,
                .relocation = relocation,
                .outbox = outbox,
                .events = events,
                .rulings = rulings},
               std::move(questions.cut_off)),
      observers{&leases,   &audit,        &states, &phases, &standbys,   &gathering,
                &recovery, &checkpointer, &round,  &intake, &stragglers, &vigil} {}

StatusSources CoordinatorParts::status_sources() const {
  return {.shape = shape,
          .identity = identity,
          .life = life,
          .writer = writer,
          .sequence = sequence,
          .stats = stats,
          .sessions = sessions,
          .members = members,
          .shadows = shadows,
          .boundaries = boundaries,
          .checkpointer = checkpointer};
}

void CoordinatorParts::check_invariants() const {
  life.check_invariants();
  sessions.check_invariants();
  members.check_invariants();
  detector.check_invariants();
  ledger.check_invariants();
  audit.check_invariants();
  phases.check_invariants();
  leases.check_invariants();
  round.check_invariants();
  takeovers.check_invariants();
  checkpointer.check_invariants();
  recovery.check_invariants();
}

}  // namespace swarmline
