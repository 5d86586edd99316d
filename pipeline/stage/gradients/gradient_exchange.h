// The averaged gradients of a stage's groups: averaged with the other members, or fetched from
// those that hold them, kept for those that have yet to fetch them.
//   What:      one entry per (step, group, attempt), with one state (gradient_state.h). All of a
//              step's groups share one place, ParameterState::reduced(), each its region of it.
//   Ownership: owns the averager, error feedback, the entries, the copies of earlier steps and who
//              the mates are.
//   Thread:    control thread; hashing and copying are jobs.
//   Errors:    frames that do not fit return kCorrupt. A gradient that nobody keeps, or that is
//              not what was committed, ends the peer.
//   Size:      averaging, fetching and keeping move one entry from state to state, so they are one
//              class; the fetching is in gradient_exchange_fetch.cc, rounds whose values are in a
//              device's memory in gradient_exchange_device.cc.
//   Bounds:    kRetainedSteps copies; entries of open steps, of those copies and, for a joiner, of
//              the commits that it follows.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/callback_guard.h"
#include "pipeline/averaging/averaging_codecs.h"
#include "pipeline/averaging/stage_averager.h"
#include "pipeline/protocol/group_plan.h"
#include "pipeline/protocol/message_kinds.h"
#include "pipeline/stage/common/stage_context.h"
#include "pipeline/stage/common/stage_jobs.h"
#include "pipeline/stage/gradients/device_rounds.h"
#include "pipeline/stage/gradients/gradient_fetch.h"
#include "pipeline/stage/gradients/gradient_state.h"
#include "pipeline/stage/gradients/island_rounds.h"

namespace swarmline {

RoundKey round_key(const wire::ReducedId& reduced);

// A group's averaging as a seal names it.
struct SealedGroup {
  struct Member {
    Seat seat;
    std::string address;
  };
  GroupId group;
  RoundAttempt attempt;
  std::vector<Member> members;            // in rank order
  std::vector<std::uint64_t> slice_ends;  // of those who speak; empty: equal slices
  std::vector<std::uint32_t> speakers;    // by rank, who speaks for it; empty: each for itself
  std::vector<FabricKind> fabrics;        // by rank, of its island; empty: over links
  std::uint64_t meeting = 0;              // of those with a fabric
};

class GradientExchange {
 public:
  static constexpr std::uint64_t kRetainedSteps = 4;

  struct Hooks {
    // What the report of the stage's own group says of the step's microbatches.
    std::function<void(const Phase&, wire::Reduced&)> account;
    std::function<void()> on_here;  // a commit may have waited for it
  };

  GradientExchange(StageContext& context, StageJobs& jobs, Hooks hooks);

  // ---- Averaging ----
  bool in_group(GroupId group) const;
  bool shares(GroupId group, StageId stage) const;  // both are in it
  // The step is sealed: what is in the place of an earlier one gives way.
  void begin(const Phase& phase);
  // Whether the sums are read on the host: they are to be collected before.
  bool reads_sums(const SealedGroup& group) const;
  void average(const Phase& phase, const SealedGroup& group);
  void abandon(const Phase& phase);  // what goes round has a member that is gone
  Result<void> on_chunk(const Seat& from, const Frame& frame);
  Result<void> on_fabric_word(const Seat& from, const Frame& frame);
  // Chunks may be lost with that link: whether it is the link or its end, the coordinator finds
  // out.
  void report_broken_rounds(const Seat& peer, const Error& error);

  // ---- What others have ----
  // The coordinator says that this member's averaging can't end. The step is the one that is
  // committed next.
  void on_fetch(const RoundKey& key, std::uint64_t digest, const GradientFetch::Holders& holders);
  Result<void> on_piece(const Seat& from, const wire::Piece& piece, BytesView bytes);
  void set_mates(const std::vector<Seat>& mates);
  void on_link_lost(const Seat& peer);
  void on_peer_lost(const Seat& lost);
  // For mates: empty, unless it is here.
  BytesView bytes(const RoundKey& key) const;

