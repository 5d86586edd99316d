#include "cli/config_flags.h"

#include <cstdio>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "cli/examples.h"
#include "engine/config/load.h"
#include "engine/config/raw_toml.h"
#include "engine/store/files.h"

namespace swarmline {
namespace {

constexpr const char* kListExamples = "list";

enum class Form : std::uint8_t {
  kAsIs,
  kText,      // quoted, so that no value is taken for a number
  kWithUnit,  // quoted; the key takes K, M, G and T
};
struct KeyFlag {
  const char* flag;
  const char* key;
  const char* value;
  const char* help;
  Form form = Form::kAsIs;
};

constexpr KeyFlag kPeerKeys[] = {
    {"--device", "peer.device", "cpu|cuda|cuda:N", "Compute device", Form::kText},
    {"--threads", "peer.threads", "N", "Compute threads"},
    {"--memory", "peer.memory_bytes", "BYTES", "Memory it may use, e.g. 16G; 0: measured",
     Form::kWithUnit},
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
     "Size limit of the cache of fetched data, in MiB or e.g. 4G", Form::kWithUnit},
    {"--join-patience", "peer.join_patience_seconds", "SECONDS",
     "Keep retrying for this long while no coordinator answers"},
    {"--zone", "peer.zone", "NAME", "Availability zone of this machine", Form::kText},
    {"--price", "peer.price", "NUMBER", "Price of this machine per hour"},
    {"--egress-price", "peer.egress_price", "NUMBER", "Price of a gigabyte that it sends"},
    {"--bandwidth", "peer.bandwidth", "BITS/S", "Network bandwidth, e.g. 100M; 0: not said",
     Form::kWithUnit},
    {"--notices", "peer.notices", "SOURCE",
     "Who warns that this machine will be taken away: auto, aws, gcp, azure, command or none",
     Form::kText},
    {"--notice-command", "peer.notice_command", "COMMAND",
     "Shell command that waits for that warning and exits with 0 (with --notices command)",
     Form::kText},
    {"--notice-url", "peer.notice_url", "http://HOST:PORT",
     "Metadata server to ask; default: the cloud's own", Form::kText},
    {"--emulate-forward-ms", "peer.emulate.forward_ms", "MS",
     "Make each forward pass take this long (emulation)"},
    {"--emulate-backward-ms", "peer.emulate.backward_ms", "MS",
     "Make each backward pass take this long (emulation)"},
    {"--emulate-jitter", "peer.emulate.jitter", "J",
     "Multiply those times by a random draw from [1 - J, 1 + J]"},
};

constexpr KeyFlag kCoordinatorKeys[] = {
    {"--listen", "net.listen", "HOST:PORT", "Address to listen on; port 0: any free port",
     Form::kText},
    {"--log-level", "log.level", "LEVEL", "debug, info, warn or error", Form::kText},
};

void add_key_flag(CLI::App& command, const KeyFlag& key, std::vector<std::string>& overrides) {
  command
      .add_option_function<std::string>(
          key.flag,
          [&overrides, &key](const std::string& value) {
            overrides.push_back(fmt::format("{}={}", key.key,
                                            key.form == Form::kAsIs ? value : toml_quoted(value)));
          },
          key.help)
      ->type_name(key.value);
}

// A mistake in a flag is told as the flag's, not as that of the key behind it.
Error told_as_a_flag(Error error, std::span<const KeyFlag> keys) {
  for (const KeyFlag& key : keys) {
    const std::string where = std::string("--set: ") + key.key + ":";
    if (!error.what.starts_with(where)) continue;
    error.what = std::string(key.flag) + ":" + error.what.substr(where.size());
    // How the key is written in a file is no example for a flag.
    if (const auto example = error.what.find("; write for example"); example != error.what.npos)
      error.what.resize(example);
    break;
  }
  return error;
}

}  // namespace

void add_config_flags(CLI::App& command, ConfigFlags& flags) {
  CLI::Option* path =
      command.add_option("config", flags.path, "The run's TOML file")->type_name("CONFIG");
  command
      .add_option_function<std::string>(
          "--example",
          [&flags](const std::string& name) {
            if (name == kListExamples) {
              std::fputs(list_of_examples().c_str(), stdout);
              throw CLI::Success();
            }
            flags.example = name;
          },
          "Use a built-in run instead of a file; list: show which there are")
      ->excludes(path)
      ->type_name(fmt::format("{{{},{}}}", kListExamples, names_of_examples(",")));
  command.add_option("--set", flags.overrides, "Override one config key; repeatable")
      ->type_name("SECTION.KEY=VALUE")
      ->allow_extra_args(false);
  command.add_option("--name", flags.name, "Short for --set run.name=NAME")->type_name("NAME");
}

void add_coordinator_flags(CLI::App& command, ConfigFlags& flags) {
  for (const KeyFlag& key : kCoordinatorKeys) add_key_flag(command, key, flags.overrides);
  command.add_flag_callback(
      "--insecure", [&flags] { flags.overrides.emplace_back("security.insecure=true"); },
      "Links beyond this machine without authentication or encryption");
}

Result<RunConfig> load_config(const ConfigFlags& flags) {
  std::vector<std::string> overrides = flags.overrides;
  if (!flags.name.empty()) overrides.push_back("run.name=" + toml_quoted(flags.name));
  if (!flags.example.empty()) return load_example(flags.example, overrides);
  if (flags.path.empty())
    return fail(ErrorCode::kUserMistake,
                "found no config, expected a TOML file; name one, or take a built-in run with "
                "--example quickstart (--example list shows all)");
  auto config = load_run_config(flags.path, overrides);
  if (config && (config->data.from_step > 0 || config->data.from_sequence > 0))
    return fail(ErrorCode::kUserMistake,
                flags.path +
                    ": data.from_step, data.from_sequence: found in a config file, where a run "
                    "that was changed says them to its peers alone; remove both");
  if (config) return config;
  Error error = told_as_a_flag(std::move(config).error(), kCoordinatorKeys);
  if (!file_exists(flags.path)) error.what += "; a built-in run needs none: --example quickstart";
  return std::unexpected(std::move(error));
}

void add_peer_flags(CLI::App& command, PeerFlags& flags) {
  command.add_option("--config", flags.path, "Machine-local keys ([peer]) as a file")
      ->type_name("PEER.TOML");
  for (const KeyFlag& key : kPeerKeys) add_key_flag(command, key, flags.overrides);
  command
      .add_option_function<std::string>(
          "--fetch-data",
          [&flags](const std::string& folder) {
            flags.overrides.emplace_back("peer.fetch_data=true");
            if (!folder.empty())
              flags.overrides.push_back("peer.fetch_data_folder=" + toml_quoted(folder));
          },
          "Fetch missing data from other peers and keep it in DIR; default: the user's cache")
      ->expected(0, 1)
      ->type_name("[DIR]");
  command.add_flag_callback(
      "--insecure", [&flags] { flags.overrides.emplace_back("peer.insecure=true"); },
      "Join another machine by HOST:PORT, without authentication or encryption");
}

Result<PeerConfig> load_peer(const PeerFlags& flags) {
  auto config = load_peer_config(flags.path, flags.overrides);
  if (!config) return std::unexpected(told_as_a_flag(config.error(), kPeerKeys));
  return config;
}

}  // namespace swarmline
