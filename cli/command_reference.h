// Every command of the program with its options and examples, as Markdown: docs/commands/ is made
// from it (tests/docs/command_pages.py), so that a page and --help can't differ.
//   Left out: what is hidden from --help, and --help itself.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

namespace swarmline {

// A section "## swarmline NAME" for each command, and for each command of a group.
std::string command_reference(const CLI::App& app);

}  // namespace swarmline
