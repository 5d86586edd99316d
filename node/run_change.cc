#include "node/run_change.h"

#include <utility>

#include <fmt/format.h>

#include "base/limits.h"
#include "engine/config/begun_run.h"
#include "engine/config/load.h"
#include "engine/data/prepared_manifest.h"
#include "engine/store/files.h"
#include "node/run_store.h"
#include "pipeline/coordinator/run/run_journal.h"

namespace swarmline {

Result<RunSegments> read_segments(const RunConfig& config, const RunFolder& folder) {
  auto journal = read_journal(config, folder);
  if (!journal) return std::unexpected(std::move(journal).error());
  if (*journal == nullptr) return RunSegments();
  return RunJournal::segments_in(**journal);
}

std::string tokenizer_of(const DataSection& data) {
  for (const std::string& path : data.files) {
    if (!is_prepared(path)) continue;
    const auto manifest = read_prepared(path);
    if (!manifest) continue;
    const PreparedTokenizer& tokenizer = manifest->tokenizer;
    return tokenizer.sha256.empty() ? tokenizer.kind
                                    : fmt::format("{} {}", tokenizer.kind, tokenizer.sha256);
  }
  return {};
}

Result<void> check_old_journal(const RunConfig& config, const RunFolder& folder) {
  if (!file_exists(folder.config())) return {};
  auto journal = read_journal(config, folder);
  if (!journal) return std::unexpected(std::move(journal).error());
  if (*journal == nullptr) return {};
  const auto segments = RunJournal::segments_in(**journal);
  if (!segments) return std::unexpected(segments.error());
  if (!segments->empty()) return {};
  auto text = read_text_file(folder.config(), Limits::config_file_bytes_max);
  if (!text) return std::unexpected(std::move(text).error());
  const auto before = run_config_from_text(*text, folder.config());
  if (!before) return std::unexpected(before.error());
  for (const KeyChange& change : segment_changes(*before, config)) {
    if (change.key == kStepsKey) continue;
    return fail(ErrorCode::kUserMistake,
                fmt::format("{}: found {}, but the run began with {}, and the journal of {} was "
                            "written by an older swarmline, which kept no changes; go on for a "
                            "step with the config that it had, then change it",
                            change.key, change.after, change.before, folder.path()));
  }
  return {};
}

Result<void> check_change(const RunConfig& config, const RunFolder& folder, const RunData& data) {
  SWARMLINE_TRY(check_old_journal(config, folder));
  const auto segments = read_segments(config, folder);
  if (!segments) return std::unexpected(segments.error());
  const auto refusal = refusal_of(
      *segments,
      {.config = config, .vocab = data.model.shape.vocab, .tokenizer = tokenizer_of(config.data)});
  if (refusal)
    return fail(ErrorCode::kUserMistake,
                fmt::format("{} holds a run of another config: {}", folder.path(), *refusal));
  return {};
}

}  // namespace swarmline
