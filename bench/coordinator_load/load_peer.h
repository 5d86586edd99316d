// One peer of a swarm as its coordinator sees it: what it says and answers, without a model or
// links to others.
//   What:      Hello, Ready, heartbeats at the pace of its Welcome, leases where it is a source,
//              claims, reports as a stage peer batches them, and the answers to Seal and Commit.
//              Digests are made up, the same for all peers of a stage. A coordinator that is gone
//              it dials until one takes its seat on, and goes on from what both hold.
//   Ownership: runtime, network and events outlive it.
//   Thread:    control thread.
//   Errors:    what a well-behaved coordinator never says to a well-behaved peer is wrong().
//   Bounds:    what a step's microbatches are.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>

#include "base/callback_guard.h"
#include "base/ids.h"
#include "engine/net/rpc.h"
#include "pipeline/protocol/message_kinds.h"
#include "pipeline/source/lease_window.h"

namespace swarmline {

class LoadPeer;

// What the peers tell of what they hear.
class LoadEvents {
 public:
  virtual ~LoadEvents() = default;
  virtual void on_seated(LoadPeer& peer, bool resumed) = 0;
  virtual void on_adrift(LoadPeer& peer) = 0;  // its coordinator is gone; it wants to dial
  virtual void on_opened(LoadPeer& peer, std::uint64_t step) = 0;
  virtual void on_leased(LoadPeer& source, const wire::Lease& lease) = 0;
  // `is_new`: computed in this reign.
  virtual void on_accepted(LoadPeer& peer, std::uint64_t step, std::uint32_t index,
                           bool is_new) = 0;
  virtual void on_committed(LoadPeer& peer, std::uint64_t step) = 0;
  virtual void wrong(const std::string& what) = 0;
};

struct LoadCounts {
  std::uint64_t heartbeats = 0, reports = 0, contributions = 0, refused = 0, claims = 0;
  std::uint64_t unanswered = 0;  // contributions reported and neither accepted nor refused
};

class LoadPeer {
 public:
  LoadPeer(Runtime& runtime, Network& network, LoadEvents& events, LoadCounts& counts,
           std::uint32_t number, std::uint32_t window);

  void connect(const Address& coordinator, std::function<void(bool)> done);
  void close();

  // A microbatch that this peer is to compute once it has heard that its step is open.
  struct Try {
    std::uint64_t step = 0;
    std::uint32_t index = 0;
    std::uint64_t attempt = 0;
    std::uint64_t opening = 0;
  };
  void take(const Try& given) { tries_.push_back(given); }
  bool has_tries() const {
    return seated_ && open_ && !tries_.empty() && tries_.front().step <= committed_;
  }
  // The device is done with the first of them.
  void finish_one();

  const Seat& seat() const { return seat_; }
  std::uint64_t committed() const { return committed_; }
  bool queued = false;  // by the swarm, to compute

 private:
  void on_channel(std::shared_ptr<Connection> connection);
  void say_hello();
  wire::Hello hello() const;
  void fill(wire::Holdings& holdings) const;
  void on_data_wanted(const wire::DataWanted& wanted);
  void on_welcome(const wire::Welcome& welcome);
  void on_closed();
  void on_message(const Frame& frame);
  void on_open(const wire::OpenPhase& open);
  void on_leases(const wire::Leases& leases);
  void on_ack(const wire::ReportAck& ack);
  void on_ack(const wire::HeartbeatAck& ack);
  void on_seal(const wire::Seal& seal);
  void on_commit(const wire::Commit& commit);
  void on_resume();
  void claim(const Try& claimed);
  void add(const Try& computed);
  void flush();
  void end_lease(std::uint32_t index);
  void want();
  void beat();
  void tell(MessageKind kind, const auto& message);
  void wrong(const std::string& what);
  std::uint64_t state_digest(std::uint64_t version) const;

  Runtime& runtime_;
  Network& network_;
  LoadEvents& events_;
  LoadCounts& counts_;
  std::uint32_t number_;
  std::shared_ptr<RpcChannel> channel_;
  bool seated_ = false;
  Seat seat_;
  std::uint64_t term_ = 0;
  std::string run_id_;
  std::string seat_proof_;
  std::string data_;  // the fingerprint of the run's files, which it has
  std::uint32_t era_ = 0;
  Duration usual_{}, period_{};  // of heartbeats
  bool spreads_ = false;
  std::uint64_t beats_ = 0;
  std::uint64_t committed_ = 0;  // steps
  // The open step
  bool open_ = false;
  std::uint64_t opening_ = 0;
  std::deque<Try> tries_;
  wire::Report pending_;
  bool flush_armed_ = false;
  std::map<std::uint32_t, Try> reported_, acknowledged_;  // by index
  // As a source
  LeaseWindow window_;
  std::uint64_t wanted_ = 0, leased_ = 0, finished_ = 0;
  std::map<std::uint32_t, std::uint32_t> leases_;  // microbatches under way: how often
  CallbackGuard guard_;
};

// What the members of a group would all come to by averaging a step.
std::uint64_t reduced_digest(std::uint32_t group, std::uint64_t step);

}  // namespace swarmline
