// A swarm of LoadPeers in one process: it spreads what their coordinator leases over the stages,
// lets their devices end so many microbatches a second, and checks what is counted.
//   What:      a line of JSON for each thing that others time, with `t`, the monotonic clock's
//              seconds: "seated" (all peers have a seat), "open" (all have heard of a step),
//              "accepted" (the first contribution of a reign), "step" (all have its commit, and
//              each microbatch was counted once in each stage), "adrift" (the coordinator is gone),
//              "done", "wrong".
//   Ownership: runtime and network outlive it.
//   Thread:    control thread.
//   Errors:    finished() with an exit code; 1 after "wrong", or when a connection can't be opened
//              for kPatience.
//   Bounds:    kDialsMax connections being opened, kUnansweredMax contributions not yet answered.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/coordinator_load/load_peer.h"
#include "bench/coordinator_load/step_check.h"

namespace swarmline {

struct LoadOptions {
  std::string address_file;  // where the coordinator says its address
  std::uint32_t stages = 4;
  std::uint32_t peers_per_stage = 10;
  std::uint32_t microbatches = 160;  // of a step
  std::uint64_t steps = 2;           // then it is done; the coordinator is killed in the last one
  double rate = 60000;               // contributions that devices end in a second
};

class LoadSwarm final : public LoadEvents {
 public:
  static constexpr std::size_t kDialsMax = 512;
  static constexpr std::uint64_t kUnansweredMax = 100'000;
  static constexpr Duration kPatience = std::chrono::seconds(120);

  LoadSwarm(Runtime& runtime, Network& network, LoadOptions options,
            std::function<void(int)> finished);
  void start();
  void stop();

 private:
  void on_seated(LoadPeer& peer, bool resumed) override;
  void on_adrift(LoadPeer& peer) override;
  void on_opened(LoadPeer& peer, std::uint64_t step) override;
  void on_leased(LoadPeer& source, const wire::Lease& lease) override;
  void on_accepted(LoadPeer& peer, std::uint64_t step, std::uint32_t index, bool is_new) override;
  void on_committed(LoadPeer& peer, std::uint64_t step) override;
  void wrong(const std::string& what) override;

  void dial_later(LoadPeer& peer);
  void dial_all();
  void tick();
  bool awaits_its_end() const;
  void give(LoadPeer& peer, const LoadPeer::Try& given);
  void queue(LoadPeer& peer);
  void check(const std::string& what);
  void say(const std::string& kind, const std::string& more = "");
  std::uint64_t peers() const { return peers_.size(); }

  Runtime& runtime_;
  LoadOptions options_;
  std::function<void(int)> finished_;
  LoadCounts counts_;
  StepCheck check_;
  std::vector<std::unique_ptr<LoadPeer>> peers_;
  std::vector<std::vector<LoadPeer*>> stages_;
  std::deque<LoadPeer*> dials_;  // wait for their turn
  std::size_t dialling_ = 0;
  Instant reached_;                 // the coordinator, last
  std::deque<LoadPeer*> computes_;  // in the order in which their devices end
  double due_ = 0;                  // microbatches that devices have ended by now
  Instant ticked_;
  std::uint64_t held_back_ = 0;                            // ticks in which too much was unanswered
  std::uint64_t seated_ = 0, opened_ = 0, committed_ = 0;  // peers
  std::uint64_t step_ = 0, computed_ = 0;                  // the open one, and what is of it
  bool was_adrift_ = false;
  bool accepted_ = false;  // something, in this reign; or there is none
  bool over_ = false;
  CallbackGuard guard_;
};

}  // namespace swarmline
