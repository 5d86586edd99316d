#include "pipeline/coordinator/run/journal_writer.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/marks.h"
#include "pipeline/protocol/knobs.h"

namespace swarmline {

JournalWriter::JournalWriter(Runtime& runtime, AsyncJournal& journal, std::function<void()> changed)
    : runtime_(runtime), journal_(journal), changed_(std::move(changed)) {}

void JournalWriter::give(JournalRecord record) {
  ++progress_.given;
  entries_.push_back({.record = std::move(record), .given = runtime_.now()});
}

void JournalWriter::note(JournalRecord record) {
  if (notes_ == kNotesMax) return;
  ++notes_;
  entries_.push_back({.record = std::move(record), .counts = false, .given = runtime_.now()});
}

void JournalWriter::flush() {
  if (writing_ || pausing_ || refused_ || entries_.empty()) return;
  writing_ = true;
  const std::size_t count = std::min(entries_.size(), kJournalBatchMax);
  auto records = std::make_shared<std::vector<JournalRecord>>();
  for (std::size_t i = 0; i < count; ++i) records->push_back(entries_[i].record);
  if (count > 1) SWARMLINE_MARK("journal_writer.grouped");
  journal_.run([records](Journal& journal) { return journal.write(*records); },
               guard_.wrap([this, count](const Result<void>& result) { written(count, result); }));
}

void JournalWriter::written(std::size_t records, const Result<void>& result) {
  writing_ = false;
  if (result) {
    for (std::size_t i = 0; i < records; ++i) {
      entries_.front().counts ? ++progress_.durable : --notes_;
      entries_.pop_front();
    }
    if (trouble_) {
      SWARMLINE_MARK("journal_writer.well_again");
      news_.well_after = runtime_.now() - trouble_->since;
    }
    trouble_.reset();
    pause_ = {};
  } else {
    failed(result.error());
  }
  const auto alive = guard_.watch();
  flush();
  if (!alive.expired()) changed_();
}

void JournalWriter::failed(const Error& error) {
  if (error.code == ErrorCode::kRefused) {
    refused_ = error;
    return;
  }
  if (trouble_) {
    trouble_->why = error.what;
    ++trouble_->tries;
  } else {
    SWARMLINE_MARK("journal_writer.trouble");
    trouble_ = {.since = runtime_.now(), .why = error.what};
    news_.fails = error.what;
  }
  pause_ = std::clamp(2 * pause_, knobs().journal_retry_min, knobs().journal_retry_max);
  pausing_ = true;
  runtime_.call_after(pause_, guard_.wrap([this] {
    pausing_ = false;
    flush();
  }));
}

Duration JournalWriter::wait(Instant now) const {
  const auto first = std::ranges::find_if(entries_, &Entry::counts);
  return first == entries_.end() ? Duration{} : now - first->given;
}

bool JournalWriter::is_late(Instant now) const {
  return trouble_ || progress_.durable < opening_ || wait(now) > knobs().journal_late;
}

}  // namespace swarmline
