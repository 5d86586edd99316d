// The protocol's timeouts, pauses and limits: one table, whose values a seed or a test may turn to
// hostile ones.
//   What:      what no user sets. What users may set is in the config.
//   Units:     as the types say; counts without a unit are said at their line.
//   Ownership: one table a process; knobs() is read wherever a value is needed.
//   Thread:    turned before anything runs (TurnedKnobs); read by any thread.
//   Bounds:    each knob's hostile values are what the protocol must keep its promises with, not
//              what is good for speed.
//   Source:    FoundationDB's knobs.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/limits.h"
#include "base/units.h"

namespace swarmline {

struct Knobs {
  // ---- Coordinator: who is lost ----
  std::uint32_t looks_per_heartbeat = 2;  // for silence
  std::uint32_t stuck_hop_timeouts = 2;   // a device that ends no job in so many is stuck
  std::uint32_t stuck_heartbeats = 5;     // ... and in so many heartbeats
  std::uint32_t stuck_seats_max = 3;      // seats lost so in a row; then it is not taken again
  Duration silence_max = std::chrono::seconds(10);  // that a peer's own pace may earn it
  std::uint32_t lost_peers_kept = 1024;        // those that went last: they get their numbers back
  std::uint32_t heartbeats_per_second = 1000;  // of all peers; of more they come less often
  Duration heartbeat_period_max = std::chrono::seconds(5);  // ... but this often at least
  // ---- Coordinator: whether it is cut off itself ----
  std::uint32_t self_restarts_max = 16;                   // in a row, without a commit between
  Duration probe_time = std::chrono::seconds(1);          // to reach a peer whose link broke
  Duration apart_time = std::chrono::seconds(60);         // two not reached may be by then
  Duration probe_stands = std::chrono::milliseconds(50);  // a process that is gone refuses sooner
  // ---- Coordinator: close, reduce, commit ----
  Duration reduce_deadline = std::chrono::seconds(300);         // without progress
  Duration round_retry_delay = std::chrono::milliseconds(100);  // it may be an end that is gone
  std::uint32_t broken_links_max = 3;                           // of one pair, in one step
  std::uint32_t mismatches_max = 3;                             // of one seat, in one step
  Duration round_retry_max = std::chrono::seconds(2);           // after many attempts
  // So long links of several pairs that break are everybody's, and no reason to let a peer go.
  Duration mesh_patience = std::chrono::seconds(15);
  // ---- Coordinator: a slow peer at a step's end ----
  // What holds a step up for less costs less than computing it twice.
  Duration tail_patience_min = std::chrono::milliseconds(50);
  // ---- Coordinator: a peer that has to go before its step ends ----
  Duration hand_over_look = std::chrono::seconds(1);    // at how fast the step gets on
  Duration hand_over_margin = std::chrono::seconds(2);  // to average and commit it
  // A timer that fires so late says that this machine stood still: what it waits for may be here.
  Duration overslept_min = std::chrono::milliseconds(50);
  // ---- Coordinator: checkpoints, eras, recovery ----
  Duration checkpoint_progress = std::chrono::seconds(300);        // of each part of one
  Duration checkpoint_pause_min = std::chrono::milliseconds(100);  // after one that failed
  Duration checkpoint_pause_max = std::chrono::seconds(30);        // ... twice as long each time
  std::uint32_t part_bytes_min = 16 << 20;         // of a stage's part, where its peers write it
  std::uint32_t final_checkpoints_max = 64;        // tries at the last one
  std::uint32_t checkpoint_reads_max = 64;         // tries at reading one
  Duration gather_time = std::chrono::seconds(5);  // for peers told of a new era
  std::uint32_t fruitless_eras_max = 16;           // in a row
  std::uint32_t eras_at_once = 4;                  // in a row; from then on with pauses
  Duration era_pause_min = std::chrono::milliseconds(100);  // twice as long each time
  Duration era_pause_max = std::chrono::seconds(5);
  Duration redial_time = std::chrono::seconds(1);          // peers that live dial so often at least
  Duration collect_calm = std::chrono::milliseconds(500);  // of hellos, for one that was cut off
  // ---- Coordinator: its journal ----
  Duration journal_retry_min = std::chrono::milliseconds(100);  // twice as long each time
  Duration journal_retry_max = std::chrono::seconds(2);
  Duration journal_late = std::chrono::milliseconds(250);  // then nobody new is answered
  Duration last_record_time = std::chrono::seconds(2);     // for who was interrupted
  // ---- Coordinator: joiners and shadows ----
  Duration join_patience = std::chrono::seconds(30);        // others wait for one that stands still
  Duration shadow_late_min = std::chrono::seconds(2);       // with a step's result
  Duration shadow_fetch_time = std::chrono::seconds(1800);  // to hold a stage's state
  Duration shadow_rest_time = std::chrono::seconds(120);    // of a host whose shadow was demoted
  Duration catch_up_time = std::chrono::seconds(30);        // a ready shadow has the last commit
  Duration return_time = std::chrono::seconds(5);           // sent to a stage, its host comes back
  Duration build_time = std::chrono::seconds(120);          // ... and has built it
  Duration move_time = std::chrono::seconds(60);            // a peer that moves comes back
  Duration farewell_time = std::chrono::milliseconds(400);  // for peers to hear the end
  // ---- Peer: its coordinator ----
  Duration coordinator_silence = std::chrono::seconds(10);  // then another address is tried
  Duration coordinator_answer = Limits::rpc_deadline;       // to a call
  Duration connect_timeout = std::chrono::seconds(10);
  Duration rejoin_pause = std::chrono::milliseconds(200);
  Duration rejoin_calm = std::chrono::seconds(10);  // of a connection; then pauses begin anew
  Duration rejoin_pause_max = std::chrono::seconds(2);
  Duration reach_timeout = std::chrono::seconds(2);
  Duration welcome_timeout = std::chrono::seconds(4);
  Duration goodbye_time = std::chrono::milliseconds(200);
  // ---- Peer: links to others ----
  Duration redial_pause_min = std::chrono::milliseconds(100);  // twice as long each time
  Duration redial_pause_max = std::chrono::seconds(2);
  Duration call_after = std::chrono::seconds(1);  // that nobody answered: it asks to be called
  Duration call_time = std::chrono::seconds(8);   // for the call to come
  Duration call_grace = std::chrono::seconds(2);  // a link so young is what was asked for
  // ---- Peer: microbatches ----
  Duration report_delay = std::chrono::milliseconds(1);
  Duration relink_delay = std::chrono::milliseconds(100);
  Duration left_out_min = std::chrono::milliseconds(500);  // whose link can't be had; twice ...
  Duration left_out_max = std::chrono::seconds(10);        // ... as long each time
  Duration hop_late_min = std::chrono::milliseconds(400);  // before an early second try
  std::uint32_t hop_owed_max = 4;                          // early second tries of one peer
  // ---- Peer: state and results of others ----
  Duration frozen_idle = std::chrono::seconds(60);  // a frozen state nobody asks for is let go
  Duration state_retry = std::chrono::seconds(1);
  Duration piece_time = std::chrono::seconds(20);  // to answer for a piece; then another is asked
  Duration rest_max = std::chrono::seconds(10);    // of a shadow between two pieces
  Duration refetch_delay = std::chrono::milliseconds(200);
  std::uint32_t fetch_tries_max = 25;                           // of one result, in a row
  std::uint32_t damaged_in_a_row = 3;                           // pieces, then another holder
  std::uint32_t state_piece_bytes = Limits::state_piece_bytes;  // the same at all that take part
  // ---- Peer: a checkpoint's pieces ----
  Duration piece_again = std::chrono::seconds(1);  // one that nobody answered is sent once more
};

// One line of the table, for whoever turns knobs or lists them. A knob is a duration or a count.
struct KnobInfo {
  std::string_view name;
  Duration Knobs::* duration = nullptr;
  std::uint32_t Knobs::* count = nullptr;
  double low = 1;   // times the default: the least that the protocol must bear
  double high = 1;  // ... and the most
  // Whoever has tried so often gives up: goes up with deadlines that are turned down.
  bool gives_up = false;
  bool on_request = false;  // turned only by seeds that ask for it
};
std::span<const KnobInfo> knob_table();

const Knobs& knobs();

// While it lives the process runs with these.
class TurnedKnobs {
 public:
  explicit TurnedKnobs(const Knobs& turned);
  ~TurnedKnobs();
  TurnedKnobs(const TurnedKnobs&) = delete;
  TurnedKnobs& operator=(const TurnedKnobs&) = delete;

 private:
  Knobs before_;
};

}  // namespace swarmline
