#include "pipeline/stage/microbatches/boundary_traffic.h"

#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace swarmline {

void BoundaryTraffic::OneWay::add(const Frame& frame, std::uint64_t tokens_in_it) {
  codec += frame.payload_bytes();
  tokens += tokens_in_it;
  framing += frame.wire_bytes() - frame.payload_bytes() - tokens_in_it;
  messages += frame.payload.empty() ? 0 : 1;
}

bool BoundaryTraffic::counts(const Phase& phase) const {
  return phase.kind == PhaseKind::kTrain && phases_.microbatches(phase) > 0;
}

void BoundaryTraffic::send_next(const Seat& to, const Phase& phase, Frame frame,
                                std::uint64_t tokens) {
  if (counts(phase)) accounts_[phase].forward.add(frame, tokens);
  context_.links.send(to, std::move(frame));
}

void BoundaryTraffic::send_back(const Seat& to, const Phase& phase, Frame frame) {
  if (counts(phase)) accounts_[phase].backward.add(frame, 0);
  context_.links.send(to, std::move(frame));
}

void BoundaryTraffic::tried_early(const Phase& phase) {
  if (counts(phase)) ++accounts_[phase].early_tries;
}

void BoundaryTraffic::computed(const Phase& phase, Duration device_time, std::uint32_t passes) {
  if (phases_.microbatches(phase) == 0) return;
  Work& work = works_[phase];
  work.busy_ns += static_cast<std::uint64_t>(device_time.count());
  work.passes += passes;
}

void BoundaryTraffic::take(const Phase& phase, wire::BoundaryBytes& report) {
  const auto entry = accounts_.extract(phase);
  if (entry.empty()) return;
  const auto& [forward, backward, early_tries] = entry.mapped();
  report.set_forward_codec(forward.codec);
  report.set_forward_tokens(forward.tokens);
  report.set_forward_framing(forward.framing);
  report.set_forward_messages(forward.messages);
  report.set_backward_codec(backward.codec);
  report.set_backward_framing(backward.framing);
  report.set_backward_messages(backward.messages);
  report.set_early_tries(early_tries);
}

BoundaryTraffic::Work BoundaryTraffic::take_work(const Phase& phase) {
  const auto entry = works_.extract(phase);
  return entry.empty() ? Work{} : entry.mapped();
}

void BoundaryTraffic::check_invariants() const {
  for (const auto& [phase, account] : accounts_) SWARMLINE_CHECK(counts(phase));
}

void note_damaged_tensor(const StageContext& context, MessageKind kind, const Seat& from,
                         const Error& error) {
  log(LogLevel::kWarn, "a damaged {} from {}: {}", to_string(kind), to_string(from), error.what);
  if (context.metrics)
    context.metrics->counter("swarmline_bad_frames_total", {{"kind", std::string(to_string(kind))}})
        .add();
}

}  // namespace swarmline
