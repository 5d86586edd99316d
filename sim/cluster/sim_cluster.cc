#include "sim/cluster/sim_cluster.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "base/check.h"
#include "base/marks.h"
#include "engine/config/load.h"
#include "sim/cluster/synthetic_source.h"

namespace swarmline {

// What a coordinator's process has of the lead.
struct SimCluster::Leading {
  Leading(Runtime& runtime, SimNodeId node, SimLead& lead, const Leadership::OnEnd& on_end)
      : store(lead.open(node)),
        leadership(runtime, *store, fmt::format("the coordinator at node {}", node), on_end) {}
  std::unique_ptr<ControlStore> store;
  Leadership leadership;
};

SimCluster::Node::Node(SimRuntime& runtime, SimNodeId id, SimPeer peer_machine,
                       SimDeviceOptions device_options)
    : machine(peer_machine), device(runtime.node(id), std::move(device_options)) {}

SimCluster::SimCluster(SimClusterOptions options)
    : options_(std::move(options)),
      runtime_(options_.seed),
      network_(runtime_, {.link = options_.link,
                          .arrival_bytes_min = options_.arrival_bytes_min,
                          .charged_bytes = options_.charged_bytes,
                          .stands_for_many = options_.stands_for_many,
                          .link_between = zone_links()}),
      fabrics_(runtime_, options_.fabric),
      journal_(runtime_, options_.journal_late),
      lead_(runtime_, journal_, options_.lease) {
  journal_.disk().time = options_.journal_time;
  auto model = resolve_model(options_.config, options_.vocab);
  SWARMLINE_CHECK_MSG(model.has_value(), model ? "" : model.error().what);
  model_ = std::move(*model);
  if (options_.keys)
    keys_ = std::make_unique<SimKeys>(
        runtime_, network_,
        std::vector{*parse_address(kCoordinatorAddress), *parse_address(kStandbyAddress)});
  make_coordinator(kCoordinatorNode, kCoordinatorAddress);

  const std::uint32_t count = std::accumulate(options_.config.pipeline.peers.begin(),
                                              options_.config.pipeline.peers.end(), 0U);
  for (std::uint32_t i = 0; i < count; ++i) {
    make_peer(i < options_.peers.size() ? options_.peers[i] : SimPeer{});
    // One after the other, so that the joining order and with it the seats are those of the
    // options.
    runtime_.node(node_of_peer(i)).call_after(std::chrono::milliseconds(i + 1), [this, i] {
      nodes_[i]->peer->start();
    });
  }
}

void SimCluster::make_coordinator(SimNodeId node, const std::string& address) {
  lead_.expire();  // whoever led before is dead, or does not know it yet
  leading_.push_back(
      std::make_unique<Leading>(runtime_.node(node), node, lead_, on_end(node, address)));
  const auto journal = leading_.back()->leadership.try_lead();
  SWARMLINE_CHECK(journal && *journal != nullptr);
  const auto bound = lead_from(node, address, **journal);
  SWARMLINE_CHECK_MSG(bound.has_value(), bound ? "" : bound.error().what);
}

// Of the next reign: whoever is deposed hears it from its journal, too.
Leadership::OnEnd SimCluster::on_end(SimNodeId node, const std::string& address) {
  return [this, node, address, reign = reign_ + 1](Leadership::End how, const std::string&) {
    if (how == Leadership::End::kExpired) step_aside(node, address, reign);
  };
}

// As CoordinatorNode does: it lets go without a word, and leads again when it can.
void SimCluster::step_aside(SimNodeId node, const std::string& address, std::uint64_t reign) {
  SWARMLINE_MARK("sim_cluster.stepped_aside");
  const bool led_last = reign == reign_;
  std::erase_if(former_, [reign](const auto& former) { return former.first == reign; });
  network_.node(node).stop_listening();
  if (!led_last) return;  // a standby leads, and nobody needs another
  coordinator_.reset();
  leading_.push_back(
      std::make_unique<Leading>(runtime_.node(node), node, lead_, on_end(node, address)));
  leading_.back()->leadership.stand_by(
      [this, node, address, reign](const Result<AsyncJournal*>& journal) {
        SWARMLINE_CHECK(journal && *journal != nullptr);
        if (reign != reign_) return;
        const auto bound = lead_from(node, address, **journal);
        SWARMLINE_CHECK_MSG(bound.has_value(), bound ? "" : bound.error().what);
      });
}

Result<Address> SimCluster::lead_from(SimNodeId node, const std::string& address,
                                      AsyncJournal& journal) {
  ++reign_;
  CoordinatorOptions control;
  control.config = options_.config;
  control.config.net.listen = address;
  control.config_toml = to_toml(options_.config);
  control.run_id = "simulated";
  control.admin_secret = control.run_key = options_.admin_secret;
  control.model = model_;
  control.data = options_.data;
  control.eval_sequences = options_.eval_sequences;
  sinks_.push_back(std::make_unique<SimCheckpointSink>(runtime_.node(node), checkpoints_));
  sources_.push_back(std::make_unique<SimCheckpointSource>(runtime_.node(node), checkpoints_,
                                                           options_.checkpoint_read));
  control.checkpoints = sources_.back().get();
  if (options_.keep_log_lines)
    control.log_line = [this](const std::string& line) { log_lines_.push_back(line); };
  if (keys_) keys_->lead(node, journal, control);
  coordinator_ = std::make_unique<Coordinator>(runtime_.node(node), network_.node(node), journal,
                                               *sinks_.back(), control,
                                               [this, reign = reign_](RunOutcome outcome) {
                                                 if (reign == reign_) outcome_ = std::move(outcome);
                                               });
  auto bound = coordinator_->start();
  if (bound) address_ = *bound;
  return bound;
}

void SimCluster::kill_coordinator(Death how) {
  ++coordinators_killed_;
  if (how == Death::kSilent) {
    network_.power_off(kCoordinatorNode);
  } else {
    network_.kill(kCoordinatorNode);
  }
  journal_.power_cut();
}

void SimCluster::restart_coordinator() {
  if (coordinator_) former_.emplace_back(reign_, std::move(coordinator_));
  runtime_.revive(kCoordinatorNode);
  make_coordinator(kCoordinatorNode, kCoordinatorAddress);
}

void SimCluster::take_over() {
  if (coordinator_) former_.emplace_back(reign_, std::move(coordinator_));
  make_coordinator(kStandbyNode, kStandbyAddress);
}

void SimCluster::make_peer(const SimPeer& machine) {
  const std::size_t i = nodes_.size();
  SimDeviceOptions device;
  device.forward = machine.forward;
  device.backward = machine.backward;
  device.jitter = machine.jitter;
  device.control = machine.control;
  device.way_in = machine.way_in;
  device.way_out = machine.way_out;
  device.seed = options_.seed + i;
  const SimNodeId id = node_of_peer(i);
  if (options_.service)
    device.service = [this, i](JobKind kind) {
      return options_.service(nodes_[i]->machine, nodes_[i]->peer->seat().stage, kind);
    };
  if (machine.card) network_.set_card(id, *machine.card);
  zones_.push_back(machine.zone);
  nodes_.push_back(std::make_unique<Node>(runtime_, id, machine, device));
  StagePeerOptions peer;
  peer.coordinator = address_;
  peer.machine.listen = "sim:0";
  peer.machine.shadow_memory_bytes = machine.shadow_memory_bytes;
  peer.machine.join_patience_seconds = machine.join_patience_seconds;
  peer.machine.zone = machine.zone;
  peer.machine.bandwidth = machine.bandwidth;
  peer.name = "sim-" + std::to_string(i);
  peer.host = machine.host;
  if (machine.gpu) {
    fabrics_.set_place(id, *machine.gpu);
    peer.fabric = &fabrics_.node(id);
    peer.gpu = {.uuid = fmt::format("GPU-{}-{}", machine.gpu->host, machine.gpu->card),
                .nccl = machine.gpu->nccl ? 22809U : 0U,
                .ipc = machine.gpu->ipc};
  }
  peer.compare_data = [machine](const DataManifest& manifest) {
    return HeldData{.fingerprint = manifest.fingerprint(),
                    .lacks = machine.lacks_data,
                    .differs = machine.differs_in_data,
                    .paths = {}};
  };
  peer.make_model = options_.make_model;
  peer.make_wiring = options_.make_wiring;
  nodes_[i]->part_folder =
      std::make_unique<SimPartFolder>(runtime_.node(id), checkpoints_, machine.sees_checkpoints);
  peer.part_folder = nodes_[i]->part_folder.get();
  peer.make_source = [this](const RunConfig& config) -> Result<std::unique_ptr<MicrobatchSource>> {
    return std::make_unique<SyntheticSource>(config.run.seed, options_.vocab,
                                             config.batch.sequence);
  };
  if (options_.outfit) options_.outfit(i, runtime_.node(id), peer);
  SWARMLINE_CHECK(keys_ || machine.ticket == SimTicket::kGood);
  if (keys_) keys_->join(id, machine.ticket, peer);
  nodes_[i]->peer =
      std::make_unique<StagePeer>(runtime_.node(id), network_.node(id), nodes_[i]->device,
                                  std::move(peer), [this, i](PeerOutcome outcome) {
                                    nodes_[i]->outcome = std::move(outcome);
                                    ++ended_;
                                  });
}

std::size_t SimCluster::add_peer(SimPeer machine) {
  make_peer(machine);
  nodes_.back()->peer->start();
  return nodes_.size() - 1;
}

void SimCluster::bury() {
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (is_running(i) || is_buried(i)) continue;
    if (runtime_.is_alive(node_of_peer(i))) network_.kill(node_of_peer(i));  // it has ended itself
    nodes_[i]->last_seat = nodes_[i]->peer->seat();
    nodes_[i]->peer.reset();
    network_.forget(node_of_peer(i));
  }
  former_.clear();
}

