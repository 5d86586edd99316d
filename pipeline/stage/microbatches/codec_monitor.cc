#include "pipeline/stage/microbatches/codec_monitor.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "compression/codec_choice.h"
#include "engine/config/configured_codec.h"

namespace swarmline {

CodecMonitor::CodecMonitor(StageContext& context) : context_(context) {}

std::uint32_t CodecMonitor::boundary(Way way) const {
  const std::uint32_t stage = context_.self.stage.value;
  return way == Way::kForward ? stage : stage - 1;
}

bool CodecMonitor::crosses(Way way) const {
  return way == Way::kForward ? !context_.last() : !context_.first();
}

WireRequest CodecMonitor::plan(Way way, const MicrobatchTask& task) {
  if (!crosses(way)) return {};
  const MicrobatchId& id = task.id.microbatch;
  const PhaseCodecs::Codecs& codecs = context_.codecs.of(id.phase, boundary(way));
  WireRequest plan;
  plan.codec = way == Way::kForward ? codecs.forward : codecs.backward;
  if (way == Way::kBackward && context_.config.codec.stochastic)
    plan.key = codec_key(context_.config.run.seed, id.phase.step, id.index, boundary(way));
  if (task.train() && sent_[way]++ % kSampleEvery == 0) plan.sample_elements = kSampleElementsMax;
  return plan;
}

void CodecMonitor::on_sample(Way way, const Phase& phase, const TensorSamplePtr& sample) {
  if (!sample) return;
  const bool forward = way == Way::kForward;
  const CodecSection& section = context_.config.codec;
  const PhaseCodecs::Codecs& codecs = context_.codecs.of(phase, boundary(way));
  const CodecSpec current = forward ? codecs.forward : codecs.backward;
  if (current.kind != CodecKind::kNone) try_codec(way, phase, current, sample);
  if ((forward ? section.forward : section.backward) != "auto") return;
  for (const CodecKind kind : auto_candidates())
    if (kind != current.kind && kind != CodecKind::kNone)
      try_codec(way, phase, configured_codec(std::string(name_of(kind)), section), sample);
}

void CodecMonitor::try_codec(Way way, const Phase& phase, const CodecSpec& codec,
                             const TensorSamplePtr& sample) {
  std::optional<kernels::StochasticKey> key;
  if (way == Way::kBackward && context_.config.codec.stochastic)
    key = codec_key(context_.config.run.seed, phase.step, 0, boundary(way));
  auto measured = std::make_shared<CodecMeasurement>();
  StageJob job;
  job.job_class = JobClass::kMonitor;
  job.phase = phase;
  job.job.kind = JobKind::kOther;
  job.job.body = [sample, codec, key, measured]() -> Result<void> {
    const auto result = sample->measure(codec, key ? &*key : nullptr);
    if (!result) return std::unexpected(result.error());
    *measured = *result;
    return {};
  };
  job.done = guard_.wrap([this, way, kind = codec.kind, measured,
                          elements = sample->elements()](const JobReport& report) {
    if (!report.result)
      return log(LogLevel::kWarn, "codec {} could not be measured: {}", name_of(kind),
                 report.result.error().what);
    add(way, kind, measured->error, elements, measured->time.value_or(report.service));
  });
  context_.queue.submit(std::move(job));
}

void CodecMonitor::add(Way way, CodecKind kind, const CodecError& error, std::uint64_t elements,
                       Duration time) {
  Sums& sums = sums_[{way, kind}];
  sums.error += error;
  sums.elements += elements;
  sums.codec_ns += static_cast<std::uint64_t>(time.count());
  if (!context_.metrics) return;
  const Labels labels = {{"boundary", std::to_string(boundary(way))},
                         {"codec", std::string(name_of(kind))},
                         {"direction", way == Way::kForward ? "forward" : "backward"}};
  context_.metrics->gauge("swarmline_codec_relative_error", labels).set(error.relative());
}

void CodecMonitor::on_arrival(Way way, const Phase& phase, const Frame& frame) {
  if (phase.kind != PhaseKind::kTrain || frame.received_over <= Duration{}) return;
  Arrivals& arrivals = arrivals_[way];
  arrivals.bytes += frame.payload_bytes();
  arrivals.ns += static_cast<std::uint64_t>(frame.received_over.count());
}

void CodecMonitor::take(const Phase& phase, wire::BoundaryBytes& report) {
  if (phase.kind != PhaseKind::kTrain) return;
  for (const auto& [key, sums] : std::exchange(sums_, {})) {
    wire::CodecSample* sample = report.add_samples();
    sample->set_backward(key.first == Way::kBackward);
    sample->set_codec(std::string(name_of(key.second)));
    sample->set_squared_error(sums.error.squared_error);
    sample->set_squared_norm(sums.error.squared_norm);
    sample->set_elements(sums.elements);
    sample->set_codec_ns(sums.codec_ns);
  }
  for (const auto& [way, arrivals] : std::exchange(arrivals_, {})) {
    wire::ArrivalRate* rate = way == Way::kForward ? report.mutable_forward_arrivals()
                                                   : report.mutable_backward_arrivals();
    rate->set_bytes(arrivals.bytes);
    rate->set_ns(arrivals.ns);
  }
}

}  // namespace swarmline
