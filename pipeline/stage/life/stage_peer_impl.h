// A running peer: its life, its link to the coordinator, its stage and the shadows beside it. Only
// life/stage_peer*.cc see this header.
//   What:      hands what coordinator and peers say to the stage or the shadow that it concerns,
//              and takes the peer from one life to the next.
//   Ownership: owns its parts; the doors outlive it.
//   Thread:    control thread.
//   Errors:    ends once, with an exit code and a sentence.
//   Bounds:    kEarlyFramesMax frames kept while a stage is built that begins with a shadow's.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/callback_guard.h"
#include "engine/metrics/metrics.h"
#include "pipeline/stage/common/device_queue.h"
#include "pipeline/stage/common/peer_links.h"
#include "pipeline/stage/life/coordinator_link.h"
#include "pipeline/stage/life/peer_lifecycle.h"
#include "pipeline/stage/life/stage_builder.h"
#include "pipeline/stage/seat/seated_stage.h"
#include "pipeline/stage/seat/shadow_stages.h"
#include "pipeline/stage/stage_peer.h"

namespace swarmline {

class StagePeer::Impl {
 public:
  static constexpr std::size_t kEarlyFramesMax = 4096;

  Impl(Runtime& runtime, Network& network, Device& device, StagePeerOptions options,
       std::function<void(PeerOutcome)> on_finished);

  void start();
  void finish(int exit_code, const std::string& sentence);
  void drain(Duration notice);
  void tell_risk();
  BytesView committed_parameters() {
    if (!stage_) return {};
    const auto parameters = stage_->committed_parameters();
    SWARMLINE_CHECK_MSG(parameters.has_value(), "the device lost the parameters");
    return *parameters;
  }
  const ParameterLayout* layout() const { return stage_ ? &stage_->layout() : nullptr; }
  Seat seat() const { return seat_; }
  bool serves() const {
    return stage_ && stage_->serves() && !stage_->serves_early() && life_.counts_as_seated();
  }
  void check_invariants() const;
  std::vector<HeldState> held_states() const;
  std::set<MicrobatchId> tries() const;
  std::vector<NamedSize> sizes() const;

 private:
  // life/stage_peer_life.cc: from seat to seat
  wire::Hello hello() const;
  void on_data_wanted(const DataManifest& manifest);
  void compare(const DataManifest& manifest);
  void on_welcome(const SeatOffer& offer, bool same_run);
  void resumed(const SeatOffer& offer);
  void seat_given_up(const SeatOffer& offer, bool same_run);
  LinkIdentity identity_of(const SeatOffer& offer) const;
  void take_offer(const SeatOffer& offer);
  void take_seat(SeatedStageParts parts);
  void keep_until_ready(SeatedStageParts& parts);
  void on_coordinator_closed(const Error& error);
  void go_adrift(const std::string& why);
  void on_fenced(const wire::Fenced& fenced);
  // `keeps`: a copy of the state, for a seat at the same stage.
  void rejoin(const std::string& why, bool keeps = false);
  void end_seat();
  void drop_stage(bool keeps, std::function<void()> then);
  void keep_state(std::function<void()> then);
  bool has_room_to_keep() const;
  void let_go(const std::function<void()>& then);

  // life/stage_peer.cc: what is said
  void on_coordinator(const Frame& frame);
  bool ask_for_call(const Seat& beyond);
  void say_out_of_reach(const Seat& beyond);
  void on_link_news(const Frame& frame);
  void on_stage_message(const Frame& frame);
  void count_moved(const Frame& frame);
  void hand_to_stage(const Frame& frame);
  void on_peer(const Seat& from, const Frame& frame);
  Result<void> hand_to_stage(const Seat& from, const Frame& frame);
  // The seat's, or a shadow's; null: it has ended.
  SeatedStage* stage_of(const Seat& name) const;
  void on_peer_lost(const Seat& lost);
  void on_resume(const wire::Resume& resume);
  void on_follow(const wire::Follow& follow);
  void shadow_failed(const Seat& shadow, const Error& error);
  void connect_parts(SeatedStageParts& parts);
  void say_leave(bool only_at_risk = false);
  void say_idle();
  wire::Heartbeat heartbeat() const;
  void log_metrics();

  Runtime& runtime_;
  Device& device_;
  DeviceQueue queue_;
  StagePeerOptions options_;
  std::function<void(PeerOutcome)> on_finished_;
  PeerLinks links_;
  Registry metrics_;  // told to the log at the end
  PeerLifecycle life_;
  CoordinatorLink link_;
  std::string advertised_;
  Seat seat_;                                      // the last one
  std::string seat_proof_;                         // that it was its
  HeldData data_;                                  // of the run's, since it was asked
  std::shared_ptr<const DataPieces> data_pieces_;  // of that
  SeatOffer offer_;                                // that it took
  std::unique_ptr<SeatedStage> stage_;
  ShadowStages shadows_;
  std::shared_ptr<SeatedStage> heritage_;  // the shadow of the stage that it was sent to
  std::shared_ptr<KeptState> kept_;        // of a seat it lost, until it holds another state
  std::uint64_t moved_bytes_ = 0;          // of states and of gradients, that came in
  std::vector<Frame> early_;               // from the coordinator, while it inherits
  bool at_risk_ = false;                   // its machine may be taken soon
  std::optional<Instant> leaves_at_;       // a notice came: at the latest
  bool said_idle_ = false;                 // while it leaves
  CallbackGuard guard_;
};

}  // namespace swarmline
