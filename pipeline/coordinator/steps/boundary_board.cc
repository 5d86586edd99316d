#include "pipeline/coordinator/steps/boundary_board.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include <fmt/format.h>

#include "engine/config/configured_codec.h"
#include "pipeline/protocol/message_kinds.h"

namespace swarmline {
namespace {

constexpr std::array<const char*, 2> kWayNames = {"forward", "backward"};

}  // namespace

BoundaryBoard::BoundaryBoard(const RunConfig& config, std::uint64_t elements)
    : options_(codec_options(config.codec)),
      dtype_(config.model.stream_dtype()),
      elements_(elements),
      chooser_(config.codec.error_budget),
      links_(config.pipeline.stages - 1),
      stages_(config.pipeline.stages) {
  const std::array<std::string, 2> names = {config.codec.forward, config.codec.backward};
  for (auto& link : links_) {
    for (std::size_t way = 0; way < 2; ++way) {
      link[way].codec = configured_codec(names[way], config.codec);
      link[way].automatic = names[way] == "auto";
    }
  }
}

void BoundaryBoard::on_reduced(const wire::Reduced& reduced) {
  if (!reduced.has_boundary() || reduced.seat().stage() >= stages_.size()) return;
  const std::uint32_t stage = reduced.seat().stage();
  stages_[stage].busy_ns += reduced.busy_ns();
  stages_[stage].passes += reduced.passes();
  const wire::BoundaryBytes& report = reduced.boundary();
  for (const wire::CodecSample& sample : report.samples()) add_sample(stage, sample);
  if (stage > 0) add_arrivals(stage - 1, kForward, report.forward_arrivals());
  add_arrivals(stage, kBackward, report.backward_arrivals());
}

void BoundaryBoard::add_sample(std::uint32_t stage, const wire::CodecSample& sample) {
  const Way way = sample.backward() ? kBackward : kForward;
  if (way == kBackward && stage == 0) return;
  const std::uint32_t boundary = way == kForward ? stage : stage - 1;
  const auto codec = parse_codec(sample.codec(), options_);
  if (boundary >= links_.size() || !codec || sample.elements() == 0 || sample.squared_error() < 0 ||
      sample.squared_norm() < 0)
    return;
  Trial& trial = links_[boundary][way].step.trials[codec->kind];
  trial.error += {.squared_error = sample.squared_error(), .squared_norm = sample.squared_norm()};
  trial.elements += sample.elements();
  trial.ns += sample.codec_ns();
}

void BoundaryBoard::add_arrivals(std::uint32_t boundary, Way way, const wire::ArrivalRate& rate) {
  if (boundary >= links_.size()) return;
  Measures& step = links_[boundary][way].step;
  step.arrived_bytes += rate.bytes();
  step.arrived_ns += rate.ns();
}

BoundaryLoad BoundaryBoard::load(std::uint32_t boundary, const Link& link,
                                 const std::vector<std::uint32_t>& peers) const {
  const auto count = [&](std::uint32_t stage) {
    return stage < peers.size() ? std::max(peers[stage], 1U) : 1U;
  };
  const std::uint32_t below = count(boundary), above = count(boundary + 1);
  BoundaryLoad load{.elements = elements_, .dtype = dtype_};
  load.device_seconds =
      std::max(stages_[boundary].seconds / below, stages_[boundary + 1].seconds / above);
  load.devices = load.links = std::min(below, above);
  if (link.known.arrived_ns > 0)
    load.bytes_per_second = 1e9 * static_cast<double>(link.known.arrived_bytes) /
                            static_cast<double>(link.known.arrived_ns);
  return load;
}

std::vector<std::string> BoundaryBoard::on_commit(const std::vector<std::uint32_t>& peers) {
  for (Stage& stage : stages_) {
    if (stage.passes > 0)
      stage.seconds = 1e-9 * static_cast<double>(stage.busy_ns) /
                      static_cast<double>(stage.passes) * kPassesOfAMicrobatch;
    stage.busy_ns = stage.passes = 0;
  }
  std::vector<std::string> changes;
  for (std::uint32_t boundary = 0; boundary < links_.size(); ++boundary) {
    for (std::size_t way = 0; way < 2; ++way) {
      Link& link = links_[boundary][way];
      Measures step = std::exchange(link.step, {});
      for (const auto& [kind, trial] : step.trials) link.known.trials[kind] = trial;
      if (step.arrived_ns > 0) {
        link.known.arrived_bytes = step.arrived_bytes;
        link.known.arrived_ns = step.arrived_ns;
      }
      if (!link.automatic) continue;
      std::vector<CodecTrial> trials;
      for (const auto& [kind, trial] : link.known.trials)
        trials.push_back({.codec = *parse_codec(name_of(kind), options_),
                          .relative_error = trial.error.relative(),
                          .seconds_per_element = 1e-9 * static_cast<double>(trial.ns) /
                                                 static_cast<double>(trial.elements)});
      const CodecSpec chosen = chooser_.choose(link.codec, load(boundary, link, peers), trials);
      if (chosen == link.codec) continue;
      changes.push_back(fmt::format("boundary {} {}: {} instead of {}", boundary, kWayNames[way],
                                    to_string(chosen), to_string(link.codec)));
      link.codec = chosen;
    }
  }
  return changes;
}

std::vector<BoundaryCodecs> BoundaryBoard::codecs() const {
  std::vector<BoundaryCodecs> codecs;
  for (const auto& link : links_)
    codecs.push_back({.forward = std::string(name_of(link[kForward].codec.kind)),
                      .backward = std::string(name_of(link[kBackward].codec.kind))});
  return codecs;
}

std::string BoundaryBoard::to_text() const {
  std::string text;
  for (const auto& link : links_)
    for (const Link& way : link)
      text += (text.empty() ? "" : " ") + std::string(name_of(way.codec.kind));
  return text;
}

bool BoundaryBoard::restore(const std::string& text) {
  std::istringstream words(text);
  std::vector<CodecSpec> codecs;
  for (std::string word; words >> word;) {
    const auto codec = parse_codec(word, options_);
    if (!codec || codec->kind == CodecKind::kTopK) return false;
    codecs.push_back(*codec);
  }
  if (codecs.size() != 2 * links_.size()) return false;
  for (std::size_t i = 0; i < codecs.size(); ++i)
    if (Link& link = links_[i / 2][i % 2]; link.automatic) link.codec = codecs[i];
  return true;
}

BoundaryBoard::View BoundaryBoard::view(std::uint32_t boundary, Way way) const {
  const Link& link = links_.at(boundary)[way];
  View view{.codec = link.codec};
  if (link.codec.kind == CodecKind::kNone) view.relative_error = 0;
  if (const auto trial = link.known.trials.find(link.codec.kind); trial != link.known.trials.end())
    view.relative_error = trial->second.error.relative();
  if (link.known.arrived_ns > 0)
    view.bytes_per_second = 1e9 * static_cast<double>(link.known.arrived_bytes) /
                            static_cast<double>(link.known.arrived_ns);
  return view;
}

}  // namespace swarmline
