#include "cli/status_source.h"

#include <array>
#include <cstdio>

#include <fmt/format.h>

#include "engine/store/files.h"
#include "node/read_status.h"
#include "node/run_folder.h"

namespace swarmline {
namespace {

Result<std::string> read_standard_input(std::uint64_t bytes_max) {
  std::string text;
  std::array<char, 1 << 16> part{};
  while (const std::size_t got = std::fread(part.data(), 1, part.size(), stdin)) {
    text.append(part.data(), got);
    if (text.size() > bytes_max)
      return fail(ErrorCode::kUserMistake,
                  fmt::format("the standard input: expected at most {} MiB", bytes_max >> 20));
  }
  if (std::ferror(stdin) != 0) return fail(ErrorCode::kIo, "cannot read the standard input");
  return text;
}

// "HOST:PORT", "swarm1..." or a folder; whatever else is the name of a file.
bool names_a_run(const std::string& named) {
  if (file_exists(named)) return is_folder(named);
  return named.starts_with("swarm1") || named.contains(':');
}

}  // namespace

Result<std::string> read_status_source(const std::string& named, std::uint64_t bytes_max) {
  if (named == "-") return read_standard_input(bytes_max);
  if (!names_a_run(named)) return read_text_file(named, bytes_max);
  const auto run = find_run(named);
  if (!run) return std::unexpected(run.error());
  return read_status(*run);
}

}  // namespace swarmline
