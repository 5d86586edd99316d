// The runs of configs/, built into the program, so that they are at hand wherever it is.
//   Data:   what an example's [data] files name. Where nothing here matches one of them and its
//           kind is "bytes", the text that is installed with the program (share/swarmline/text)
//           takes their place, which is said on stderr; where that is missing, too, the files stay,
//           and are missed later.
//   Errors: kUserMistake: no example has that name; and those of load_run_config().
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/config/run_config.h"

namespace swarmline {

struct Example {
  std::string_view name;  // "quickstart"
  std::string_view text;  // TOML; a comment that says what it is comes first
};

std::span<const Example> examples();  // by name
Result<Example> find_example(std::string_view name);
Result<RunConfig> load_example(std::string_view name, std::span<const std::string> overrides);

// A line for each: its name, and the first sentence of its comment.
std::string list_of_examples();
std::string names_of_examples(std::string_view separator);

}  // namespace swarmline
