// The parts of a running peer. Only stage_peer*.cc see this header.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/metrics/metrics.h"
#include "engine/net/rpc.h"
#include "pipeline/stage/seat/seated_stage.h"
#include "pipeline/stage/seat/shadow_stages.h"
#include "pipeline/stage/stage_peer.h"

namespace swarmline {

inline constexpr const char* kLeftEarly = "left before all it held was handed in";

class StagePeer::Impl {
 public:
  Impl(Runtime& runtime, Network& network, Device& device, StagePeerOptions options,
       std::function<void(PeerOutcome)> on_finished)
      : runtime_(runtime),
        network_(network),
        device_(device),
        queue_(device),
        options_(std::move(options)),
        on_finished_(std::move(on_finished)),
        alive_(std::make_shared<Impl*>(this)) {}

  void start();
  void finish(int exit_code, std::string sentence);
  void drain(Duration notice);
  BytesView committed_parameters() const {
    return stage_ ? stage_->committed_parameters() : BytesView();
  }
  const ParameterLayout* layout() const { return stage_ ? &stage_->layout() : nullptr; }
  Seat seat() const { return seat_; }
  bool serves() const {
    return stage_ != nullptr && stage_->serves() && !seatless_ && !(draining_ && finished_);
  }

 private:
  void connect();
  // `keeps`: a copy of the state, for a seat at the same stage.
  void rejoin(const std::string& why, bool keeps = false);
  // The coordinator is gone, and this peer has a seat: it keeps what it holds for the next one.
  void adrift(const std::string& why);
  void drop_stage(bool keeps, std::function<void()> then);
  void keep_state(std::function<void()> then);
  bool has_room_to_keep() const;
  void let_go(const std::function<void()>& then);
  const Address& next_coordinator() const;
  void on_no_answer(const Error& error);
  void connect_again();
  void say_hello();
  void on_coordinator_closed(const Error& error);
  void on_hello_failed(const Error& error);
  void welcomed(const wire::Welcome& welcome);
  void resumed(const wire::Welcome& welcome);
  void learn_coordinators(const wire::Welcome& welcome);
  bool coordinator_silent();
  void on_coordinator(Frame frame);
  void on_peer(const Seat& from, Frame frame);
  void log_metrics();
  void heartbeat();
  Result<SeatedStageParts> parts_from(const wire::Welcome& welcome);
  void connect_parts(SeatedStageParts& parts);
  void on_fenced(const wire::Fenced& fenced);
  void on_follow(const wire::Follow& follow);
  void shadow_failed(const Seat& shadow, const Error& error);
  Result<void> build(SeatedStageParts& parts) const;
  void take_seat(SeatedStageParts parts);
  bool wants_recompute(const SeatedStageParts& parts) const;
  std::weak_ptr<Impl*> weak() const { return alive_; }

  Runtime& runtime_;
  Network& network_;
  Device& device_;
  DeviceQueue queue_;
  StagePeerOptions options_;
  std::function<void(PeerOutcome)> on_finished_;
  std::unique_ptr<PeerLinks> links_;
  Registry metrics_;  // told to the log at the end
  std::shared_ptr<RpcChannel> coordinator_;
  std::unique_ptr<SeatedStage> stage_;
  wire::Welcome welcome_;
  std::unique_ptr<ShadowStages> shadows_;
  std::shared_ptr<SeatedStage> heritage_;  // the shadow of the stage that it was sent to
  std::shared_ptr<KeptState> kept_;        // of the seat it lost
  bool inherits_ = false;                  // a stage is being built that begins with one
  std::vector<Frame> early_;               // from the coordinator meanwhile
  std::string advertised_;
  Seat seat_;
  Duration heartbeat_period_ = Limits::heartbeat_period;
  Instant coordinator_heard_{};
  std::vector<Address> coordinators_;  // tried in turn
  std::size_t coordinator_tried_ = 0;
  std::uint32_t connection_ = 0;  // counts those to coordinators; what an earlier one says is late
  Term term_;                     // the highest of this run
  std::string run_id_;
  Duration patience_{};  // with coordinators that do not answer
  Instant beat_due_{};
  bool adrift_ = false;
  bool seatless_ = true;    // it searches for a coordinator that gives it a seat
  bool dropping_ = false;   // what it held; until the device has let go of it
  std::uint32_t life_ = 0;  // counts its seats; timers of an earlier one do nothing
  Instant search_until_{};
  std::string why_searching_;
  bool draining_ = false;
  bool finished_ = false;
  std::shared_ptr<Impl*> alive_;
};

}  // namespace swarmline
