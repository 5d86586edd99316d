#include "node/dead_run.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "base/limits.h"
#include "console/text.h"
#include "engine/checkpoint/checkpoint_folder.h"
#include "engine/config/load.h"
#include "engine/store/files.h"
#include "engine/store/journal.h"
#include "pipeline/coordinator/run/run_journal.h"

namespace swarmline {
namespace {

std::string local_time(double wall_seconds) {
  const auto seconds = static_cast<std::time_t>(wall_seconds);
  std::tm parts{};
  localtime_r(&seconds, &parts);
  return fmt::format("{:%Y-%m-%d %H:%M:%S}", parts);
}

std::string how_far(const RunStatus& status, double wall_seconds) {
  const std::string when = wall_seconds > 0 ? " at " + local_time(wall_seconds) : std::string();
  if (status.step > 0)
    return fmt::format("died after step {} of {}{}", status.step, status.steps, when);
  return "died before its first step was done" + (when.empty() ? when : "; last heard of" + when);
}

std::string how_to_go_on(const RunFolder& folder, const std::string& checkpoint) {
  const std::string newest = checkpoint.empty()
                                 ? "there is no checkpoint, so it starts over"
                                 : fmt::format("its newest checkpoint is {}", checkpoint);
  return fmt::format("{}; continue with: swarmline launch {} (or coordinator, as it was started)",
                     newest, shell_word(folder.config()));
}

}  // namespace

Result<RunStatus> status_of_dead_run(const RunFolder& folder) {
  if (!file_exists(folder.journal()))
    return fail(ErrorCode::kNotFound, fmt::format("there is no {}", folder.journal()));
  auto text = read_text_file(folder.config(), Limits::config_file_bytes_max);
  if (!text) return std::unexpected(std::move(text).error());
  auto config = run_config_from_text(*text, folder.config());
  if (!config) return std::unexpected(std::move(config).error());
  auto journal = open_sqlite_journal(folder.journal());
  if (!journal) return std::unexpected(std::move(journal).error());
  auto commit = (*journal)->last_commit();
  if (!commit) return std::unexpected(std::move(commit).error());
  auto events = (*journal)->events(kDeadRunEvents);
  if (!events) return std::unexpected(std::move(events).error());
  const auto segments = RunJournal::segments_in(**journal);
  if (!segments) return std::unexpected(segments.error());
  auto newest = latest_checkpoint(folder.checkpoints());
  if (!newest) return std::unexpected(std::move(newest).error());

  RunStatus status;
  status.run = config->run.name;
  status.state = "died";
  status.steps = config->run.steps;
  if (!segments->empty()) status.segment = segments->back().number;
  if (status.segment > 1) status.segment_sentence = sentence_of(segments->back());
  if (*newest) status.checkpoint = (*newest)->path;
  for (const EventRecord& event : *events) {
    status.events.push_back({.wall_seconds = event.wall_seconds,
                             .kind = event.kind,
                             .detail = event.detail,
                             .level = std::string(to_string(event.level))});
    status.wall_seconds = std::max(status.wall_seconds, event.wall_seconds);
  }
  if (*commit) {
    status.step = (*commit)->step + 1;
    status.version = (*commit)->version;
    status.era = (*commit)->era;
    status.loss = (*commit)->loss;
    status.tokens = segments->empty() ? status.step * config->tokens_per_step()
                                      : tokens_until(in_force(*segments), status.version);
    status.wall_seconds = std::max(status.wall_seconds, (*commit)->wall_seconds);
  }
  status.sentence = fmt::format("{}; {}", how_far(status, status.wall_seconds),
                                how_to_go_on(folder, status.checkpoint));
  return status;
}

}  // namespace swarmline
