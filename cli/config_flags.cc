#include "cli/config_flags.h"

#include <cctype>
#include <charconv>
#include <cmath>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "engine/config/load.h"

namespace swarmline {
namespace {

enum class Form : std::uint8_t {
  kAsIs,
  kText,   // quoted, so that no value is taken for a number
  kBytes,  // 16G is 16 x 1024^3
  kBits,   // 100M is 100 x 1000^2
};
struct PeerKey {
  const char* flag;
  const char* key;
  const char* value;
  const char* help;
  Form form = Form::kAsIs;
};

constexpr PeerKey kPeerKeys[] = {
    {"--device", "peer.device", "cpu|cuda|cuda:N", "Compute device", Form::kText},
    {"--threads", "peer.threads", "N", "Compute threads"},
    {"--memory", "peer.memory_bytes", "BYTES", "Memory it may use, e.g. 16G; 0: measured",
     Form::kBytes},
    {"--listen", "peer.listen", "HOST:PORT", "Address to listen on; port 0: any free port",
     Form::kText},
    {"--advertise", "peer.advertise", "HOST:PORT", "Address that other peers dial", Form::kText},
    {"--key", "peer.key", "FILE",
     "File of this peer's own key, created if missing; default: a new key each time", Form::kText},
    {"--data", "peer.data", "DIR",
     "Folder with the run's data on this machine; default: the coordinator's path", Form::kText},
    {"--data-root", "peer.data_root", "DIR",
     "Only read data below this folder; default: that of --data, else the current folder",
     Form::kText},
    {"--fetch-data-cache", "peer.fetch_data_cache_mb", "MB",
     "Size limit of the cache of fetched data"},
    {"--join-patience", "peer.join_patience_seconds", "SECONDS",
     "Keep retrying for this long while no coordinator answers"},
    {"--zone", "peer.zone", "NAME", "Availability zone of this machine", Form::kText},
    {"--price", "peer.price", "NUMBER", "Price per hour"},
    {"--bandwidth", "peer.bandwidth", "BITS/S", "Network bandwidth, e.g. 100M; 0: measured",
     Form::kBits},
    {"--emulate-forward-ms", "peer.emulate.forward_ms", "MS",
     "Make each forward pass take this long (emulation)"},
    {"--emulate-backward-ms", "peer.emulate.backward_ms", "MS",
     "Make each backward pass take this long (emulation)"},
    {"--emulate-jitter", "peer.emulate.jitter", "J",
     "Multiply those times by a random draw from [1 - J, 1 + J]"},
};

// What is no number with one of these letters is left to who checks the key.
std::string with_unit_spelled_out(const std::string& value, double step) {
  constexpr std::string_view kUnits = "KMGT";
  double number = 0;
  const char* const last = value.data() + value.size();
  const auto [end, error] = std::from_chars(value.data(), last, number);
  if (error != std::errc() || last - end != 1) return value;
  const std::size_t power = kUnits.find(static_cast<char>(std::toupper(*end)));
  if (power == kUnits.npos) return value;
  return fmt::format("{:.0f}", number * std::pow(step, power + 1));
}

std::string as_toml(const PeerKey& key, const std::string& value) {
  switch (key.form) {
    case Form::kText:
      return "\"" + value + "\"";
    case Form::kBytes:
      return with_unit_spelled_out(value, 1024);
    case Form::kBits:
      return with_unit_spelled_out(value, 1000);
    case Form::kAsIs:
      break;
  }
  return value;
}

}  // namespace

void add_config_flags(CLI::App& command, ConfigFlags& flags) {
  command.add_option("config", flags.path, "The run's TOML file")->required()->type_name("CONFIG");
  command.add_option("--set", flags.overrides, "Override one config key; repeatable")
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
              flags.overrides.push_back(std::string(key.key) + "=" + as_toml(key, value));
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
          "Fetch missing data from other peers and keep it in DIR; default: the user's cache")
      ->expected(0, 1)
      ->type_name("[DIR]");
  command.add_flag_callback(
      "--insecure", [&flags] { flags.overrides.emplace_back("peer.insecure=true"); },
      "Join another machine by HOST:PORT, without authentication or encryption");
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
      const bool has_unit = key.form == Form::kBytes || key.form == Form::kBits;
      if (const auto example = error.what.find("; write for example");
          has_unit && example != error.what.npos)
        error.what = error.what.substr(0, example) + ", with or without K, M, G or T behind it";
    }
  }
  return std::unexpected(std::move(error));
}

}  // namespace swarmline
