// A run's status as values, and their JSON (docs/formats/status.md).
//   Ownership: plain values. Errors: kCorrupt, kIncompatible (a newer format).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace swarmline {

inline constexpr std::uint64_t kStatusFormat = 1;

struct PeerStatus {
  std::uint64_t peer = 0;
  std::string name;
  std::string address;
  std::string state;  // building joining ready lost
  std::string reach;  // whether it takes connections: unknown elsewhere yes no
  double share = 0;   // of its stage's contributions to the last steps, 0..1
  double busy = 0;    // of the time of the last steps, 0..1
  std::uint64_t in_flight = 0;
  std::uint64_t microbatches = 0;     // of committed steps, since its coordinator began
  double seconds_per_microbatch = 0;  // of its device; 0: not measured
  std::uint64_t relayed_links = 0;    // to other peers, over relays, now
  std::uint64_t relayed_bytes = 0;    // sent over such
  std::string data;  // how it gets on with fetching the run's data, a sentence; empty: it has it
  // What the balancer knows of it (balancer/plan.h, PlanPeer).
  double speed = 0;                // work a second; 0: it is not counted (lost, or drains)
  bool arriving = false;           // on its way to its stage, or to the one that it moves to
  std::optional<double> moves_to;  // a stage
  std::optional<double> barred;    // from a stage
  std::uint64_t memory_bytes = 0;  // 0: unknown
  std::uint64_t shadow_memory_bytes = 0;
  double slow_seconds = 0;
  std::string zone;  // as it says; empty: it says none
  std::string host;  // of its address; empty: unknown
};

struct ShadowStatus {  // a peer that follows the stage beside its own
  std::uint64_t peer = 0;
  std::string name;
  std::uint64_t serves = 0;  // its own stage
  std::string state;         // fetching ready
};

struct StageStatus {
  std::uint64_t stage = 0;
  std::uint64_t first_layer = 0;
  std::uint64_t last_layer = 0;   // one past the last
  std::uint64_t wanted = 0;       // peers
  double cost = 0;                // of a microbatch, as the balancer counts it; in what speeds have
  std::uint64_t state_bytes = 0;  // what a newcomer downloads
  std::vector<PeerStatus> peers;
  std::vector<ShadowStatus> shadows;
};

struct EventStatus {        // something that happened, as in log.jsonl
  double wall_seconds = 0;  // since 1970
  std::string kind;
  std::string detail;
  std::string level;  // info warn error
  bool is_bad() const { return level == "warn" || level == "error"; }
};
std::string sentence_of(const EventStatus& event);  // "peer lost: gpu-box (peer 3, stage 1): ..."

struct RelayStatus {  // that passes on links between peers
  std::string name;
  std::string address;
  std::uint64_t links = 0;  // now
  std::uint64_t bytes = 0;  // passed on
};

// Bytes since the run began.
struct BoundaryStatus {
  std::uint64_t from = 0;
  std::uint64_t to = 0;
  std::uint64_t forward_codec_bytes = 0;
  std::uint64_t forward_token_bytes = 0;
  std::uint64_t forward_framing_bytes = 0;
  std::uint64_t backward_codec_bytes = 0;
  std::uint64_t backward_framing_bytes = 0;
  std::uint64_t microbatches = 0;                       // sent forward
  std::uint64_t gradients = 0;                          // sent back
  std::string forward_codec, backward_codec;            // in use
  std::optional<double> forward_error, backward_error;  // relative L2; none: not measured
  double forward_bytes_per_second = 0;                  // of a link; 0: not measured
  double backward_bytes_per_second = 0;
};

// What the run's machines cost, in its currency: docs/money.md.
struct CostStatus {
  std::string currency;
  double total = 0;                // since `since_step`
  std::uint64_t since_step = 0;    // what steps before cost is not known; 0: all is
  double per_hour = 0;             // now
  std::optional<double> per_step;  // of those since `since_step`
  std::optional<double> per_billion_tokens;
  double machines = 0;     // the peers', by the hour
  double coordinator = 0;  // by the hour
  double egress = 0;       // by the byte
  std::uint64_t egress_bytes = 0;
  // Parts of the total that made no new step.
  double waiting = 0;             // while the run did not train
  double joining = 0;             // of peers that did not serve yet while it trained
  double idle = 0;                // of peers that served and computed nothing
  double again = 0;               // of steps that were computed again, or lost while they were open
  std::uint64_t steps_again = 0;  // computed again
  double fetched = 0;             // of egress: states for joiners and shadows
  std::uint64_t joiner_bytes = 0;  // of such states
  std::uint64_t shadow_bytes = 0;
  std::uint64_t unpriced = 0;  // peers that say no price
  double budget = 0;           // 0: none
  double budget_hours = 0;     // of training; 0: none
};

struct RunStatus {
  std::string run;
  // waiting training evaluating draining checkpointing collecting done stopped failed, or died:
  // nobody coordinates it, and it was not ended (read from what is left of it)
  std::string state;
  std::string sentence;
  std::uint64_t step = 0;
  std::uint64_t steps = 0;
  std::uint64_t version = 0;
  std::uint64_t era = 0;         // raised each time the run goes back to a checkpoint
  std::string era_sentence;      // where the newest began, and why
  std::uint64_t segment = 1;     // raised each time the run goes on with other settings
  std::string segment_sentence;  // what the newest changed, and where; empty: it is the first
  std::string journal;           // why what is decided waits to be written down; empty: it does not
  std::string refused;           // who was refused last, and why; empty: nobody
  std::string page;              // the URL of the run's web page, without its token; empty: none
  std::string unprotected;       // what is lost with a peer that nobody can replace; empty: nothing
  double wall_seconds = 0;       // when this was said; since 1970
  std::vector<EventStatus> events;  // the newest, oldest first
  std::optional<double> loss;       // nats per token, as are the following
  std::optional<double> held_out_loss;
  std::optional<double> unigram_entropy;
  std::optional<double> bigram_entropy;
  std::uint64_t tokens = 0;
  std::optional<double> tokens_per_second;  // over the last steps
  std::optional<double> mean_tokens_per_second;
  std::optional<double> eta_seconds;
  double elapsed_seconds = 0;    // of training, since the run began
  std::uint64_t since_step = 0;  // nothing before is in sums of seconds and bytes; 0: all is
  std::uint64_t in_flight = 0;
  bool balance_moves = false;             // whether peers that serve are moved
  std::optional<double> balance_shadows;  // of a stage; none: as many as cost next to nothing
  std::vector<StageStatus> stages;
  std::vector<BoundaryStatus> boundaries;
  std::vector<RelayStatus> relays;
  std::uint64_t reduce_bytes = 0;
  std::uint64_t second_tries = 0;      // of microbatches, because somebody was late
  std::uint64_t control_bytes = 0;     // through the coordinator, checkpoints not counted
  std::uint64_t checkpoint_bytes = 0;  // to the coordinator
  std::string checkpoint;              // of the newest, empty before the first
  std::optional<CostStatus> cost;      // none: nobody says a price
  std::vector<double> losses;          // the last ones, oldest first

  std::size_t peers() const;  // seated in any stage
  std::size_t wanted() const;
  std::size_t missing() const;  // that the stages lack to what they want
  bool over() const;
  bool budget_is_spent() const;
};

Result<RunStatus> parse_status(std::string_view json);
// parse_status gives the same values back.
std::string to_json(const RunStatus& status);

}  // namespace swarmline
