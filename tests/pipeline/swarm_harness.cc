#include "tests/pipeline/swarm_harness.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <tuple>

#include <gtest/gtest.h>

#include "base/check.h"
#include "engine/config/load.h"
#include "pipeline/coordinator/members/membership.h"
#include "sim/cluster/fake_stage_model.h"
#include "sim/cluster/model_wrapper.h"

namespace swarmline {

using namespace std::chrono_literals;

// ---- Models that fail
// ----------------------------------------------------------------------------------------------

namespace {

class HookedModel final : public ModelWrapper {
 public:
  HookedModel(std::unique_ptr<StageModel> model, StageId stage, int replica,
              const ModelHooks& hooks)
      : ModelWrapper(std::move(model)), stage_(stage), replica_(replica), hooks_(hooks) {}

  Result<ForwardOutput> forward(const ForwardInput& input) override {
    if (hooks_.before_forward) SWARMLINE_TRY(hooks_.before_forward(stage_, replica_, input.id));
    return ModelWrapper::forward(input);
  }
  Result<BackwardOutput> backward(const BackwardInput& input) override {
    if (hooks_.before_backward) SWARMLINE_TRY(hooks_.before_backward(stage_, replica_, input.id));
    auto output = ModelWrapper::backward(input);
    if (output && hooks_.after_backward) hooks_.after_backward(stage_, replica_, input);
    return output;
  }

 private:
  StageId stage_;
  int replica_;
  ModelHooks hooks_;
};

}  // namespace

MakeModel hooked(MakeModel make_model, ModelHooks hooks) {
  auto replicas = std::make_shared<std::map<StageId, int>>();
  return [make_model = std::move(make_model), hooks = std::move(hooks), replicas](
             const ModelSpec& spec, const StageSpec& stage,
             const StageModelOptions& options) -> Result<std::unique_ptr<StageModel>> {
    auto model = make_model(spec, stage, options);
    if (!model) return model;
    const int replica = (*replicas)[stage.stage]++;
    auto wrapped = std::make_unique<HookedModel>(std::move(*model), stage.stage, replica, hooks);
    if (hooks.made) hooks.made(stage.stage, replica, *wrapped);
    return wrapped;
  };
}

// ---- The swarm ----------------------------------------------------------------------------------

Swarm::Swarm(SimClusterOptions options) : cluster_(std::move(options)) {
  cluster_.network().set_filter(
      [this](SimNodeId from, SimNodeId to, const Frame& frame) -> FrameFate {
        for (const Hold& hold : holds_)
          if (hold.from == from && hold.to == to && (!hold.kind || *hold.kind == kind_of(frame)))
            return {.kind = FrameFate::Kind::kHold, .delay = {}};
        for (std::size_t i = 0; i < rules_.size(); ++i)
          if (FrameFate fate = rules_[i](from, to, frame); fate.kind != FrameFate::Kind::kDeliver)
            return fate;
        return {};
      });
  cluster_.network().set_tap([this](SimNodeId from, SimNodeId to, const Frame& frame) {
    ++delivered_[{kind_of(frame), from, to}];
    oracles_.look();
    for (std::size_t i = 0; i < taps_.size(); ++i) taps_[i](from, to, frame);
  });
}

SimNodeId Swarm::node(std::uint16_t stage, std::size_t replica) {
  std::map<PeerId, SimNodeId> of_stage;
  for (std::size_t i = 0; i < cluster_.peers(); ++i) {
    const Seat seat = cluster_.peer(i).seat();
    if (seat.peer.value != 0 && seat.stage.value == stage)
      of_stage[seat.peer] = SimCluster::node_of_peer(i);
  }
  SWARMLINE_CHECK(replica < of_stage.size());
  return std::next(of_stage.begin(), static_cast<std::ptrdiff_t>(replica))->second;
}

std::uint16_t Swarm::stage_of(SimNodeId node) {
  return cluster_.peer(node - 1).seat().stage.value;
}

std::vector<SimNodeId> Swarm::serving(std::uint16_t stage) {
  std::vector<SimNodeId> nodes;
  for (std::size_t i = 0; i < cluster_.peers(); ++i)
    if (cluster_.serves(i) && cluster_.peer(i).seat().stage.value == stage)
      nodes.push_back(SimCluster::node_of_peer(i));
  return nodes;
}

void Swarm::kill_stage(std::uint16_t stage) {
  for (const SimNodeId node : serving(stage)) kill(node);
}

void Swarm::until_started() {
  ASSERT_TRUE(until([this] { return delivered(MessageKind::kOpenPhase) > 0; }))
      << "the swarm does not form";
}

void Swarm::until_committed(std::uint64_t steps) {
  until_started();
  ASSERT_TRUE(until([&] { return commits_of(cluster_) == steps; }))
      << commits_of(cluster_) << " of " << steps << " steps";
}

void Swarm::lose(Which which, std::uint64_t times) {
  rule([this, which = std::move(which), times](SimNodeId from, SimNodeId to,
                                               const Frame& frame) mutable -> FrameFate {
    if (times == 0 || !which(from, to, frame)) return {};
    --times;
    ++lost_;
    return {.kind = FrameFate::Kind::kDropConnection, .delay = {}};
  });
}

void Swarm::part(SimNodeId one, SimNodeId other) {
  lose([=](SimNodeId from, SimNodeId to, const Frame&) {
    return (from == one && to == other) || (from == other && to == one);
  });
}

void Swarm::hold(SimNodeId from, SimNodeId to, std::optional<MessageKind> kind) {
  holds_.push_back({from, to, kind});
}

std::size_t Swarm::release(SimNodeId from, SimNodeId to) {
  std::erase_if(holds_, [&](const Hold& hold) { return hold.from == from && hold.to == to; });
  return cluster_.network().release(from, to);
}

std::uint64_t Swarm::delivered(MessageKind kind, std::optional<SimNodeId> from,
                               std::optional<SimNodeId> to) const {
  std::uint64_t sum = 0;
  for (const auto& [key, count] : delivered_)
    if (std::get<0>(key) == kind && (!from || std::get<1>(key) == *from) &&
        (!to || std::get<2>(key) == *to))
      sum += count;
  return sum;
}

bool Swarm::until_delivered(MessageKind kind, std::uint64_t count, std::optional<SimNodeId> from,
                            std::optional<SimNodeId> to) {
  const std::uint64_t before = delivered(kind, from, to);
  return until([&] { return delivered(kind, from, to) >= before + count; });
}

RunOutcome Swarm::end(Duration limit) {
  const auto outcome = cluster_.run(limit);
  if (outcome) return *outcome;
  ADD_FAILURE() << "the run hangs: " << cluster_.coordinator().status_json();
  return {-1, "hangs"};
}

void Swarm::finish() {
  const RunOutcome outcome = end();
  EXPECT_EQ(outcome.exit_code, 0) << outcome.sentence;
  oracles_.look_all();
  for (const OracleFinding& finding : oracles_.findings())
    if (finding.rule == OracleRule::kOrphan || finding.rule == OracleRule::kSize)
      ADD_FAILURE() << to_seconds(finding.when) << " s: " << finding.what;
}

// ---- Frames and tensors
// --------------------------------------------------------------------------------------------

namespace {

constexpr std::size_t kEventsMax = 1000;  // more than any of these runs has

template <typename Message>
std::optional<AttemptId> id_in(const Frame& frame) {
  auto message = parse<Message>(frame);
  if (!message) return std::nullopt;
  return from_wire(message->id());
}

}  // namespace

std::optional<AttemptId> attempt_of(const Frame& frame) {
  if (frame.flags != 0) return std::nullopt;
  switch (kind_of(frame)) {
    case MessageKind::kForward:
      return id_in<wire::Forward>(frame);
    case MessageKind::kForwardDone:
      return id_in<wire::ForwardDone>(frame);
    case MessageKind::kGradient:
      return id_in<wire::Gradient>(frame);
    case MessageKind::kGradientArrived:
      return id_in<wire::GradientArrived>(frame);
    case MessageKind::kRefused:
      return id_in<wire::Refused>(frame);
    case MessageKind::kCancel:
      return id_in<wire::Cancel>(frame);
    case MessageKind::kClaim:
      return id_in<wire::Claim>(frame);
    case MessageKind::kStallReport:
      return id_in<wire::StallReport>(frame);
    case MessageKind::kComputeFailed:
      return id_in<wire::ComputeFailed>(frame);
    default:
      return std::nullopt;
  }
}

double largest_difference(BytesView one, BytesView other) {
  SWARMLINE_CHECK(one.size() == other.size());
  std::vector<double> a(one.size() / sizeof(double)), b(a.size());
  std::memcpy(a.data(), one.data(), one.size());
  std::memcpy(b.data(), other.data(), other.size());
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(a[i] - b[i]);
    worst = std::isfinite(difference) ? std::max(worst, difference) : HUGE_VAL;
  }
  return worst;
}

