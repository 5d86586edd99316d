#include "pipeline/protocol/knobs.h"

namespace swarmline {

namespace {

// So turned a run may be slower and lose more peers than it would, and ends well all the same. Low
// deadlines are within what faults of seeds last, so that they pass. A count at which somebody
// gives up on the run or on a peer has no low value: with few tries the run may rightly end.
constexpr KnobInfo kTable[] = {
    {.name = "looks_per_heartbeat", .count = &Knobs::looks_per_heartbeat, .low = 0.5, .high = 4},
    {.name = "stuck_hop_timeouts", .count = &Knobs::stuck_hop_timeouts, .low = 0.5, .high = 4},
    {.name = "stuck_heartbeats", .count = &Knobs::stuck_heartbeats, .low = 0.2, .high = 4},
    {.name = "stuck_seats_max", .count = &Knobs::stuck_seats_max, .low = 0.34, .high = 3},
    {.name = "silence_max", .duration = &Knobs::silence_max, .low = 0.1, .high = 3},
    {.name = "lost_peers_kept", .count = &Knobs::lost_peers_kept, .low = 0.001},
    {.name = "heartbeats_per_second",
     .count = &Knobs::heartbeats_per_second,
     .low = 0.001,
     .on_request = true},
    {.name = "heartbeat_period_max",
     .duration = &Knobs::heartbeat_period_max,
     .low = 0.2,
     .on_request = true},
    {.name = "self_restarts_max", .count = &Knobs::self_restarts_max, .high = 4, .gives_up = true},
    {.name = "probe_time", .duration = &Knobs::probe_time, .low = 0.2, .high = 5},
    {.name = "apart_time", .duration = &Knobs::apart_time, .low = 0.02, .high = 5},
    {.name = "probe_stands", .duration = &Knobs::probe_stands, .low = 0.1, .high = 10},
    {.name = "reduce_deadline", .duration = &Knobs::reduce_deadline, .low = 0.002},
    {.name = "round_retry_delay", .duration = &Knobs::round_retry_delay, .low = 0.1, .high = 10},
    {.name = "broken_links_max", .count = &Knobs::broken_links_max, .low = 0.34, .high = 4},
    {.name = "mismatches_max", .count = &Knobs::mismatches_max, .low = 0.34, .high = 4},
    {.name = "round_retry_max", .duration = &Knobs::round_retry_max, .low = 0.1, .high = 3},
    {.name = "mesh_patience", .duration = &Knobs::mesh_patience, .low = 0.02, .high = 2},
    {.name = "overslept_min", .duration = &Knobs::overslept_min, .low = 0.1, .high = 40},
    {.name = "hand_over_look", .duration = &Knobs::hand_over_look, .low = 0.05, .high = 4},
    {.name = "hand_over_margin", .duration = &Knobs::hand_over_margin, .low = 0.05, .high = 4},
    {.name = "tail_patience_min", .duration = &Knobs::tail_patience_min, .low = 0.1, .high = 10},
    {.name = "checkpoint_progress", .duration = &Knobs::checkpoint_progress, .low = 0.002},
    {.name = "checkpoint_pause_min",
     .duration = &Knobs::checkpoint_pause_min,
     .low = 0.1,
     .high = 10},
    {.name = "checkpoint_pause_max", .duration = &Knobs::checkpoint_pause_max, .low = 0.02},
    {.name = "part_bytes_min", .count = &Knobs::part_bytes_min, .low = 1e-5},
    {.name = "final_checkpoints_max",
     .count = &Knobs::final_checkpoints_max,
     .high = 4,
     .gives_up = true},
    {.name = "checkpoint_reads_max",
     .count = &Knobs::checkpoint_reads_max,
     .high = 4,
     .gives_up = true},
    {.name = "gather_time", .duration = &Knobs::gather_time, .low = 0.1, .high = 3},
    {.name = "fruitless_eras_max",
     .count = &Knobs::fruitless_eras_max,
     .high = 4,
     .gives_up = true},
    {.name = "eras_at_once", .count = &Knobs::eras_at_once, .low = 0.25, .high = 4},
    {.name = "era_pause_min", .duration = &Knobs::era_pause_min, .low = 0.1, .high = 10},
    {.name = "era_pause_max", .duration = &Knobs::era_pause_max, .low = 0.1, .high = 2},
    {.name = "collect_calm", .duration = &Knobs::collect_calm, .low = 0.1, .high = 4},
    {.name = "redial_time", .duration = &Knobs::redial_time, .low = 0.2, .high = 5},
    {.name = "journal_retry_min", .duration = &Knobs::journal_retry_min, .low = 0.1, .high = 10},
    {.name = "journal_retry_max", .duration = &Knobs::journal_retry_max, .low = 0.1, .high = 2.5},
    {.name = "journal_late", .duration = &Knobs::journal_late, .low = 0.1, .high = 8},
    {.name = "last_record_time", .duration = &Knobs::last_record_time, .low = 0.1, .high = 5},
    {.name = "shadow_late_min", .duration = &Knobs::shadow_late_min, .low = 0.05, .high = 5},
    {.name = "shadow_fetch_time", .duration = &Knobs::shadow_fetch_time, .low = 0.0005},
    {.name = "shadow_rest_time", .duration = &Knobs::shadow_rest_time, .low = 0.005},
    {.name = "catch_up_time", .duration = &Knobs::catch_up_time, .low = 0.01},
    {.name = "return_time", .duration = &Knobs::return_time, .low = 0.1, .high = 2},
    {.name = "build_time", .duration = &Knobs::build_time, .low = 0.01},
    {.name = "move_time", .duration = &Knobs::move_time, .low = 0.01},
    {.name = "farewell_time", .duration = &Knobs::farewell_time, .low = 0.25, .high = 5},
    {.name = "coordinator_silence", .duration = &Knobs::coordinator_silence, .low = 0.2, .high = 2},
    {.name = "connect_timeout", .duration = &Knobs::connect_timeout, .low = 0.05},
    {.name = "rejoin_pause", .duration = &Knobs::rejoin_pause, .low = 0.1, .high = 10},
    {.name = "rejoin_calm", .duration = &Knobs::rejoin_calm, .low = 0.1, .high = 10},
    {.name = "rejoin_pause_max", .duration = &Knobs::rejoin_pause_max, .low = 0.1, .high = 2},
    {.name = "reach_timeout", .duration = &Knobs::reach_timeout, .low = 0.1, .high = 3},
    {.name = "welcome_timeout", .duration = &Knobs::welcome_timeout, .low = 0.2, .high = 2},
    {.name = "goodbye_time", .duration = &Knobs::goodbye_time, .low = 0.1, .high = 5},
    {.name = "redial_pause_min", .duration = &Knobs::redial_pause_min, .low = 0.1, .high = 10},
    {.name = "redial_pause_max", .duration = &Knobs::redial_pause_max, .low = 0.1, .high = 2},
    {.name = "call_after", .duration = &Knobs::call_after, .low = 0.1, .high = 5},
    {.name = "call_time", .duration = &Knobs::call_time, .low = 0.1, .high = 2},
    {.name = "call_grace", .duration = &Knobs::call_grace, .low = 0.1, .high = 5},
    {.name = "report_delay", .duration = &Knobs::report_delay, .low = 0.1, .high = 50},
    {.name = "relink_delay", .duration = &Knobs::relink_delay, .low = 0.1, .high = 10},
    {.name = "left_out_min", .duration = &Knobs::left_out_min, .low = 0.02, .high = 10},
    {.name = "left_out_max", .duration = &Knobs::left_out_max, .low = 0.02, .high = 2},
    {.name = "hop_late_min", .duration = &Knobs::hop_late_min, .low = 0.05, .high = 10},
    {.name = "hop_owed_max", .count = &Knobs::hop_owed_max, .low = 0.25, .high = 8},
    {.name = "frozen_idle", .duration = &Knobs::frozen_idle, .low = 0.01},
    {.name = "join_patience", .duration = &Knobs::join_patience, .low = 0.02, .high = 3},
    {.name = "piece_time", .duration = &Knobs::piece_time, .low = 0.05, .high = 2},
    {.name = "state_retry", .duration = &Knobs::state_retry, .low = 0.05, .high = 5},
    {.name = "rest_max", .duration = &Knobs::rest_max, .low = 0.01},
    {.name = "refetch_delay", .duration = &Knobs::refetch_delay, .low = 0.1, .high = 10},
    {.name = "fetch_tries_max", .count = &Knobs::fetch_tries_max, .high = 4, .gives_up = true},
    {.name = "damaged_in_a_row", .count = &Knobs::damaged_in_a_row, .low = 0.34, .high = 4},
    {.name = "state_piece_bytes",
     .count = &Knobs::state_piece_bytes,
     .low = 0.0005,
     .on_request = true},
    {.name = "coordinator_answer",
     .duration = &Knobs::coordinator_answer,
     .low = 0.1,
     .on_request = true},
    {.name = "piece_again", .duration = &Knobs::piece_again, .low = 0.1, .high = 5},
};

Knobs& current() {
  static Knobs table;
  return table;
}

}  // namespace

std::span<const KnobInfo> knob_table() {
  return kTable;
}

const Knobs& knobs() {
  return current();
}

TurnedKnobs::TurnedKnobs(const Knobs& turned) : before_(current()) {
  current() = turned;
}

TurnedKnobs::~TurnedKnobs() {
  current() = before_;
}

}  // namespace swarmline
