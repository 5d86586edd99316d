// The flags that several commands share.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "base/log.h"
#include "base/result.h"
#include "engine/config/run_config.h"

namespace swarmline {

// CONFIG or --example, --set and --name.
struct ConfigFlags {
  std::string path;
  std::string example;
  std::vector<std::string> overrides;
  std::string name;
};
void add_config_flags(CLI::App& command, ConfigFlags& flags);
// --listen, --insecure and --log-level, as a peer has them.
void add_coordinator_flags(CLI::App& command, ConfigFlags& flags);
// Relative file names in the config are relative to the working folder. kUserMistake: neither a
// file nor an example.
Result<RunConfig> load_config(const ConfigFlags& flags);

// --config and a flag for each machine-local key; a flag wins over the file.
struct PeerFlags {
  std::string path;
  std::vector<std::string> overrides;  // "peer.device=cuda"
};
void add_peer_flags(CLI::App& command, PeerFlags& flags);
Result<PeerConfig> load_peer(const PeerFlags& flags);

}  // namespace swarmline
