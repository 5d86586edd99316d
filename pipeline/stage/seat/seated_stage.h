// A peer that has its seat: phases open, microbatches flow, the phase is sealed, averaged,
// committed, again. Before that a joiner, which fetches the stage's state and follows the commits
// since; a shadow is a joiner with a model that computes nothing (ArenaModel), and stays one.
//   What:      composes the parts of a stage and hands each message and event to the part that it
//              concerns; what one part has done is told to the next by their hooks, here.
//   Order:     what the coordinator says of phases is done in its order; while a seal settles or a
//              commit waits for a gradient that must be fetched, what follows waits.
//   Ownership: owns everything of the stage but the doors and the links.
//   Thread:    control thread. Errors: `fail` of the context ends the peer.
//   Bounds:    those of the parts.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "base/line_rate.h"
#include "pipeline/protocol/insight.h"
#include "pipeline/source/microbatch_source.h"
#include "pipeline/stage/common/phase_book.h"
#include "pipeline/stage/common/rosters.h"
#include "pipeline/stage/common/stage_context.h"
#include "pipeline/stage/common/stage_jobs.h"
#include "pipeline/stage/data/data_fetch.h"
#include "pipeline/stage/data/data_serve.h"
#include "pipeline/stage/gradients/commit_queue.h"
#include "pipeline/stage/gradients/gradient_exchange.h"
#include "pipeline/stage/microbatches/contributions.h"
#include "pipeline/stage/microbatches/microbatch_flow.h"
#include "pipeline/stage/phases/coordinator_inbox.h"
#include "pipeline/stage/phases/lease_intake.h"
#include "pipeline/stage/phases/phase_runner.h"
#include "pipeline/stage/phases/sum_hand_over.h"
#include "pipeline/stage/state/frozen_state.h"
#include "pipeline/stage/state/kept_state.h"
#include "pipeline/stage/state/stage_save.h"
#include "pipeline/stage/state/state_exchange.h"
#include "pipeline/wiring/wiring.h"

namespace swarmline {

class SeatedStage;

struct SeatedStageParts {
  RunConfig config;
  ModelSpec spec;
  StageSpec stage;
  Seat self;
  Term term;
  Era era;
  std::unique_ptr<StageModel> model;
  std::unique_ptr<ParameterState> state;  // of that model; empty: takes its memory as it needs it
  std::unique_ptr<MicrobatchSource> source;  // stage 0 only
  std::unique_ptr<Wiring> wiring;            // empty: what the config says
  std::uint64_t admit_bytes = 0;
  bool recompute = false;
  bool joining = false;  // the run has started: its state is to be fetched
  bool shadow = false;   // its peer serves another stage over the same link
  Version version;       // of the checkpoint that the era begins with; 0: the seed's parameters
  std::shared_ptr<SeatedStage>
      heritage;                     // this peer's shadow of the stage: its state is taken over
  std::shared_ptr<KeptState> kept;  // of an earlier seat at this stage
  std::function<void(Frame)> notify_coordinator;
  std::function<void(Frame, std::function<void(Result<Frame>)>)> call_coordinator;
  PartFolder* part_folder = nullptr;
  Fabric* fabric = nullptr;
  DataFolder* data_folder = nullptr;              // null: it neither gives nor fetches data
  std::shared_ptr<const DataPieces> data_pieces;  // of the run's data; null: nobody knows
  bool serves_data = false;
  bool fetches_data = false;
  Registry* metrics = nullptr;
  std::function<void(Error)> fail;
};

class SeatedStage {
 public:
  SeatedStage(Runtime& runtime, DeviceQueue& queue, PeerLinks& links, SeatedStageParts parts);

  // Digests the initial state and says Ready; a source asks for its first leases. A joiner asks for
  // its stage's state; in an era from a checkpoint everybody gets that from the coordinator.
  void begin();
  void stop() { flow_.stop(); }  // its process ends
  Result<void> on_coordinator(const Frame& frame);
  Result<void> on_peer(const Seat& from, const Frame& frame);
  void on_link_lost(const Seat& peer, const Error& error);
  void on_peer_lost(const Seat& lost);
  // No coordinator answers; from now on nothing that the last one began goes on.
  void on_coordinator_lost();
  // What this peer says to the next one of what it holds.
  wire::Holdings holdings() const;
  void on_arriving(const Seat& from, const Arrival& arrival) { flow_.on_arriving(from, arrival); }
  void on_link_replaced(const Seat& from) { flow_.on_link_replaced(from); }
  void on_link_news(const Seat& peer, LinkNews news) { flow_.on_link_news(peer, news); }