Seat SimCluster::seat_of(std::size_t i) const {
  return is_buried(i) ? nodes_[i]->last_seat : nodes_[i]->peer->seat();
}

SimCluster::~SimCluster() = default;

const std::string& SimCluster::zone_of(SimNodeId node) const {
  static const std::string none;
  if (node == kCoordinatorNode || node == kStandbyNode) return options_.coordinator_zone;
  return node <= zones_.size() ? zones_[node - 1] : none;
}

std::function<const SimLink*(SimRoute)> SimCluster::zone_links() const {
  if (!options_.link_between) return nullptr;
  return [this](SimRoute route) {
    return options_.link_between(zone_of(route.first), zone_of(route.second));
  };
}

StageId SimCluster::stage_of(SimNodeId node) const {
  return node == kCoordinatorNode || node == kStandbyNode ? StageId{} : seat_of(node - 1).stage;
}

bool SimCluster::is_running(std::size_t i) const {
  return runtime_.is_alive(node_of_peer(i)) && !nodes_[i]->outcome;
}

bool SimCluster::serves(std::size_t i) const {
  return runtime_.is_alive(node_of_peer(i)) && !is_buried(i) && nodes_[i]->peer->serves() &&
         coordinator_ && coordinator_->serves(nodes_[i]->peer->seat());
}

