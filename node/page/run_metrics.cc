#include "node/page/run_metrics.h"

#include <initializer_list>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

namespace swarmline {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

constexpr const char* kStates[] = {"waiting",       "training",   "evaluating", "draining",
                                   "checkpointing", "collecting", "done",       "stopped",
                                   "failed",        "died"};
constexpr const char* kPeerStates[] = {"building", "joining", "ready", "away", "lost"};
constexpr const char* kShadowStates[] = {"fetching", "ready"};

// One family of series, added to a page of them unless it stays empty.
class Family {
 public:
  Family(std::vector<MetricFamily>& page, const char* name, const char* help, MetricType type)
      : page_(page), family_{.name = name, .help = help, .type = type, .metric = {}} {}
  Family(const Family&) = delete;
  Family& operator=(const Family&) = delete;
  ~Family() {
    if (!family_.metric.empty()) page_.push_back(std::move(family_));
  }
  void add(double value, Labels labels = {}) {
    ClientMetric metric;
    metric.label = std::move(labels);
    (family_.type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
    family_.metric.push_back(std::move(metric));
  }
  void add(std::uint64_t value, Labels labels = {}) {
    add(static_cast<double>(value), std::move(labels));
  }
  void add(const std::optional<double>& value, Labels labels = {}) {
    if (value) add(*value, std::move(labels));
  }

 private:
  std::vector<MetricFamily>& page_;
  MetricFamily family_;
};

class Page {
 public:
  Family gauge(const char* name, const char* help) {
    return Family(families_, name, help, MetricType::Gauge);
  }
  Family counter(const char* name, const char* help) {
    return Family(families_, name, help, MetricType::Counter);
  }
  std::string text() const { return prometheus::TextSerializer().Serialize(families_); }

