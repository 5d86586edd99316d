// Who is in the run: seats, addresses, readiness, when last heard. Pure: instants are passed in.
//   Thread: control thread.
//   Cost:   what is asked for each event takes as long with many peers as with few.
//   Bounds: Limits::peers_max peers at a time, and knobs().lost_peers_kept that went last, which
//           get their numbers back if they come again. No number is given twice.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "balancer/redundancy.h"
#include "balancer/zone_traffic.h"
#include "base/ids.h"
#include "base/result.h"
#include "base/units.h"
#include "engine/fabric/gpu_identity.h"
#include "engine/store/journal.h"
#include "pipeline/coordinator/members/candidate_desk.h"
#include "pipeline/coordinator/members/price_tally.h"
#include "pipeline/coordinator/members/reach.h"
#include "pipeline/coordinator/members/roster_desk.h"
#include "pipeline/protocol/group_plan.h"
#include "pipeline/protocol/message_kinds.h"

namespace swarmline {

// kFollowing: fetches its stage's state and hears of the commits since. kEarly: does so, has the
// parameters that are computed on, and serves the open step with them; it follows again after the
// commit, unless it has all by then. kReady: serves, and holds its stage's state. kAway: the
// journal knows its seat, and this coordinator has not heard of it yet.
enum class MemberState : std::uint8_t { kBuilding, kFollowing, kEarly, kReady, kLost, kAway };

inline constexpr double kBandwidthMax = 1e15;  // bits per second that a peer may say it has

struct DataFetched {         // of the run's data
  std::uint32_t pieces = 0;  // that it has had
  std::uint32_t of = 0;
  PeerId from;  // the newest; 0: nobody
};

struct KeptCopy {  // of what it held in a seat before
  StageId stage;
  std::uint64_t version = 0;
  bool operator==(const KeptCopy&) const = default;
};

struct Member {
  Seat seat;
  std::string name;
  std::string address;
  Reach reach = Reach::kUnknown;
  std::string key;  // hash of the key that its seat was given to, in hex; empty: its link had none
  std::string device;
  Location at;              // its zone, as it says, and its address's host
  double price = 0;         // an hour; 0: it says none
  double egress_price = 0;  // of a GB that it sends; 0: the run's
  double bandwidth = 0;     // of its network, bits per second; 0: it says none
  std::string host;  // which machine it is on, as it says: of others there; empty: it doesn't
  GpuIdentity gpu;   // that it computes on, as it says
  std::uint64_t memory_bytes = 0;
  std::uint64_t shadow_memory_bytes = 0;       // 0: no bound
  MemberState state = MemberState::kBuilding;  // changed by become() alone
  bool lacks_data = false;                     // it can't serve the stage that reads the run's data
  bool fetches_data = false;                   // it has none, and can: from those that serve it
  bool serves_data = false;
  std::optional<DataFetched> fetched;  // of who fetches
  bool draining = false;               // nothing new goes to it; changed by set_draining() alone
  std::optional<Instant> goes_at;      // by a notice, or as a mover that gives its sums away
  bool at_risk = false;                // its machine may be taken soon, it says
  std::string let_go;                  // why it drains, when that was not its own wish
  std::optional<StageId> moves_to;     // where it goes once it has drained, or is on its way
  Instant moves_since{};
  Instant seated_at{};
  double seconds_per_microbatch = 0;  // its device's, at its stage; 0: not measured
  std::uint32_t in_flight = 0;
  std::uint64_t busy_ns = 0;
  std::uint32_t relayed_links = 0;  // to other peers, over relays
  std::uint64_t relayed_bytes = 0;  // sent over such
  std::optional<KeptCopy> kept;     // until it holds a state of its stage
  std::uint64_t stepped = 0;        // newest version whose commit it applied
  std::uint64_t contributions = 0;  // in committed steps
};

// Where the newcomer says that it is.
Location location_of(const wire::Hello& hello);
// For people: "gpu-box (peer 3, stage 1)", from its second incarnation on with that; without a name
// "peer 3 (stage 1)".
std::string called(const Seat& seat, const std::string& name);
std::string name_of(const Member& member);  // with its address
// What the journal says of its seat.
SeatRecord record_of(const Member& member, std::string state);

class Membership {
 public:
  // `targets`: peers wanted per stage. `tied`: those of the first and the last stage average an
  // embedding that both have. `memory`: bytes that a peer of each stage needs; empty: unknown.
  explicit Membership(std::vector<std::uint32_t> targets, bool tied = false,
                      std::vector<std::uint64_t> memory = {});

