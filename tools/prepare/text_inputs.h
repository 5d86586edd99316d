// What the command line names: files, globs and standard input, in order, each once.
//   Kinds:   by --format, else by name: .jsonl and .ndjson (also with .gz or .zst behind it) are
//            JSONL, .parquet is Parquet, all else is text.
//   Errors:  kUserMistake, one sentence. Thread: pure, but for the files' sizes.
//   Bounds:  kTextInputsMax.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "tools/prepare/text_blocks.h"

namespace swarmline {

inline constexpr std::size_t kTextInputsMax = 1U << 22;

Result<std::vector<TextInput>> find_text_inputs(std::span<const std::string> words,
                                                std::optional<InputKind> kind);

}  // namespace swarmline
