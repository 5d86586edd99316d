#include "cli/config_flags.h"

#include <utility>

#include "engine/config/load.h"

namespace swarmline {
namespace {

struct PeerKey {
  const char* flag;
  const char* key;
  const char* value;
  const char* help;
  bool text = false;  // quoted, so that no value is taken for a number
};

constexpr PeerKey kPeerKeys[] = {
    {"--device", "peer.device", "cpu|cuda|cuda:N", "What computes", true},
    {"--threads", "peer.threads", "N", "Compute threads"},
    {"--memory", "peer.memory_bytes", "BYTES", "Memory it may use; 0: measured"},
    {"--listen", "peer.listen", "HOST:PORT", "Where it listens; port 0: any free one", true},
    {"--advertise", "peer.advertise", "HOST:PORT", "Where other peers reach it", true},
    {"--key", "peer.key", "FILE", "Its own key; made if need be. Default: one for this time", true},
    {"--data", "peer.data", "DIR",
     "The folder with the run's data here; default: where the coordinator has it", true},
    {"--data-root", "peer.data_root", "DIR",
     "Reads data below it alone; default: that of --data, else the current folder", true},
    {"--fetch-data-cache", "peer.fetch_data_cache_mb", "MB",
     "So much of what it fetched stays on its disk"},
    {"--join-patience", "peer.join_patience_seconds", "SECONDS",
     "Tries so long while no coordinator answers"},
    {"--zone", "peer.zone", "NAME", "Where the machine stands", true},
    {"--price", "peer.price", "NUMBER", "What it costs an hour"},
    {"--bandwidth", "peer.bandwidth", "BITS/S", "Of its network; 0: measured"},
    {"--emulate-forward-ms", "peer.emulate.forward_ms", "MS", "Hold the device so long a forward"},
    {"--emulate-backward-ms", "peer.emulate.backward_ms", "MS",
     "Hold the device so long a backward"},
    {"--emulate-jitter", "peer.emulate.jitter", "J", "Times a draw from [1 - J, 1 + J]"},
};

}  // namespace

void add_config_flags(CLI::App& command, ConfigFlags& flags) {
  command.add_option("config", flags.path, "The run's TOML file")->required()->type_name("CONFIG");
  command.add_option("--set", flags.overrides, "Another value for one key; may be repeated")
      ->type_name("SECTION.KEY=VALUE")
      ->allow_extra_args(false);
  command.add_option("--name", flags.name, "Short for --set run.name=NAME")->type_name("NAME");
}

Result<RunConfig> load_config(const ConfigFlags& flags) {
  std::vector<std::string> overrides = flags.overrides;
  if (!flags.name.empty()) overrides.push_back("run.name=\"" + flags.name + "\"");
  return load_run_config(flags.path, overrides);
}

void add_peer_flags(CLI::App& command, PeerFlags& flags) {
  command.add_option("--config", flags.path, "Machine-local keys ([peer]) as a file")
      ->type_name("PEER.TOML");
  for (const PeerKey& key : kPeerKeys) {
    command
        .add_option_function<std::string>(
            key.flag,
            [&flags, &key](const std::string& value) {
              const std::string toml = key.text ? "\"" + value + "\"" : value;
              flags.overrides.push_back(std::string(key.key) + "=" + toml);
            },
            key.help)
        ->type_name(key.value);
  }
  command
      .add_option_function<std::string>(
          "--fetch-data",
          [&flags](const std::string& folder) {
            flags.overrides.emplace_back("peer.fetch_data=true");
            if (!folder.empty())
              flags.overrides.push_back("peer.fetch_data_folder=\"" + folder + "\"");
          },
          "Fetches data that it lacks from other peers, and keeps it in DIR; default: the user's "
          "cache")
      ->expected(0, 1)
      ->type_name("[DIR]");
  command.add_flag_callback(
      "--insecure", [&flags] { flags.overrides.emplace_back("peer.insecure=true"); },
      "Joins another machine by HOST:PORT; links are neither authenticated nor sealed");
}

// A mistake in a flag is told as the flag's, not as that of the key behind it.
Result<PeerConfig> load_peer(const PeerFlags& flags) {
  auto config = load_peer_config(flags.path, flags.overrides);
  if (config) return config;
  Error error = std::move(config).error();
  for (const PeerKey& key : kPeerKeys) {
    const std::string where = std::string("--set: ") + key.key + ":";
    if (error.what.starts_with(where)) {
      error.what = std::string(key.flag) + ":" + error.what.substr(where.size());
    }
  }
  return std::unexpected(std::move(error));
}

}  // namespace swarmline
