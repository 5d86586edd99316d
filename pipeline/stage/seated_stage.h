// A peer that has its seat: phases open, microbatches flow, the phase is sealed, averaged,
// committed, again.
//   Ownership: owns everything of the stage but the doors and the links.
//   Thread:    control thread. Errors: `fail` of the context ends the peer.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "pipeline/averaging/averaging_codecs.h"
#include "pipeline/averaging/stage_averager.h"
#include "pipeline/source/lease_window.h"
#include "pipeline/source/microbatch_source.h"
#include "pipeline/stage/contributions.h"
#include "pipeline/stage/microbatch_flow.h"
#include "pipeline/stage/phase_book.h"
#include "pipeline/stage/stage_context.h"
#include "pipeline/wiring/wiring.h"

namespace swarmline {

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
  std::function<void(Frame)> notify_coordinator;
  std::function<void(Frame, std::function<void(Result<Frame>)>)> call_coordinator;
  Registry* metrics = nullptr;
  std::function<void(Error)> fail;
};

class SeatedStage {
 public:
  SeatedStage(Runtime& runtime, DeviceQueue& queue, PeerLinks& links, SeatedStageParts parts);

  // Digests the initial state and says Ready; a source asks for its first leases.
  void begin();
  Result<void> on_coordinator(const Frame& frame);
  Result<void> on_peer(const Seat& from, Frame frame);
  void on_link_lost(const Seat& peer, const Error& error);
  void on_arriving(const Seat& from, const Arrival& arrival) { flow_.on_arriving(from, arrival); }

  BytesView committed_parameters() const { return state_.committed_parameters(); }
  const ParameterLayout& layout() const { return model_->layout(); }
  std::uint32_t in_flight() const { return flow_.in_flight(); }

 private:
  Result<void> on_membership(const wire::Membership& membership);
  Result<void> on_open(const wire::OpenPhase& open);
  Result<void> on_leases(const wire::Leases& leases);
  Result<void> on_seal(const wire::Seal& seal);
  Result<void> on_commit(const wire::Commit& commit);
  Result<void> on_save(const wire::SaveStage& save);
  void activate(const Phase& phase, Version version);
  void want_leases();
  void sealed(const wire::Seal& seal);
  void start_round(const Phase& phase, const wire::ReduceGroup& group);
  void reduced(const RoundKey& key, std::uint64_t bytes_sent);
  void control(std::function<Result<void>()> body, std::function<void()> done);
  std::unique_ptr<Wiring> make_wiring() const;

  RunConfig config_;
  ModelSpec spec_;
  std::unique_ptr<StageModel> model_;
  std::unique_ptr<MicrobatchSource> source_;
  ParameterState state_;
  StageContext context_;
  PhaseBook phases_;
  std::unique_ptr<Wiring> wiring_;
  Contributions contributions_;
  MicrobatchFlow flow_;
  StageAverager averager_;
  AveragingCodecs averaging_codecs_;
  LeaseWindow window_;

  std::uint64_t wanted_ = 0;
  std::uint64_t leased_ = 0;
  Version committed_;
  Version computing_;
  bool sealing_ = false;
  std::vector<std::function<void()>> after_seal_;
  std::map<RoundKey, std::uint64_t> digests_;  // of the newest reduced phase
  std::map<PeerId, Seat> next_;
  std::shared_ptr<SeatedStage*> alive_;
};

}  // namespace swarmline
