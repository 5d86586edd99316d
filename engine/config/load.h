// From a TOML file and `--set` overrides to checked values, and back to text.
//   Errors: kUserMistake for whatever a user can have got wrong, in one sentence
//           "FILE:LINE: section.key: what was found, what was expected; what to do"
//           ("--set" stands in place of FILE:LINE for an override). The first mistake in the file's
//           order is reported; relations between keys are checked after every key by itself. kIo:
//           the disk failed.
//   Bounds: Limits::config_file_bytes_max of text.
//   Thread: any; no state.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/config/run_config.h"

namespace swarmline {

// Each override is "section.key=value" with the value in TOML syntax; a bare word is text, so that
// `optimizer.kind=lamb` needs no quotes. Overrides win over the file, later ones over earlier ones.
using Overrides = std::span<const std::string>;

Result<RunConfig> load_run_config(const std::string& path, Overrides overrides = {});
// `origin` names the text in sentences, as a file's path would.
Result<RunConfig> run_config_from_text(std::string_view text, std::string_view origin,
                                       Overrides overrides = {});
// Every key with its value. run_config_from_text gives the same RunConfig back, bit for bit.
std::string to_toml(const RunConfig& config);

// An empty `path`: defaults and overrides ("peer.device=cuda") alone.
Result<PeerConfig> load_peer_config(const std::string& path, Overrides overrides = {});
Result<PeerConfig> peer_config_from_text(std::string_view text, std::string_view origin,
                                         Overrides overrides = {});
std::string to_toml(const PeerConfig& config);

// docs/config.md: every key, its type and range, its default and what it means.
std::string config_reference();

}  // namespace swarmline
