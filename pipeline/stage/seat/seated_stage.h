// A peer that has its seat: phases open, microbatches flow, the phase is sealed, averaged,
// committed, again. Before that a joiner, which fetches the stage's state and follows the commits
// since; a shadow is a joiner with a model that computes nothing (ArenaModel), and stays one.
//   Order:     what the coordinator says of phases is done in its order; while a seal settles or a
//              commit waits for a gradient that must be fetched, what follows waits.
//   Ownership: owns everything of the stage but the doors and the links.
//   Thread:    control thread. Errors: `fail` of the context ends the peer.
//   Bounds:    kInboxMax messages waiting; kRetainedSteps reduced gradients kept for others.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "pipeline/averaging/averaging_codecs.h"
#include "pipeline/averaging/stage_averager.h"
#include "pipeline/protocol/group_plan.h"
#include "pipeline/source/lease_window.h"
#include "pipeline/source/microbatch_source.h"
#include "pipeline/stage/common/phase_book.h"
#include "pipeline/stage/common/piece_fetch.h"
#include "pipeline/stage/common/stage_context.h"
#include "pipeline/stage/microbatches/contributions.h"
#include "pipeline/stage/microbatches/microbatch_flow.h"
#include "pipeline/wiring/wiring.h"

namespace swarmline {

class SeatedStage;

// What a peer keeps of a seat that it lost, in host memory: were nothing committed until it has the
// next one at that stage, nothing need be fetched.
struct KeptState {
  StageId stage;
  Era era;
  Version version;
  Buffer bytes;  // as ParameterState freezes it

  BytesView piece(std::size_t index) const;
};

struct SeatedStageParts {
  RunConfig config;
  ModelSpec spec;
  StageSpec stage;
  Seat self;
  Term term;
  Era era;
  std::unique_ptr<StageModel> model;
  std::unique_ptr<MicrobatchSource> source;  // stage 0 only
  std::unique_ptr<Wiring> wiring;            // empty: what the config says
  std::uint64_t admit_bytes = 0;
  bool recompute = false;
  bool joining = false;  // the run has started: its state is to be fetched
  bool shadow = false;   // its peer serves another stage over the same link
  std::uint64_t version =
      0;  // of the checkpoint that the era begins with; 0: the seed's parameters
  std::shared_ptr<SeatedStage>
      heritage;                     // this peer's shadow of the stage: its state is taken over
  std::shared_ptr<KeptState> kept;  // of an earlier seat at this stage
  std::function<void(Frame)> notify_coordinator;
  std::function<void(Frame, std::function<void(Result<Frame>)>)> call_coordinator;
  Registry* metrics = nullptr;
  std::function<void(Error)> fail;
};

class SeatedStage {
 public:
  static constexpr std::size_t kInboxMax = 4096;
  static constexpr std::uint64_t kRetainedSteps = 4;
  static constexpr std::size_t kFollowedCommitsMax = 64;  // commits behind; then a newer state

  SeatedStage(Runtime& runtime, DeviceQueue& queue, PeerLinks& links, SeatedStageParts parts);

  // Digests the initial state and says Ready; a source asks for its first leases. A joiner asks for
  // its stage's state; in an era from a checkpoint everybody gets that from the coordinator.
  void begin();
  void stop() { flow_.stop(); }  // its process ends
  Result<void> on_coordinator(const Frame& frame);
  Result<void> on_peer(const Seat& from, Frame frame);
  void on_link_lost(const Seat& peer, const Error& error);
  void on_peer_lost(const Seat& lost);
  // No coordinator answers; from now on nothing that the last one began goes on.
  void on_coordinator_lost();
  wire::Holdings holdings() const;
  void on_arriving(const Seat& from, const Arrival& arrival) { flow_.on_arriving(from, arrival); }

  bool serves() const { return !following_; }
  StageId stage() const { return context_.stage.stage; }
  Version committed() const { return committed_; }
  bool holds(const wire::BlobId& blob) const;
  std::uint64_t state_bytes() const { return state_.frozen_bytes(); }
  bool has_state() const { return loaded_ && committed_.value > 0; }
  // [device] Nothing else may be under way. Version 0 is not kept: everybody has it.
  Result<std::shared_ptr<KeptState>> keep() const;
  // Nothing more comes of it. Jobs of its own may still be on the device: it must outlive them.
  void silence() { alive_.reset(); }
  BytesView committed_parameters() const { return state_.committed_parameters(); }
  const ParameterLayout& layout() const { return model_->layout(); }
  std::uint32_t in_flight() const { return flow_.in_flight(); }

 private:
  Result<void> on_membership(const wire::Membership& membership);
  Result<void> on_open(const wire::OpenPhase& open);
  // seated_resume.cc
  Result<void> on_resume();
  Result<void> open_again(const wire::OpenPhase& open);
  void name_attempts(wire::Commit& commit) const;
  Result<void> on_leases(const wire::Leases& leases);
  Result<void> on_seal(const wire::Seal& seal);
  Result<void> on_reopen(const wire::Reopen& reopen);
  Result<void> on_fetch(const wire::FetchReduced& fetch);
  Result<void> on_commit(const wire::Commit& commit);
  Result<void> on_save(const wire::SaveStage& save);
  Result<void> in_order(const Frame& frame);
  bool busy() const { return sealing_ || !commits_.empty(); }
  void drain_inbox();
  void activate(const Phase& phase);
  void want_leases();