  // Seats a newcomer at `chosen` (never at the stage that reads the data, where it lacks it), or at
  // the emptiest stage against its target, then beyond targets
  // at the stage with the fewest peers; among equals (balancer/redundancy.h) where it makes a
  // second zone or host. One that lost its seat gets the next incarnation. kRefused
  // when the run takes no more peers, or no stage fits its memory.
  Result<Seat> join(const wire::Hello& hello, std::optional<StageId> chosen = {});
  // The lost seat that the newcomer had, or a later one whose welcome was lost; null: it is new.
  const Member* former(const wire::Hello& hello) const;
  // The process that had that seat asks: by its key, and by its name, or by its address where only
  // that is known.
  static bool is_same(const Member& member, const wire::Hello& hello);
  // From the journal, oldest incarnations first; `away`: the seat may still be served.
  void restore(const SeatRecord& record, bool away);
  std::vector<Seat> away() const;
  // An away member is back at its seat.
  void resume(const wire::Hello& hello);
  // Whether everybody who serves says to have so many times the memory that a peer of its stage
  // needs. False where either is unknown.
  bool all_have_memory_for(double times) const;
  // A step's device time, and what it computed, whether that counts or not (wire::Reduced).
  void measured(const Seat& seat, std::uint64_t busy_ns, std::uint32_t passes);
  // To a committed step.
  void contributed(PeerId peer, std::uint32_t microbatches);
  void heartbeat(const wire::Heartbeat& beat);
  // The seat is over.
  void fence(const Seat& seat);
  // Whoever of more than knobs().lost_peers_kept went first.
  std::optional<PeerId> long_gone() const;
  void forget(PeerId lost);

  bool is_current(const Seat& seat) const;
  // Serves its stage now, early or not: it hears of everything. Follows it: it hears of commits and
  // losses.
  bool serves(const Seat& seat) const;
  bool serves_early(const Seat& seat) const;
  bool holds_state(const Seat& seat) const;  // serves, and not early
  bool follows(const Seat& seat) const;
  void become(PeerId peer, MemberState state);
  void set_draining(PeerId peer, bool draining);
  Member& at(PeerId peer) { return members_.at(peer); }
  const std::map<PeerId, Member>& members() const { return members_; }
  // Those that hold its state, and with the early ones all that serve it; sorted by peer.
  std::vector<Seat> ready_of(StageId stage) const;
  std::vector<Seat> serving_of(StageId stage) const;
  std::vector<Seat> early() const;
  std::size_t count_ready(StageId stage) const { return stages_.at(stage.value).ready.size(); }
  std::size_t count_serving(StageId stage) const {
    return count_ready(stage) + stages_.at(stage.value).early.size();
  }
  std::vector<Seat> staying_of(StageId stage) const;  // ready and not draining
  // Somebody who comes to the stage has a copy of this version of it, and can begin with that.
  bool has_copy(StageId stage, std::uint64_t version) const;
  // Somebody who is on its way to another stage has one. Takes as long as there are members.
  std::optional<Seat> copy_elsewhere(StageId stage, std::uint64_t version) const;
  // It drains, and others of its stage can do without it: it gets nothing new.
  bool spared(const Member& member) const {
    return member.draining && !staying_of(member.seat.stage).empty();
  }
  std::uint32_t building() const { return building_; }  // peers that are
  std::uint64_t changes() const { return changes_; }    // grows with each of a member's state
  const PriceTally& prices() const { return prices_; }  // of all but the lost and the away
  bool formed() const;                                  // every stage has its target of ready peers
  bool covered() const;                                 // every stage has a ready peer
  std::uint32_t target_of(StageId stage) const { return targets_[stage.value]; }
  std::string name_of(PeerId peer) const;  // empty: unknown
  // Of the lost ones of a stage, those that went last, until others have taken their places.
  std::vector<PeerId> missed_at(StageId stage) const;
  std::size_t live_of(StageId stage) const { return stages_.at(stage.value).live; }  // or building
  // Somebody who has the run's data serves another stage than the one that reads it.
  bool has_data_elsewhere() const;
  std::vector<StageId> empty_stages() const;  // with nobody, not even a peer that is building
  PeerId newest() const { return PeerId{next_peer_ - 1}; }
  // Ids of an earlier coordinator's peers are not given again.
  void begin_after(PeerId newest) { next_peer_ = std::max(next_peer_, newest.value + 1); }
  // Microbatches are to stay in their zones where that is worth something: bytes cost it whenever
  // `run_pays`, or somebody says a price of them.
  void keep_in_zones(bool run_pays) { zones_ = run_pays ? Zones::kKept : Zones::kKeptWherePaid; }
  // Speeds have changed so that zones are to get other shares than views say.
  bool shares_are_stale() const;
  // Brings everybody's view of mates and of the next stage up to date; returns those whose view is
  // another than before, sorted.
  std::set<Seat> refresh_views();
  // The seat's, or shadow's, as last refreshed; all of it, and what it has not been told yet.
  wire::Membership view_for(const Seat& seat);
  wire::Membership news_for(const Seat& seat);
  const RosterDesk& rosters() const { return rosters_; }
  void check_invariants() const;