 private:
  std::vector<MetricFamily> families_;
};

std::string number(std::uint64_t value) {
  return std::to_string(value);
}

void add_run(const RunStatus& status, Page& page) {
  page.gauge("swarmline_run_info", "The run; always 1.").add(1.0, {{"run", status.run}});
  {
    Family state = page.gauge("swarmline_state", "1 for the state that the run is in, else 0.");
    for (const char* name : kStates) state.add(status.state == name ? 1.0 : 0.0, {{"state", name}});
  }
  page.gauge("swarmline_step", "Steps committed.").add(status.step);
  page.gauge("swarmline_steps", "Steps that the run is to make.").add(status.steps);
  page.gauge("swarmline_era", "Raised each time the run goes back to a checkpoint.")
      .add(status.era);
  page.gauge("swarmline_loss", "Nats per token in the last step.").add(status.loss);
  page.gauge("swarmline_held_out_loss", "Nats per token of the newest evaluation.")
      .add(status.held_out_loss);
  page.counter("swarmline_tokens_total", "Tokens that made the newest parameters.")
      .add(status.tokens);
  page.gauge("swarmline_tokens_per_second", "Over the last steps.").add(status.tokens_per_second);
  page.gauge("swarmline_elapsed_seconds", "Since training began.").add(status.elapsed_seconds);
  page.gauge("swarmline_eta_seconds", "To the last step.").add(status.eta_seconds);
  page.gauge("swarmline_in_flight", "Microbatches that sources have started and that are not back.")
      .add(status.in_flight);
  page.counter("swarmline_second_tries_total",
               "Microbatches that were tried a second time because somebody was late.")
      .add(status.second_tries);
  page.counter("swarmline_averaging_bytes_total", "Sent by all peers to average gradients.")
      .add(status.reduce_bytes);
  page.counter("swarmline_control_bytes_total",
               "To and from the coordinator, checkpoints not counted.")
      .add(status.control_bytes);
  page.counter("swarmline_checkpoint_bytes_total", "Of checkpoints to the coordinator.")
      .add(status.checkpoint_bytes);
  page.gauge("swarmline_journal_up", "1 while the journal can be written, else 0.")
      .add(status.journal.empty() ? 1.0 : 0.0);
}

// Nothing where nobody says a price.
void add_cost(const RunStatus& status, Page& page) {
  if (!status.cost) return;
  const CostStatus& cost = *status.cost;
  const Labels currency = {{"currency", cost.currency}};
  const auto labels = [&](const char* name, const char* value) {
    return Labels{{"currency", cost.currency}, {name, value}};
  };
  {
    Family paid = page.counter("swarmline_cost_total", "What the run has cost, by what for.");
    paid.add(cost.machines, labels("for", "peers"));
    paid.add(cost.coordinator, labels("for", "coordinator"));
    paid.add(cost.egress, labels("for", "egress"));
  }
  {
    Family waste = page.counter("swarmline_cost_waste_total", "Of it, what made no new step.");
    waste.add(cost.idle, labels("part", "idle"));
    waste.add(cost.waiting, labels("part", "waiting"));
    waste.add(cost.joining, labels("part", "joining"));
    waste.add(cost.again, labels("part", "again"));
    waste.add(cost.fetched, labels("part", "fetched"));
  }
  page.gauge("swarmline_cost_per_hour", "Now.").add(cost.per_hour, currency);
  page.gauge("swarmline_cost_per_billion_tokens", "Up to now.")
      .add(cost.per_billion_tokens, currency);
  page.counter("swarmline_egress_bytes_total", "Sent by peers, as far as it is counted.")
      .add(cost.egress_bytes);
  page.counter("swarmline_steps_again_total", "Steps that were computed again.")
      .add(cost.steps_again);
  page.gauge("swarmline_unpriced_peers", "Members that say no price.").add(cost.unpriced);
  if (cost.budget > 0)
    page.gauge("swarmline_budget", "At which the run ends.").add(cost.budget, currency);
}

void add_newest_step(const RunSeries& series, Page& page) {
  if (series.points().empty()) return;
  const RunSeries::Point& newest = series.points().back();
  page.gauge("swarmline_step_seconds", "From the commit before the last one to the last.")
      .add(newest.seconds / static_cast<double>(newest.steps));
  page.gauge("swarmline_gradient_norm", "Of the last step, before clipping.")
      .add(newest.gradient_norm);
  page.gauge("swarmline_learning_rate", "Of the last step.").add(newest.learning_rate);
}

void add_stages(const RunStatus& status, Page& page) {
  Family wanted = page.gauge("swarmline_stage_peers_wanted", "Peers that the stage is to have.");
  Family peers = page.gauge("swarmline_stage_peers", "Peers of the stage in each state.");
  Family shadows = page.gauge("swarmline_stage_shadows", "Peers that follow the stage, by state.");
  for (const StageStatus& stage : status.stages) {
    const std::string name = number(stage.stage);
    wanted.add(stage.wanted, {{"stage", name}});
    std::map<std::string, std::uint64_t> by_state;
    for (const PeerStatus& peer : stage.peers) ++by_state[peer.state];
    for (const char* state : kPeerStates)
      peers.add(by_state[state], {{"stage", name}, {"state", state}});
    by_state.clear();
    for (const ShadowStatus& shadow : stage.shadows) ++by_state[shadow.state];
    for (const char* state : kShadowStates)
      shadows.add(by_state[state], {{"stage", name}, {"state", state}});
  }
}

void add_peers(const RunStatus& status, Page& page) {
  Family done = page.counter("swarmline_peer_contributions_total",
                             "Microbatches of committed steps that the peer computed.");
  Family share = page.gauge("swarmline_peer_share_ratio", "Of its stage's contributions.");
  Family busy = page.gauge("swarmline_peer_busy_ratio", "Of the time, its device's.");
  Family in_flight = page.gauge("swarmline_peer_in_flight", "Microbatches that the peer has now.");
  Family relayed = page.counter("swarmline_peer_relayed_bytes_total", "Sent over relays.");
  for (const StageStatus& stage : status.stages)
    for (const PeerStatus& peer : stage.peers) {
      // A name comes again with another number.
      const Labels labels = {
          {"stage", number(stage.stage)}, {"peer", peer.name}, {"number", number(peer.peer)}};
      done.add(peer.microbatches, labels);
      share.add(peer.share, labels);
      busy.add(peer.busy, labels);
      in_flight.add(peer.in_flight, labels);
      relayed.add(peer.relayed_bytes, labels);
    }
}

void add_boundaries(const RunStatus& status, Page& page) {
  Family bytes = page.counter("swarmline_boundary_bytes_total",
                              "Between two stages, by direction and what they were for.");
  Family count = page.counter("swarmline_boundary_microbatches_total",
                              "Activations sent forward, gradients sent backward.");
  Family codec = page.gauge("swarmline_boundary_codec_info", "The codec in use; always 1.");
  Family error = page.gauge("swarmline_boundary_codec_error_ratio",
                            "Relative L2 error of the codec in use, as last measured.");
  Family speed = page.gauge("swarmline_boundary_link_bytes_per_second", "Of a link, as measured.");
  for (const BoundaryStatus& boundary : status.boundaries) {
    const auto labels = [&](const char* direction) {
      return Labels{
          {"from", number(boundary.from)}, {"to", number(boundary.to)}, {"direction", direction}};
    };
    const auto with = [](Labels base, const char* name, const std::string& value) {
      base.push_back({name, value});
      return base;
    };
    const Labels forward = labels("forward"), backward = labels("backward");
    bytes.add(boundary.forward_codec_bytes, with(forward, "part", "codec"));
    bytes.add(boundary.forward_token_bytes, with(forward, "part", "tokens"));
    bytes.add(boundary.forward_framing_bytes, with(forward, "part", "framing"));
    bytes.add(boundary.backward_codec_bytes, with(backward, "part", "codec"));
    bytes.add(boundary.backward_framing_bytes, with(backward, "part", "framing"));
    count.add(boundary.microbatches, forward);
    count.add(boundary.gradients, backward);
    codec.add(1.0, with(forward, "codec", boundary.forward_codec));
    codec.add(1.0, with(backward, "codec", boundary.backward_codec));
    error.add(boundary.forward_error, forward);
    error.add(boundary.backward_error, backward);
    if (boundary.forward_bytes_per_second > 0)
      speed.add(boundary.forward_bytes_per_second, forward);
    if (boundary.backward_bytes_per_second > 0)
      speed.add(boundary.backward_bytes_per_second, backward);
  }
}

void add_relays(const RunStatus& status, Page& page) {
  Family links = page.gauge("swarmline_relay_links", "Links between peers over the relay, now.");
  Family bytes = page.counter("swarmline_relay_bytes_total", "Passed on by the relay.");
  for (const RelayStatus& relay : status.relays) {
    const Labels labels = {{"relay", relay.name}, {"address", relay.address}};
    links.add(relay.links, labels);
    bytes.add(relay.bytes, labels);
  }
}

void add_events(const RunSeries& series, Page& page) {
  Family events = page.counter("swarmline_events_total", "Events of the run's log, by kind.");
  for (const auto& [kind, count] : series.events_by_kind()) events.add(count, {{"kind", kind}});
}

}  // namespace

std::string metrics_text(const RunStatus& status, const RunSeries& series) {
  Page page;
  add_run(status, page);
  add_cost(status, page);
  add_newest_step(series, page);
  add_stages(status, page);
  add_peers(status, page);
  add_boundaries(status, page);
  add_relays(status, page);
  add_events(series, page);
  return page.text();
}

}  // namespace swarmline
