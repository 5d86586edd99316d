// A script for zsh (5.0 or newer) that completes the program's command line. Pure.
#pragma once

#include <span>
#include <string>

#include "cli/command_tree.h"

namespace swarmline {

std::string zsh_completion(std::span<const CommandNode> tree);

}  // namespace swarmline
