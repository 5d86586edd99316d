#include "pipeline/coordinator/run/run_journal.h"

#include <charconv>
#include <memory>
#include <utility>

#include <fmt/format.h>

namespace swarmline {

namespace {
constexpr const char* kRunId = "run_id";
constexpr const char* kKey = "key";
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
constexpr const char* kHasEnded = "ended";
constexpr const char* kNewestPeer = "newest_peer";
constexpr const char* kTotals = "totals";

std::string segment_key(std::uint64_t number) {
  return fmt::format("segment-{}", number);
}
}  // namespace

namespace {
Result<std::uint64_t> number_in(Journal& journal, const std::string& key) {
  auto text = journal.get_meta(key);
  if (!text) return std::unexpected(std::move(text).error());
  std::uint64_t number = 0;
  if (!*text) return number;
  const auto [end, error] =
      std::from_chars((*text)->data(), (*text)->data() + (*text)->size(), number);
  if (error != std::errc() || end != (*text)->data() + (*text)->size())
    return fail(ErrorCode::kCorrupt, fmt::format("the journal's {} is \"{}\"", key, **text));
  return number;
}
}  // namespace

Result<std::uint64_t> RunJournal::number(const std::string& key) {
  return number_in(writer_.at_once(), key);
}

Result<std::uint64_t> RunJournal::term() {
  return number(kTerm);
}
void RunJournal::ask_term(std::function<void(Result<std::uint64_t>)> done) {
  const auto found = std::make_shared<std::uint64_t>(0);
  writer_.journal().run(
      [found](Journal& journal) -> Result<void> {
        const auto term = number_in(journal, kTerm);
        if (!term) return std::unexpected(term.error());
        *found = *term;
        return {};
      },
      [found, done = std::move(done)](const Result<void>& asked) {
        asked ? done(*found) : done(std::unexpected(asked.error()));
      });
}
void RunJournal::record_term(Term term) {
  put(kTerm, std::to_string(term.value));
}
Result<std::optional<std::string>> RunJournal::run_id() {
  return writer_.at_once().get_meta(kRunId);
}
void RunJournal::record_run_id(const std::string& run_id) {
  put(kRunId, run_id);
}
Result<std::optional<std::string>> RunJournal::key() {
  return writer_.at_once().get_meta(kKey);
}
void RunJournal::record_key(const std::string& key) {
  put(kKey, key);
}
Result<std::optional<std::string>> RunJournal::address() {
  return writer_.at_once().get_meta(kAddress);
}
void RunJournal::record_address(const std::string& address) {
  put(kAddress, address);
}

Result<JournaledRun> RunJournal::read() {
  JournaledRun run;
  Journal& journal = writer_.at_once();
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
  SWARMLINE_TRY(take(kHasEnded, run.ended));
  SWARMLINE_TRY(take(kNewestPeer, run.newest_peer.value));
  auto updates = journal.get_meta(kEraUpdates);
  if (!updates) return std::unexpected(std::move(updates).error());
  run.era_updates_known = updates->has_value() || run.era_version == 0;
  auto checkpoint = journal.get_meta(kCheckpoint);
  if (!checkpoint) return std::unexpected(std::move(checkpoint).error());
  run.checkpoint = checkpoint->value_or("");
  auto codecs = journal.get_meta(kCodecs);
  if (!codecs) return std::unexpected(std::move(codecs).error());
  run.codecs = std::move(*codecs);
  auto last = journal.last_commit();
  if (!last) return std::unexpected(std::move(last).error());
  run.last_commit = std::move(*last);
  auto seats = journal.seats();
  if (!seats) return std::unexpected(std::move(seats).error());
  run.seats = std::move(*seats);
  auto segments = segments_in(journal);
  if (!segments) return std::unexpected(std::move(segments).error());
  run.segments = std::move(*segments);
  return run;
}

void RunJournal::record_era(Era era, std::uint64_t version, std::uint64_t updates,
                            const std::string& checkpoint) {
  put(kEraVersion, std::to_string(version));
  put(kEraUpdates, std::to_string(updates));
  put(kCheckpoint, checkpoint);
  put(kEvaluated, "0");
  put(kEra, std::to_string(era.value));
}

void RunJournal::record_started(Era era) {
  put(kHasEnded, "0");
  put(kStopping, "0");
  put(kStarted, std::to_string(std::uint64_t{era.value} + 1));
}

void RunJournal::record_stopping() {
  put(kStopping, "1");
}
void RunJournal::record_ended() {
  put(kHasEnded, "1");
}
void RunJournal::record_evaluated(std::uint64_t version) {
  put(kEvaluated, std::to_string(version));
}
void RunJournal::record_checkpoint(const std::string& path) {
  put(kCheckpoint, path);
}
void RunJournal::record_codecs(const std::string& codecs) {
  put(kCodecs, codecs);
}

void RunJournal::record_segment(const RunSegment& segment) {
  put(segment_key(segment.number), to_text(segment));
}

void RunJournal::record_totals(const std::string& totals) {
  writer_.note(MetaRecord{.key = kTotals, .value = totals});
}
Result<std::optional<std::string>> RunJournal::totals() {
  return writer_.at_once().get_meta(kTotals);
}

void RunJournal::record_new_seat(const SeatRecord& seat) {
  writer_.give(seat);
  if (seat.seat.incarnation.value > 1)
    writer_.give(ForgottenSeats{.peer = seat.seat.peer, .below = seat.seat.incarnation});
}

// Its number first: where the journal does not have the peer, it has that.
void RunJournal::forget_peer(PeerId peer, PeerId newest) {
  put(kNewestPeer, std::to_string(newest.value));
  writer_.give(ForgottenSeats{.peer = peer, .below = std::nullopt});
}

Result<std::optional<std::string>> RunJournal::totals_in(JournalReader& journal) {
  return journal.get_meta(kTotals);
}

Result<RunSegments> RunJournal::segments_in(JournalReader& journal) {
  RunSegments segments;
  while (segments.size() < kSegmentsMax) {
    const auto text = journal.get_meta(segment_key(segments.size() + 1));
    if (!text) return std::unexpected(text.error());
    if (!*text) break;
    auto segment = parse_segment(**text);
    if (!segment) return std::unexpected(std::move(segment).error());
    segments.push_back(std::move(*segment));
  }
  return segments;
}

Result<bool> RunJournal::has_ended(Journal& journal) {
  const auto ended = journal.get_meta(kHasEnded);
  if (!ended) return std::unexpected(ended.error());
  return ended->value_or("0") == "1";
}

}  // namespace swarmline
