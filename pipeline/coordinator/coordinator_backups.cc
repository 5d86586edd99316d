// The end of a step that somebody slow holds up: what is still out is leased a second time, to
// sources that have nothing else to do (backup tasks: Dean and Ghemawat, OSDI 2004, section 3.6).
// Whichever try ends first counts; the ledger sees to that.
#include <algorithm>
#include <limits>

#include "base/log.h"
#include "pipeline/coordinator/coordinator_impl.h"

namespace swarmline {

namespace {
// A timer that fires so late says that this machine stood still: reports may have come meanwhile.
constexpr Duration kOversleptMin = std::chrono::milliseconds(50);
constexpr double kSlowerMax = 2;  // times the fastest source's time for a microbatch
}  // namespace

void Coordinator::Impl::note_report(const Phase& phase) {
  if (phase.kind != PhaseKind::kTrain || !ledger_.is_open(phase) || is_sealed(phase)) return;
  report_pace_.on_report(phase.step, runtime_.now());
  if (ledger_.complete(phase)) report_pace_.on_complete(phase.step);
  reported_ = phase;
  const std::optional<Duration> patience = report_pace_.patience();
  if (patience && !tail_watched_) watch_tail(runtime_.now() + *patience);
}

// One timer, which looks when the last report came: reports are too many for one each.
void Coordinator::Impl::watch_tail(Instant due) {
  tail_watched_ = true;
  runtime_.call_at(due, [weak = weak(), due] {
    if (auto self = weak.lock()) (*self)->on_tail_timer(due);
  });
}

void Coordinator::Impl::on_tail_timer(Instant due) {
  tail_watched_ = false;
  const std::optional<Instant> last = report_pace_.last_report();
  if (!last || !ledger_.is_open(reported_) || is_sealed(reported_) || ended_) return;
  const Instant now = runtime_.now();
  const Duration patience = *report_pace_.patience();
  const bool silent = now >= *last + patience && now - due < kOversleptMin;
  if (silent && may_back_up(reported_)) back_up(reported_);
  watch_tail(now < *last + patience ? *last + patience : now + patience);
}

// Fixed routes stay as they are; a sealed step is mended in another way; an evaluation holds a step
// up, and is no fault.
bool Coordinator::Impl::may_back_up(const Phase& phase) const {
  if (ended_ || collecting_ || options_.config.pipeline.wiring == "static" ||
      !ledger_.is_open(phase) || is_sealed(phase) || ledger_.complete(phase))
    return false;
  const std::vector<Phase> open = ledger_.open_phases();
  return ledger_.leasable(phase) == 0 &&
         std::ranges::none_of(open, [](const Phase& p) { return p.kind == PhaseKind::kEval; });
}

void Coordinator::Impl::back_up(const Phase& phase) {
  std::map<PeerId, wire::Leases> granted;
  std::uint32_t count = 0;
  for (std::uint32_t index = 0; index < ledger_.indices(phase); ++index) {
    const std::optional<Seat> holder = ledger_.source(phase, index);
    if (!holder || backed_up_.contains({phase, index})) continue;
    const std::optional<PeerId> other = idlest_source(holder->peer);
    if (!other) continue;
    backed_up_.insert({phase, index});
    ledger_.expire(phase, index);
    for (const Lease& lease : ledger_.lease(phase, sessions_.of(*other)->seat, 1)) {
      grant(*other, lease, granted[*other]);
      ++count;
    }
  }
  if (count == 0) return;
  log(LogLevel::kInfo, "{} is held up: {} of its microbatches are leased a second time",
      to_string(phase), count);
  send_leases(granted);
}

// Whoever could take most, if anybody but `holder` can take anything. A slow one would be what the
// step waits for next.
std::optional<PeerId> Coordinator::Impl::idlest_source(PeerId holder) const {
  const auto seconds = [this](PeerId peer) {
    return membership_.members().at(peer).seconds_per_microbatch;
  };
  double fastest = std::numeric_limits<double>::infinity();
  for (const auto& [peer, source] : sources_)
    if (seconds(peer) > 0) fastest = std::min(fastest, seconds(peer));
  std::optional<PeerId> idlest;
  std::uint64_t most = 0;
  for (const auto& [peer, source] : sources_) {
    if (peer == holder || !takes_leases(peer, source) || seconds(peer) > kSlowerMax * fastest)
      continue;
    if (const std::uint64_t room = source.wanted - source.granted; room > most) {
      idlest = peer;
      most = room;
    }
  }
  return idlest;
}

}  // namespace swarmline
