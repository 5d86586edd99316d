#include "pipeline/coordinator/run/run_journal.h"

#include <charconv>

#include <fmt/format.h>

namespace swarmline {

namespace {
constexpr const char* kRunId = "run_id";
constexpr const char* kTerm = "term";
constexpr const char* kAddress = "address";
constexpr const char* kEra = "era";
constexpr const char* kEraVersion = "era_version";
constexpr const char* kEraUpdates = "era_updates";
constexpr const char* kCheckpoint = "checkpoint";
constexpr const char* kEvaluated = "evaluated";
constexpr const char* kCodecs = "codecs";
constexpr const char* kStarted = "started";
constexpr const char* kStopping = "stopping";
constexpr const char* kEnded = "ended";
}  // namespace

Result<std::uint64_t> RunJournal::number(const std::string& key) {
  auto text = journal_.get_meta(key);
  if (!text) return std::unexpected(std::move(text).error());
  std::uint64_t number = 0;
  if (!*text) return number;
  const auto [end, error] =
      std::from_chars((*text)->data(), (*text)->data() + (*text)->size(), number);
  if (error != std::errc() || end != (*text)->data() + (*text)->size())
    return fail(ErrorCode::kCorrupt, fmt::format("the journal's {} is \"{}\"", key, **text));
  return number;
}

Result<std::uint64_t> RunJournal::term() {
  return number(kTerm);
}
Result<void> RunJournal::record_term(Term term) {
  return put(kTerm, std::to_string(term.value));
}
Result<std::optional<std::string>> RunJournal::run_id() {
  return journal_.get_meta(kRunId);
}
Result<void> RunJournal::record_run_id(const std::string& run_id) {
  return put(kRunId, run_id);
}
Result<std::optional<std::string>> RunJournal::address() {
  return journal_.get_meta(kAddress);
}
Result<void> RunJournal::record_address(const std::string& address) {
  return put(kAddress, address);
}

Result<JournaledRun> RunJournal::read() {
  JournaledRun run;
  const auto take = [&](const char* key, auto& into) -> Result<void> {
    auto found = number(key);
    if (!found) return std::unexpected(std::move(found).error());
    into = static_cast<std::remove_reference_t<decltype(into)>>(*found);
    return {};
  };
  SWARMLINE_TRY(take(kEra, run.era.value));
  SWARMLINE_TRY(take(kEraVersion, run.era_version));
  SWARMLINE_TRY(take(kEraUpdates, run.era_updates));
  SWARMLINE_TRY(take(kEvaluated, run.evaluated));
  SWARMLINE_TRY(take(kStarted, run.started));
  SWARMLINE_TRY(take(kStopping, run.stopping));
  SWARMLINE_TRY(take(kEnded, run.ended));
  auto updates = journal_.get_meta(kEraUpdates);
  if (!updates) return std::unexpected(std::move(updates).error());
  run.era_updates_known = updates->has_value() || run.era_version == 0;
  auto checkpoint = journal_.get_meta(kCheckpoint);
  if (!checkpoint) return std::unexpected(std::move(checkpoint).error());
  run.checkpoint = checkpoint->value_or("");
  auto codecs = journal_.get_meta(kCodecs);
  if (!codecs) return std::unexpected(std::move(codecs).error());
  run.codecs = std::move(*codecs);
  auto last = journal_.last_commit();
  if (!last) return std::unexpected(std::move(last).error());
  run.last_commit = std::move(*last);
  auto seats = journal_.seats();
  if (!seats) return std::unexpected(std::move(seats).error());
  run.seats = std::move(*seats);
  return run;
}

Result<void> RunJournal::record_era(Era era, std::uint64_t version, std::uint64_t updates,
                                    const std::string& checkpoint) {
  SWARMLINE_TRY(put(kEraVersion, std::to_string(version)));
  SWARMLINE_TRY(put(kEraUpdates, std::to_string(updates)));
  SWARMLINE_TRY(put(kCheckpoint, checkpoint));
  SWARMLINE_TRY(put(kEvaluated, "0"));
  return put(kEra, std::to_string(era.value));
}

Result<void> RunJournal::record_started(Era era) {
  SWARMLINE_TRY(put(kEnded, "0"));
  SWARMLINE_TRY(put(kStopping, "0"));
  return put(kStarted, std::to_string(std::uint64_t{era.value} + 1));
}

Result<void> RunJournal::record_stopping() {
  return put(kStopping, "1");
}
Result<void> RunJournal::record_ended() {
  return put(kEnded, "1");
}
Result<void> RunJournal::record_evaluated(std::uint64_t version) {
  return put(kEvaluated, std::to_string(version));
}
Result<void> RunJournal::record_checkpoint(const std::string& path) {
  return put(kCheckpoint, path);
}
Result<void> RunJournal::record_codecs(const std::string& codecs) {
  return put(kCodecs, codecs);
}

Result<bool> RunJournal::has_ended(Journal& journal) {
  const auto ended = journal.get_meta(kEnded);
  if (!ended) return std::unexpected(ended.error());
  return ended->value_or("0") == "1";
}

}  // namespace swarmline