  // ---- Commits ----
  // Whether that is in its place; else it is fetched.
  bool have(const RoundKey& key, std::uint64_t digest);
  // It will be committed: fetched at once, for mates keep it for a few steps only.
  void expect(const RoundKey& key, std::uint64_t digest);
  void on_commit(std::uint64_t step, bool skipped);
  void retain(std::uint64_t step);
  void forget_retained(std::uint64_t committed_step);
  // The attempt by which those bytes are held here, whichever it is called elsewhere.
  std::optional<RoundAttempt> attempt_of(std::uint64_t step, GroupId group,
                                         std::uint64_t digest) const;

  // ---- Other beginnings ----
  // Nothing of earlier steps is needed; `version` is committed here.
  void begin_at(Version version);
  void drop_fetches(std::uint64_t first, std::uint64_t end);  // of those steps
  // Takes over what the shadow of this stage holds, and says so: it may not have been heard.
  void inherit(const GradientExchange& from);
  void announce_held();

  bool averages() const;  // a round is under way here
  std::uint64_t next_step() const { return next_step_; }
  void silence() {
    guard_.drop_callbacks();
    device_rounds_.silence();
    island_rounds_.silence();
  }
  void check_invariants() const;

 private:
  struct Entry {
    GradientState state = GradientState::kNone;
    std::uint64_t digest = 0;            // in place, or retained
    std::optional<GradientFetch> fetch;  // fetching, both
    Buffer fetched;                      // checked
  };
  struct Region {  // of the arena, in bytes
    std::uint64_t first = 0;
    std::uint64_t size = 0;
  };
  using Entries = std::map<RoundKey, Entry>;

  Region region_of(GroupId group) const;
  GradientState state_of(const RoundKey& key) const;
  static bool in_place(GradientState state);
  void become(Entries::iterator entry, GradientState state);
  template <typename Which>
  void forget(Which which);
  static bool set_islands(StageAverager::Round& round, const std::vector<std::uint32_t>& speakers);
  void drop_rounds(const std::function<bool(const RoundKey&)>& which);
  void begin_round(StageAverager::Round round, const SealedGroup& group);
  void begin_island(StageAverager::Round round, const SealedGroup& group);
  void begin_alone(const RoundKey& key);
  void begin_from_device(StageAverager::Round round, DeviceRounds::Values values);
  void island_summed(const RoundKey& key);
  void fabric_failed(const RoundKey& key, const Error& error);
  ParameterState::Bring host_copy(const RoundKey& key);
  ParameterState::Bring take_landing(const RoundKey& key);
  void give_way(Entries::iterator entry);
  void take_place(const RoundKey& key);
  void summed(const RoundKey& key, std::uint64_t bytes_sent);
  void hash(const RoundKey& key, std::uint64_t bytes_sent);
  void start(StageAverager::Round round);
  // [device]
  Result<void> summarize(const Region& region, const ParameterState::Bring& bring,
                         wire::Reduced& message);
  void report(const RoundKey& key, std::uint64_t bytes_sent, wire::Reduced& message);
  void on_bad_chunk(const Seat& from, const Error& error);
  void fetch(const RoundKey& key, std::uint64_t digest, const GradientFetch::Holders& holders,
             bool coordinator_waits);
  void pump(const RoundKey& key);
  void pump_all();
  void watch_holders(const RoundKey& key);
  void leave_alone(const std::vector<Seat>& late);
  void pause(const RoundKey& key);
  void after_pause(const RoundKey& key);
  void all_pieces_here(const RoundKey& key);
  void checked(const RoundKey& key, Buffer bytes, std::uint64_t digest);
  void place(const RoundKey& key);
  GradientFetch::Holders mates() const;

  StageContext& context_;
  StageJobs& jobs_;
  Hooks hooks_;
  const GroupPlan groups_;
  StageAverager averager_;
  AveragingCodecs codecs_;
  DeviceRounds device_rounds_;
  IslandRounds island_rounds_;
  std::map<RoundKey, StageAverager::Round> spoken_for_;  // wait for their island's sum
  // Of rounds whose average is not on its way through the host: how it gets to the device, or back.
  std::map<RoundKey, ParameterState::Bring> landings_;
  std::uint64_t next_step_ = 0;  // is committed next
  Entries entries_;
  std::map<std::uint64_t, SharedBytes> copies_;  // of all groups, by step
  std::map<PeerId, Seat> mates_;                 // who serves the stage, too
  std::set<Seat> late_;                          // of those that were asked, with an answer
  CallbackGuard guard_;
};

}  // namespace swarmline
