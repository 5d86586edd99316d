// What parts of a coordinator are made with, without a coordinator and without a network: a virtual
// clock, a journal in memory, peers whose channels keep what is said to them.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "pipeline/coordinator/members/audience.h"
#include "pipeline/coordinator/members/failure_detector.h"
#include "pipeline/coordinator/members/link_probe.h"
#include "pipeline/coordinator/members/membership.h"
#include "pipeline/coordinator/members/outbox.h"
#include "pipeline/coordinator/run/alarms.h"
#include "pipeline/coordinator/run/event_log.h"
#include "pipeline/coordinator/run/recovery.h"
#include "pipeline/coordinator/run/rulings.h"
#include "pipeline/coordinator/run/run_journal.h"
#include "pipeline/coordinator/run/run_lifecycle.h"
#include "pipeline/coordinator/run/run_shape.h"
#include "pipeline/coordinator/states/shadow_desk.h"
#include "pipeline/coordinator/steps/commit_round.h"
#include "pipeline/coordinator/steps/leases.h"
#include "pipeline/coordinator/steps/open_phases.h"
#include "pipeline/ledger/ledger.h"
#include "sim/doors/sim_control_store.h"
#include "sim/doors/sim_network.h"
#include "sim/doors/sim_runtime.h"
#include "tests/coordinator/fake_session.h"

namespace swarmline {

inline CoordinatorOptions bench_options(std::uint32_t stages, std::uint32_t microbatches) {
  CoordinatorOptions options;
  RunConfig& config = options.config;
  config.run.steps = 4;
  config.model.layers = 4;
  config.model.d_model = 8;
  config.model.heads = 2;
  config.model.tied_embeddings = false;  // each stage is one group
  config.data.files = {"synthetic"};
  config.batch = {.batch = microbatches, .microbatch = 1, .sequence = 4};
  config.pipeline.stages = stages;
  config.pipeline.peers.assign(stages, 1);
  options.model = *resolve_model(config, 31);
  options.run_id = "run";
  options.config_toml = "the config";
  options.certify = [](const std::string& run_id, const Seat& seat, const KeyHash& key) {
    return run_id + ", " + to_string(seat) + ", " + to_string(key);
  };
  options.certify_anew = [](const std::string& run_id, const Seat& seat, const KeyHash&) {
    return "anew in " + run_id + ", " + to_string(seat);
  };
  return options;
}

struct PartsBench {
  explicit PartsBench(std::uint32_t stages = 2, std::uint32_t microbatches = 4)
      : PartsBench(bench_options(stages, microbatches)) {}
  explicit PartsBench(CoordinatorOptions made_with) : options(std::move(made_with)) {}

  // A member that serves its stage. `bandwidth`, `host`: that it says it has, and is on.
  Seat seated(std::uint16_t stage, double bandwidth = 0, const std::string& host = {}) {
    wire::Hello hello;
    hello.set_bandwidth(bandwidth);
    hello.set_host(host);
    hello.set_address("host:" + std::to_string(peers.size() + 1));
    const Seat seat = *members.join(hello, StageId{stage});
    members.become(seat.peer, MemberState::kReady);
    detector.watch(seat, alarms.now());
    FakeSession& fake = peers[seat];
    sessions.add(fake.session);
    sessions.seat(fake.session, seat);
    return seat;
  }
  // As the coordinator ends a seat, but for the observers.
  SeatLoss lost(const Seat& seat) {
    members.fence(seat);
    sessions.unseat(seat.peer);
    return {.seat = seat, .why = "lost", .how = Departure::kLost};
  }
  // As the end of settling.
  void flush() {
    writer.flush();
    outbox.flush();
  }
  // Messages of that kind that the peer has been told, in order.
  template <typename Message>
  std::vector<Message> told(const Seat& seat, MessageKind kind) {
    flush();
    std::vector<Message> messages;
    for (const Frame& frame : peers.at(seat).channel->said)
      if (kind_of(frame) == kind) messages.push_back(*parse<Message>(frame));
    return messages;
  }
  std::size_t count(const Seat& seat, MessageKind kind) {
    flush();
    std::size_t count = 0;
    for (const Frame& frame : peers.at(seat).channel->said) count += kind_of(frame) == kind;
    return count;
  }
  void open_step(std::uint64_t step) {
    const Phase phase{PhaseKind::kTrain, step};
    phases.open({.phase = phase, .version = Version{step}}, Term{1}, {});
    phases.announce(phase);
  }
  // As a member says that it averaged its stage's part of the round's step.
  wire::Reduced reduced(const Seat& seat, std::uint64_t digest, double sum_of_squares = 0) const {
    wire::Reduced said;
    *said.mutable_seat() = to_wire(seat);
    said.mutable_phase()->set_step(round.board().step());
    said.set_group(seat.stage.value);
    said.set_attempt(round.board().attempt(GroupId{seat.stage.value}).value);
    said.set_digest(digest);
    said.set_sum_of_squares(sum_of_squares);
    return said;
  }
  // Every index of the step is owned: by the first peer of each stage.
  void complete_step(std::uint64_t step) {
    const Phase phase{PhaseKind::kTrain, step};
    const Seat source = members.ready_of(StageId{0}).front();
    ledger.lease(phase, source, ledger.indices(phase));
    for (const StageSpec& stage : shape.stages)
      for (std::uint32_t index = 0; index < ledger.indices(phase); ++index)
        ledger.report(phase, stage.stage, index, members.ready_of(stage.stage).front(), Attempt{});
  }

  std::unique_ptr<ControlStore> led() {
    std::unique_ptr<ControlStore> opened = lead.open(0);
    opened->try_lead("bench").value();
    return opened;
  }

  const CoordinatorOptions options;
  SimRuntime clock{1};
  SimJournal store{clock};
  SimLead lead{clock, store};  // expire(): another process leads, and the journal is refused
  std::unique_ptr<ControlStore> leader = led();
  const RunShape shape{options};
  JournalWriter writer{clock.node(0), **leader->journal(), [] {}};
  RunJournal journal{writer};
  EventLog events{clock.node(0), journal, {}};
  std::size_t settled = 0;
  Alarms alarms{clock.node(0), [this] { ++settled; }};
  Rulings rulings;
  RunLifecycle life;
  std::map<Seat, FakeSession> peers;
  SessionTable sessions;
  Outbox outbox{sessions, journal.progress()};
  Membership members{options.config.pipeline.peers};
  FailureDetector detector{options.config.net, options.config.wiring.hop_timeout_seconds};
  Ledger ledger;
  ShadowDesk shadows;
  Audience audience{sessions, members, outbox};
  OpenPhases phases{shape, ledger, audience, outbox};
  Leases leases{shape, alarms, ledger, phases, members, outbox};
  SimNetwork network{clock, {}};
  LinkProbe probe{network.node(0), alarms, members, rulings, [] { return true; }};
  CommitRound round{{.shape = shape,
                     .alarms = alarms,
                     .detector = detector,
                     .members = members,
                     .probe = probe,
                     .shadows = shadows,
                     .ledger = ledger,
                     .phases = phases,
                     .leases = leases,
                     .outbox = outbox,
                     .events = events,
                     .rulings = rulings},
                    [this] { return round_patience; }};
  Duration round_patience{};
  Duration recovery_patience{};
  Recovery recovery{{.shape = shape,
                     .alarms = alarms,
                     .detector = detector,
                     .sessions = sessions,
                     .members = members,
                     .probe = probe,
                     .outbox = outbox,
                     .events = events},
                    [this] { return recovery_patience; }};
};

}  // namespace swarmline