 private:
  struct Stage {
    std::set<PeerId> ready;
    std::set<PeerId> early;
    std::uint32_t live = 0;      // not lost
    std::uint32_t draining = 0;  // of these
    LocationTally staying;       // where those are that do not drain
    bool operator==(const Stage&) const = default;
  };
  static bool serves(MemberState state) {
    return state == MemberState::kReady || state == MemberState::kEarly;
  }
  static bool keeps(const Member& member, const KeptCopy& copy);
  // A member enters the counts, or leaves them.
  void count(const Member& member);
  void uncount(const Member& member);
  void put(const Member& member);  // in the place of what was known of its peer
  Result<StageId> place(PeerId newcomer, const wire::Hello& hello) const;
  std::set<StageId> averaging_with(StageId stage) const;  // itself, too
  bool keeps_in_zones() const;
  std::vector<ZonedSpeed> zoned_speeds(const std::vector<Seat>& seats) const;
  // Of what they send to the next stage.
  ZoneTraffic traffic_of(const std::vector<Seat>& senders, StageId next) const;
  bool is_weighed(StageId senders, const ZoneTraffic& traffic) const;  // or nearly so
  bool weigh_zones(StageId senders, ZoneTraffic traffic);              // true: it was not
  double weight_of(const Seat& sender, const Seat& receiver) const;

  std::vector<std::uint32_t> targets_;
  std::vector<std::uint64_t> memory_;  // by stage, as targets_; 0: unknown
  std::map<PeerId, Member> members_;
  std::vector<Stage> stages_;
  std::uint32_t building_ = 0;
  std::uint64_t changes_ = 0;
  PriceTally prices_;
  GroupPlan groups_;
  RosterDesk rosters_;  // as in the views
  CandidateDesk candidates_;
  enum class Zones : std::uint8_t { kLeft, kKeptWherePaid, kKept };
  Zones zones_ = Zones::kLeft;
  std::map<StageId, ZoneTraffic> traffic_;            // as in the views, by the stage that sends
  std::map<Seat, std::map<Seat, double>> next_told_;  // the candidates that each knows, weights
  std::deque<PeerId> lost_;                           // in the order in which they went
  std::uint32_t next_peer_ = 1;
};

}  // namespace swarmline