  bool serves() const { return !commits_.following(); }
  StageId stage() const { return context_.stage.stage; }
  const Seat& self() const { return context_.self; }  // a shadow: its name
  Version committed() const { return commits_.committed(); }
  std::uint64_t state_bytes() const { return state_->saved_bytes(); }
  // With the parameters alone: what it holds of its stage nobody could go on with.
  bool serves_early() const { return commits_.early(); }
  bool has_state() const { return states_.here() && commits_.committed().value > 0; }
  // All versions that are in use: with a delay the one before the committed, too.
  bool has_all_in_use() const { return has_state() && follows_all_in_use(); }
  // A joiner that has said it is ready serves its stage as soon as the coordinator knows that; with
  // version 0, too.
  bool may_have_its_seat() const {
    return (serves() && !serves_early()) || (states_.here() && follows_all_in_use());
  }
  // [device] Nothing else may be under way. Version 0 is not kept: everybody has it.
  Result<std::shared_ptr<KeptState>> keep();
  // Nothing more comes of it. Jobs of its own may still be on the device: it must outlive them.
  void silence();
  // [device]
  Result<BytesView> committed_parameters() { return state_->committed_parameters(); }
  const ParameterLayout& layout() const { return model_->layout(); }
  std::uint32_t in_flight() const {
    return flow_.in_flight() + static_cast<std::uint32_t>(leases_.held().size());
  }
  std::optional<wire::DataProgress> data_progress() const { return data_fetch_.progress(); }
  void check_invariants() const;
  // For the simulator's oracles.
  void list_tries(std::set<MicrobatchId>& all) const;
  void list_sizes(std::vector<NamedSize>& all) const;

 private:
  bool follows_all_in_use() const { return commits_.reached().version == commits_.committed(); }
  Result<void> in_order(const Frame& frame);
  Result<void> follow(const wire::Commit& commit);
  bool busy() const { return runner_.settling() || !commits_.empty(); }
  void drain_inbox();
  Result<void> on_membership(const wire::Membership& membership);
  void set_candidates(const wire::Membership& membership);
  void set_mates();
  Result<void> on_seal_arrived(const Frame& frame);
  Result<void> when_its_turn_comes(const Frame& frame);
  Result<void> on_open(const wire::OpenPhase& open);
  Result<void> on_fetch(const wire::FetchReduced& message);
  Result<void> on_resume();
  bool holds(const wire::BlobId& blob) const;
  BytesView held(const wire::BlobId& blob);
  bool may_ask(const Seat& from, const wire::PieceRequest& request) const;
  Result<void> on_piece_request(const Seat& from, const wire::PieceRequest& request);
  Result<void> on_piece(const Seat& from, const Frame& frame);
  void make_initial_state();
  void inherit();
  void begin_at(Version version);
  void on_parameters_here(Version version);
  std::size_t pieces_at_a_time() const;
  void on_state_here(Version version, std::uint64_t digest, StateOrigin origin, bool all_in_use);

  RunConfig config_;
  ModelSpec spec_;
  std::unique_ptr<StageModel> model_;
  std::unique_ptr<ParameterState> state_;
  StageContext context_;
  StageJobs jobs_;
  Rosters rosters_;
  PhaseBook phases_;
  DataServe data_serve_;
  DataFetch data_fetch_;
  LeaseIntake leases_;
  Contributions contributions_;
  MicrobatchFlow flow_;
  GradientExchange gradients_;
  CommitQueue commits_;
  StateExchange states_;
  FrozenState frozen_;
  StageSave save_;
  SumHandOver hand_over_;
  PhaseRunner runner_;
  CoordinatorInbox inbox_;
  Version begins_with_;                    // a checkpoint's; 0: none
  std::shared_ptr<SeatedStage> heritage_;  // until its state is here
  LineRate lost_link_lines_;
};

}  // namespace swarmline
