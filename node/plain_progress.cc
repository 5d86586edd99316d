#include "node/plain_progress.h"

#include <algorithm>
#include <cstdio>
#include <string_view>
#include <utility>

#include "node/summary.h"

namespace swarmline {

void PlainProgress::show(const RunStatus& status, Instant now) {
  if (std::exchange(era_, status.era) != status.era && !status.era_sentence.empty())
    std::printf("%s\n", status.era_sentence.c_str());
  if (std::exchange(segment_, status.segment) != status.segment && status.segment > 1)
    std::printf("%s\n", status.segment_sentence.c_str());
  if (status.journal.empty() == std::exchange(journal_fails_, !status.journal.empty()))
    std::printf("%s\n", status.journal.empty() ? "the journal can be written again"
                                               : status.journal.c_str());
  if (std::exchange(page_, status.page) != status.page && !status.page.empty())
    std::printf("its page: %s\n", status.page.c_str());
  show_bad_events(status);
  show_state(status);
  if (const auto news = protection_.of(status)) std::printf("%s\n", news->c_str());
  if (status.step > 0 && step_ != status.step &&
      (!step_ || now - step_at_ >= kLinePeriod || status.step == status.steps)) {
    step_ = status.step;
    step_at_ = now;
    std::printf("%s\n", plain_line(status).c_str());
  }
  std::fflush(stdout);
}

void PlainProgress::show_state(const RunStatus& status) {
  if (std::exchange(state_, status.state) == status.state) return;
  if (status.state == "waiting" && status.wanted() > 0) {
    std::printf("waiting for %zu peers\n", status.wanted());
  } else if (status.state != "waiting" && status.state != "training" && !status.over()) {
    std::printf("%s\n", status.state.c_str());
  }
}

// What a screen shows, but for what is said otherwise: an era by its sentence, a refusal and the
// end of the run.
void PlainProgress::show_bad_events(const RunStatus& status) {
  constexpr std::string_view kSaid[] = {"new_era", "peer_refused", "peer_failed", "failed",
                                        "journal_fails"};
  for (const EventStatus& event : status.events)
    if (event.wall_seconds > events_until_ && event.is_bad() &&
        std::ranges::find(kSaid, event.kind) == std::end(kSaid))
      std::printf("%s\n", sentence_of(event).c_str());
  if (!status.events.empty()) events_until_ = status.events.back().wall_seconds;
}

}  // namespace swarmline
