#include "node/peer_node.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/rng.h"
#include "engine/identity/key_hash.h"
#include "engine/net/bulk/bulk_factory.h"
#include "engine/net/shm/shm_backend.h"
#include "node/cache_folder.h"
#include "node/descriptors.h"

namespace swarmline {
namespace {

// Last words reach the coordinator and the neighbours.
constexpr Duration kPeerLinger = std::chrono::milliseconds(300);

Duration from_ms(double ms) {
  return from_seconds(ms / 1000);
}

CpuDeviceOptions device_options(const PeerNodeOptions& options) {
  const PeerConfig& machine = options.machine;
  return {.name = machine.device,
          .emulation = {.forward = from_ms(machine.emulate_forward_ms),
                        .backward = from_ms(machine.emulate_backward_ms),
                        .jitter = machine.emulate_jitter},
          .seed = hash_name(options.name),
          .on_thread_start = {}};
}

}  // namespace

PeerNode::PeerNode(AsioRuntime& runtime, PeerNodeOptions options,
                   std::function<void(PeerOutcome)> on_finished)
    : runtime_(runtime),
      options_(std::move(options)),
      on_finished_(std::move(on_finished)),
      data_(options_.machine, hashes_folder(), fetched_),
      data_store_(runtime_, options_.machine, data_, fetched_),
      device_(runtime_, device_options(options_)),
      part_folder_(runtime_),
      notices_(runtime_, options_.machine, [this](const Notice& notice) { on_notice(notice); }) {
  SWARMLINE_CHECK(!options_.coordinators.empty());
}

PeerNode::~PeerNode() = default;

Result<void> PeerNode::open() {
  raise_descriptors();  // it averages with all peers of its stage
  SWARMLINE_TRY(notices_.open());
  auto network =
      options_.network(runtime_, {.name = options_.name,
                                  .slow_down = [this](double factor) { device_.slow_down(factor); },
                                  .guard = options_.guard});
  if (!network) return std::unexpected(std::move(network).error());
  network_ = std::move(*network);
  bulk_ = make_bulk_door(runtime_, *network_);
  if (options_.make_fabric) fabric_ = options_.make_fabric(runtime_, options_.machine.device);
  const auto& coordinators = options_.coordinators;
  std::function<void(const std::string&)> on_certificate;
  if (options_.guard)
    on_certificate = [guard = options_.guard](const std::string& certificate) {
      guard->take_certificate(certificate);
    };
  // The config is the coordinator's, the files are this machine's.
  std::function<HeldData(const DataManifest&)> compare;
  if (!options_.make_source)
    compare = [this](const DataManifest& manifest) { return data_.compare(manifest); };
  peer_.emplace(
      runtime_, *network_, device_,
      StagePeerOptions{
          .coordinator = coordinators.front(),
          .standby = {coordinators.begin() + 1, coordinators.end()},
          .machine = options_.machine,
          .name = options_.name,
          .host = to_hex(as_bytes(ShmBackend::machine())),
          .compare_data = std::move(compare),
          .make_source = options_.make_source
                             ? options_.make_source
                             : [this](const RunConfig& config) { return data_.open(config); },
          .make_model = options_.make_model,
          .free_device_memory = options_.free_device_memory,
          .make_wiring = {},
          .on_certificate = std::move(on_certificate),
          .part_folder = &part_folder_,
          .data_folder = &data_store_,
          .bulk = bulk_.get(),
          .fabric = fabric_.door.get(),
          .gpu = fabric_.gpu},
      [this](PeerOutcome outcome) {
        runtime_.call_after(kPeerLinger,
                            guard_.wrap([this, outcome = std::move(outcome)] { finish(outcome); }));
      });
  return {};
}

void PeerNode::finish(const PeerOutcome& outcome) {
  device_.stop();
  notices_.leave(guard_.wrap([this, outcome] { on_finished_(outcome); }));
}

void PeerNode::on_notice(const Notice& notice) {
  if (notice.kind == Notice::Kind::kAtRisk) {
    log(LogLevel::kWarn, "{}: this machine may be taken away soon", notice.words);
    return peer_->tell_risk();
  }
  log(LogLevel::kWarn, "{}, in {:.0f} s: this peer hands in its work and leaves", notice.words,
      to_seconds(notice.left));
  request_drain(std::max(Duration{}, notice.left - kNoticeMargin));
}

void PeerNode::request_drain(Duration notice) {
  data_.give_up();
  peer_->request_drain(notice);
}

void PeerNode::request_stop() {
  data_.give_up();
  peer_->request_stop();
}

void PeerNode::start() {
  SWARMLINE_CHECK(peer_.has_value());
  peer_->start();
  notices_.start();
}

}  // namespace swarmline