  // seated_reduce.cc
  struct Region {  // of the arena, in bytes
    std::uint64_t first = 0;
    std::uint64_t size = 0;
  };
  struct ReducedFetch {
    PieceFetch pieces;
    std::set<Seat> named = {};  // by the coordinator, or mates
    std::uint64_t digest = 0;
    std::uint64_t size = 0;
    bool report = false;  // the coordinator waits for it
    std::uint32_t tries = 0;
    bool waiting = false;  // nobody has it now
  };
  // seated_state.cc
  struct FrozenState {
    std::uint64_t version = 0;
    SharedBytes bytes;
    std::vector<std::string> hashes;
  };
  struct StateFetch {
    std::uint64_t version = 0;
    PieceFetch pieces;
    bool waiting = false;             // nobody has it now
    bool saved = false;               // of a checkpoint
    std::uint32_t damaged_times = 0;  // in a row: what nobody sent whole was waited for
    Instant asked{};                  // the newest piece
    bool resting = false;
    bool comparing = false;  // what was kept with what is offered
  };
  Result<void> on_freeze(const wire::FreezeState& freeze);
  void hash_next(const std::shared_ptr<FrozenState>& frozen);
  void expire_frozen();
  void want_state();
  void fetch_saved(std::uint64_t version);
  Result<void> on_offer(const wire::StateOffer& offer);
  void pump_state();
  void rest_and_pump_state();
  void on_state_piece(const Seat& from, const wire::Piece& piece, BytesView bytes);
  void compare_kept(const std::shared_ptr<KeptState>& kept,
                    const std::shared_ptr<const std::vector<std::string>>& hashes,
                    std::size_t piece);
  void load_state(Buffer state);
  void inherit();
  void state_is_here(Version version);
  void say_ready(std::uint64_t digest);
  Result<void> follow(const wire::Commit& commit);
  std::vector<Seat> mates() const;

  Region region_of(GroupId group) const;
  bool has_group(GroupId group) const;
  void settled(const wire::Seal& seal, const std::vector<std::uint32_t>& missing);
  void sealed(const wire::Seal& seal);
  void start_round(const Phase& phase, const wire::ReduceGroup& group);
  void reduced(const RoundKey& key, std::uint64_t bytes_sent);
  void report_reduced(const RoundKey& key, std::uint64_t bytes_sent,
                      std::shared_ptr<wire::Reduced> message);
  void advance_commits();
  void apply(const wire::Commit& commit);
  void on_bad_chunk(const Seat& from, const Error& error);
  void fetch(const RoundKey& key, std::uint64_t digest, const std::vector<Seat>& holders,
             bool report);
  void pump_fetch(const RoundKey& key);
  void wait_for_holder(const RoundKey& key);
  void fetched(const RoundKey& key);
  void use_fetched(const RoundKey& key);
  Result<void> on_piece_request(const Seat& from, const wire::PieceRequest& request);
  Result<void> on_piece(const Seat& from, const Frame& frame);
  BytesView reduced_bytes(const RoundKey& key) const;

  void control(std::function<Result<void>()> body, std::function<void()> done);
  std::unique_ptr<Wiring> make_wiring() const;

  RunConfig config_;
  ModelSpec spec_;
  std::unique_ptr<StageModel> model_;
  std::unique_ptr<MicrobatchSource> source_;
  ParameterState state_;
  GroupPlan groups_;
  StageContext context_;
  PhaseBook phases_;
  Contributions contributions_;
  MicrobatchFlow flow_;
  StageAverager averager_;
  AveragingCodecs averaging_codecs_;
  LeaseWindow window_;

  std::uint64_t wanted_ = 0;
  std::uint64_t leased_ = 0;
  Version committed_;
  struct Reached {  // the newest version whose digest is known
    std::uint64_t version = 0;
    std::uint64_t digest = 0;
  } reached_;
  std::uint32_t reign_ = 0;        // counts coordinators; what an earlier one began is void
  std::set<Phase> opened_before_;  // by an earlier one, and not yet by this one
  std::uint64_t begins_with_ = 0;
  bool sealing_ = false;
  Phase sealing_phase_;
  bool following_ = false;  // it has no seat yet
  const bool shadow_;
  bool loaded_ = true;  // the state is here
  bool loading_ = false;
  std::shared_ptr<SeatedStage> heritage_;  // until its state is here
  std::unique_ptr<StateFetch> state_fetch_;
  std::shared_ptr<KeptState> kept_;      // until a state is offered
  std::shared_ptr<FrozenState> frozen_;  // for others
  Instant frozen_used_{};
  std::deque<Frame> inbox_;
  std::deque<wire::Commit> commits_;               // heard of, not applied
  std::map<RoundKey, std::uint64_t> digests_;      // of what is in state_.reduced()
  std::map<RoundKey, ReducedFetch> fetches_;       // under way
  std::map<RoundKey, Buffer> fetched_;             // checked, until their turn
  std::set<RoundKey> placing_;                     // on their way from there into state_.reduced()
  std::map<std::uint64_t, SharedBytes> retained_;  // reduced gradients of commits, by step
  std::map<RoundKey, std::uint64_t> retained_keys_;  // what is in retained_, and its digest
  std::map<PeerId, Seat> mates_;                     // who serves the stage, too
  std::shared_ptr<SeatedStage*> alive_;
};

}  // namespace swarmline