std::optional<RunOutcome> SimCluster::run(Duration limit) {
  runtime_.run_until([this] { return outcome_.has_value(); }, limit);
  return outcome_;
}

std::map<std::string, std::vector<std::byte>> SimCluster::parameters_of(std::size_t i) const {
  std::map<std::string, std::vector<std::byte>> tensors;
  const StagePeer& peer = *nodes_[i]->peer;
  const ParameterLayout* layout = peer.layout();
  if (layout == nullptr) return tensors;
  const BytesView arena = peer.committed_parameters();
  const std::size_t width = size_bytes(layout->dtype);
  for (const ParameterSlot& slot : layout->slots) {
    const BytesView bytes = arena.subspan(slot.offset * width, slot.elements * width);
    tensors[slot.name].assign(bytes.begin(), bytes.end());
  }
  return tensors;
}

std::map<std::string, std::vector<std::byte>> SimCluster::parameters() const {
  std::map<std::string, std::vector<std::byte>> all;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (!serves(i)) continue;
    for (auto& [name, bytes] : parameters_of(i)) {
      const auto [known, first] = all.emplace(name, bytes);
      SWARMLINE_CHECK_MSG(first || known->second == bytes, "replicas differ in " + name);
    }
  }
  return all;
}

}  // namespace swarmline
