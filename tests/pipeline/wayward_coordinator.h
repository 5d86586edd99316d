// A coordinator of one stage's peers that knows its trade, and goes wrong where a fuzzer's input
// wants it: peers that hear anything at all from one never come as far as an average.
//   What:      seats the first peers that say hello, leases each its share of a step, seals it when
//              all is reported, commits it when all have averaged, seals it anew where a round
//              breaks. Islands and what their bytes go over are the input's.
//   Wrong:     act() says something out of turn, or has the next message spoilt in one field, for
//              all or for one.
//   Ownership: what it is made with outlives it; end() goes before the network.
//   Thread:    one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/config/run_config.h"
#include "sim/doors/sim_network.h"
#include "tests/pipeline/hostile_frames.h"

namespace swarmline {

class WaywardCoordinator {
 public:
  WaywardCoordinator(FuzzInput& input, SimNetwork& network, RunConfig config, std::uint32_t peers);
  const Address& address() const { return address_; }
  void act(SimNodeId victim);
  void end();

 private:
  struct Peer {
    Seat seat;
    std::string address;
    std::shared_ptr<Connection> link;  // null: it is gone
    bool ready = false;
    std::set<std::uint32_t> owned;
    std::optional<wire::Reduced> reduced;
    std::uint64_t stepped = 0;
  };

  void on_frame(Connection* link, const Frame& frame);
  void welcome(Connection* link, const Frame& frame);
  void begin();
  void open();
  void seal();
  void commit();
  void on_report(Peer& peer, const wire::Report& report);
  void say(Peer& peer, MessageKind kind, google::protobuf::Message& message);
  Peer* peer_of(const Connection* link);
  template <typename Holds>
  bool all(Holds holds) const;

  FuzzInput& input_;
  const RunConfig config_;
  Network& network_;
  HostileFrames frames_;
  Address address_;
  std::vector<std::shared_ptr<Connection>> open_;  // as they came: pointers differ by process
  std::vector<Peer> peers_;
  const std::uint32_t wanted_;
  std::uint64_t step_ = 0;
  std::uint32_t attempt_ = 0;
  std::uint64_t meeting_ = 0;
  std::uint64_t layout_ = 0, kind_ = 0;  // of the next seal
  bool opened_ = false, committed_ = false;
  std::optional<std::size_t> spoils_;  // what that one hears next; of peers_.size(): what all hear
};

}  // namespace swarmline
