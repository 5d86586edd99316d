#include "pipeline/protocol/knobs.h"

namespace swarmline {

namespace {

constexpr KnobInfo kTable[] = {
    {.name = "looks_per_heartbeat", .count = &Knobs::looks_per_heartbeat},
    {.name = "stuck_hop_timeouts", .count = &Knobs::stuck_hop_timeouts},
    {.name = "stuck_heartbeats", .count = &Knobs::stuck_heartbeats},
    {.name = "stuck_seats_max", .count = &Knobs::stuck_seats_max},
    {.name = "silence_max", .duration = &Knobs::silence_max},
    {.name = "self_restarts_max", .count = &Knobs::self_restarts_max},
    {.name = "probe_time", .duration = &Knobs::probe_time},
    {.name = "probe_stands", .duration = &Knobs::probe_stands},
    {.name = "reduce_deadline", .duration = &Knobs::reduce_deadline},
    {.name = "reduce_deadlines_max", .count = &Knobs::reduce_deadlines_max},
    {.name = "round_retry_delay", .duration = &Knobs::round_retry_delay},
    {.name = "broken_links_max", .count = &Knobs::broken_links_max},
    {.name = "mismatches_max", .count = &Knobs::mismatches_max},
    {.name = "round_attempts_max", .count = &Knobs::round_attempts_max},
    {.name = "tail_patience_min", .duration = &Knobs::tail_patience_min},
    {.name = "checkpoint_deadline", .duration = &Knobs::checkpoint_deadline},
    {.name = "damaged_checkpoints_max", .count = &Knobs::damaged_checkpoints_max},
    {.name = "gather_time", .duration = &Knobs::gather_time},
    {.name = "fruitless_eras_max", .count = &Knobs::fruitless_eras_max},
    {.name = "eras_at_once", .count = &Knobs::eras_at_once},
    {.name = "era_pause_min", .duration = &Knobs::era_pause_min},
    {.name = "era_pause_max", .duration = &Knobs::era_pause_max},
    {.name = "redial_time", .duration = &Knobs::redial_time},
    {.name = "shadow_late_min", .duration = &Knobs::shadow_late_min},
    {.name = "shadow_fetch_time", .duration = &Knobs::shadow_fetch_time},
    {.name = "shadow_rest_time", .duration = &Knobs::shadow_rest_time},
    {.name = "catch_up_time", .duration = &Knobs::catch_up_time},
    {.name = "return_time", .duration = &Knobs::return_time},
    {.name = "build_time", .duration = &Knobs::build_time},
    {.name = "move_time", .duration = &Knobs::move_time},
    {.name = "farewell_time", .duration = &Knobs::farewell_time},
    {.name = "coordinator_silence", .duration = &Knobs::coordinator_silence},
    {.name = "connect_timeout", .duration = &Knobs::connect_timeout},
    {.name = "rejoin_pause", .duration = &Knobs::rejoin_pause},
    {.name = "reach_timeout", .duration = &Knobs::reach_timeout},
    {.name = "welcome_timeout", .duration = &Knobs::welcome_timeout},
    {.name = "goodbye_time", .duration = &Knobs::goodbye_time},
    {.name = "report_delay", .duration = &Knobs::report_delay},
    {.name = "relink_delay", .duration = &Knobs::relink_delay},
    {.name = "hop_late_min", .duration = &Knobs::hop_late_min},
    {.name = "hop_owed_max", .count = &Knobs::hop_owed_max},
    {.name = "frozen_idle", .duration = &Knobs::frozen_idle},
    {.name = "state_retry", .duration = &Knobs::state_retry},
    {.name = "rest_max", .duration = &Knobs::rest_max},
    {.name = "refetch_delay", .duration = &Knobs::refetch_delay},
    {.name = "fetch_tries_max", .count = &Knobs::fetch_tries_max},
    {.name = "damaged_in_a_row", .count = &Knobs::damaged_in_a_row},
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
