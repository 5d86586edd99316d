// The commands of the program, one file each. Each adds itself to the command line; chosen, it runs
// from CLI11's callback and leaves its exit code in `exit_code`.
//   Lifetime: `exit_code` outlives the parsing.
#pragma once

#include <CLI/CLI.hpp>

#include "node/network_factory.h"

namespace swarmline {

void add_launch_command(CLI::App& app, int& exit_code);
void add_coordinator_command(CLI::App& app, int& exit_code, NetworkFactory network);
void add_peer_command(CLI::App& app, int& exit_code, NetworkFactory network);
void add_tapped_command(CLI::App& app, int& exit_code);  // hidden: what chaos starts
void add_relay_command(CLI::App& app, int& exit_code);
void add_doctor_command(CLI::App& app, int& exit_code);
void add_memory_command(CLI::App& app, int& exit_code);
void add_status_command(CLI::App& app, int& exit_code);
void add_show_command(CLI::App& app, int& exit_code);
void add_stop_command(CLI::App& app, int& exit_code);
void add_invite_command(CLI::App& app, int& exit_code);
void add_keys_command(CLI::App& app, int& exit_code);
void add_checkpoint_command(CLI::App& app, int& exit_code);
void add_config_command(CLI::App& app, int& exit_code);
void add_data_command(CLI::App& app, int& exit_code);
void add_link_proxy_command(CLI::App& app, int& exit_code);
void add_plot_command(CLI::App& app, int& exit_code);
void add_plan_command(CLI::App& app, int& exit_code);
void add_fleet_command(CLI::App& app, int& exit_code);
void add_fleet_init_command(CLI::App& fleet, int& exit_code);  // below fleet
void add_fleet_plan_command(CLI::App& fleet, int& exit_code);
void add_simulate_command(CLI::App& app, int& exit_code);
void add_chaos_command(CLI::App& app, int& exit_code);
void add_bench_command(CLI::App& app, int& exit_code);
void add_bench_allreduce_command(CLI::App& bench, int& exit_code);  // below bench
void add_bench_links_command(CLI::App& bench, int& exit_code);      // the same
void add_bench_ratio_command(CLI::App& bench, int& exit_code);      // the same
void add_version_command(CLI::App& app, int& exit_code);
void add_completion_command(CLI::App& app);
void add_help_command(CLI::App& app, int& exit_code);

}  // namespace swarmline