bool is_key_bias(const std::string& tensor) {
  return tensor.ends_with("attention.k.bias");
}

void expect_equal(const Tensors& got, const Tensors& want, double key_bias_bound) {
  ASSERT_FALSE(want.empty());
  for (const auto& [name, wanted] : want) {
    const auto found = got.find(name);
    ASSERT_NE(found, got.end()) << name;
    ASSERT_EQ(found->second.size(), wanted.size()) << name;
    const double peak = largest_difference(wanted, std::vector<std::byte>(wanted.size()));
    ASSERT_TRUE(std::isfinite(peak)) << name;
    EXPECT_LE(largest_difference(found->second, wanted),
              1e-9 * peak + (is_key_bias(name) ? key_bias_bound : 0))
        << name;
  }
}

const Tensors& one_each(RunConfig config) {
  static std::map<std::string, Tensors> known;
  std::ranges::fill(config.pipeline.peers, 1U);
  config.pipeline.order = OrderKind::kFree;
  config.wiring = {};
  config.net.admit_bytes = 0;
  config.net.standby.clear();
  config.balance.shadows = {};
  const auto [entry, first] = known.try_emplace(to_toml(config));
  if (first) {
    Swarm swarm(swarm_of(config, make_fake_model));
    swarm.finish();
    entry->second = swarm.cluster().parameters();
  }
  return entry->second;
}

std::size_t events(Swarm& swarm, const std::string& kind, const std::string& detail) {
  std::size_t count = 0;
  for (const EventRecord& event : *swarm.cluster().journal().events(kEventsMax))
    count += event.kind == kind && event.detail.find(detail) != std::string::npos;
  return count;
}

std::string called(Swarm& swarm, SimNodeId node) {
  const std::size_t place = node - 1;
  return called(swarm.cluster().seat_of(place), "sim-" + std::to_string(place));
}

std::string history(Swarm& swarm) {
  std::string text;
  for (const EventRecord& event : *swarm.cluster().journal().events(kEventsMax))
    text += event.kind + ": " + event.detail + "\n";
  return text;
}

std::uint64_t commits_of(SimCluster& cluster) {
  const auto last = cluster.journal().last_commit();
  return last && *last ? (*last)->version : 0;
}

}  // namespace swarmline
