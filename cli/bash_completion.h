// A script for bash (4.4 or newer) that completes the program's command line. Pure.
#pragma once

#include <span>
#include <string>

#include "cli/command_tree.h"

namespace swarmline {

std::string bash_completion(std::span<const CommandNode> tree);

}  // namespace swarmline
