// What must hold in every simulated run beside its bits, whatever happens to it.
//   What:   * a run goes back only where some stage's state is gone: at that moment no process that
//             lives, and is not needed for another stage, holds the committed version of it, not as
//             a seat, nor as a shadow (of this coordinator's), nor kept, or where its last peers
//             were silent for as long as going back costs; or to where it was;
//           * who was not hurt is not fenced while the run trains, and does not end but with the
//             run: hurt is what the network and the runtime did to the node (SimRuntime::hurt());
//           * of a run with keys, nobody who has no way in gets a seat, or anybody's link, and
//             nobody who has one is refused, by the coordinator or by another peer;
//           * no microbatch is relied on that nobody tries (orphan_watch.h);
//           * what grows is bounded (size_watch.h): containers of the coordinator and the peers,
//             and the journal's writes for each commit, seat and event.
//           Owners of what is averaged are members of its round: the coordinator's own invariants.
//   Thread: that of the SimCluster. Same run, same findings; asking changes nothing of it.
//   Bounds: kFindingsMax findings kept.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "sim/cluster/sim_cluster.h"
#include "sim/oracles/orphan_watch.h"
#include "sim/oracles/size_watch.h"

namespace swarmline {

enum class OracleRule : std::uint8_t { kEra, kFence, kExit, kOrphan, kSize, kDoor };
std::string_view to_string(OracleRule rule);
std::set<OracleRule> all_oracle_rules();

struct OracleFinding {
  OracleRule rule = OracleRule::kEra;
  Duration when{};
  std::string what;
};

class SwarmOracles {
 public:
  static constexpr std::size_t kFindingsMax = 100;

  struct Pace {
    Duration patience{};  // how much longer than usual anything may be on its way
    Duration each = std::chrono::seconds(1);  // between two looks at all there is
  };
  explicit SwarmOracles(SimCluster& cluster) : SwarmOracles(cluster, Pace()) {}
  SwarmOracles(SimCluster& cluster, Pace pace);
  ~SwarmOracles();
  SwarmOracles(const SwarmOracles&) = delete;
  SwarmOracles& operator=(const SwarmOracles&) = delete;

  void look();      // after an event; most are cheap
  void look_all();  // at the end of a run
  const std::vector<OracleFinding>& findings() const { return findings_; }
  const SizeWatch& sizes() const { return sizes_; }
  SizeWatch& sizes() { return sizes_; }

 private:
  void find(OracleRule rule, std::string what);
  double wall_seconds() const;
  void look_at_era();
  void look_at_exits();
  void on_seat(const SeatRecord& record);
  void on_shaken(SimNodeId dialled_by, SimNodeId at, const Result<void>& shaken);
  void on_event(const EventRecord& event);
  std::optional<HeldState::How> held_as(StageId stage, Era era, Version version) const;
  std::optional<HeldState::How> held_by(std::size_t peer, StageId stage, Era era,
                                        Version version) const;
  bool each_by_another(std::uint16_t stages, Era era, Version version) const;
  std::optional<SimNodeId> node_of(PeerId peer) const;

  SimCluster& cluster_;
  const Duration each_;
  OrphanWatch orphans_;
  SizeWatch sizes_;
  std::vector<OracleFinding> findings_;
  RunGlance last_;
  double trains_since_ = 0;  // wall seconds
  Seat last_seat_;
  std::set<std::size_t> ended_;  // peers
  Instant sampled_{};
  std::uint64_t accounted_ = 0;  // what the journal may be written for
};

}  // namespace swarmline
