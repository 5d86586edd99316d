// A peer as one object: its device, its network and the stage peer over both. What `swarmline peer`
// runs, and what a program embeds.
//   Ownership: the runtime outlives it. It owns device and network.
//   Thread:    control thread.
//   Errors:    of open(): as sentences. Later ones end it: on_finished.
//   Notices:   it watches for one ([peer] notices), and drains when one comes, within its time.
//   Bounds:    kPeerNotice to hand in what it holds, or what a notice leaves less kNoticeMargin;
//              kLinger from its end to on_finished, and NoticeWatch::kFarewellMax after a notice.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/callback_guard.h"
#include "base/result.h"
#include "engine/config/run_config.h"
#include "engine/device/cpu_device.h"
#include "engine/fabric/fabric.h"
#include "engine/fabric/gpu_identity.h"
#include "node/admission/peer_guard.h"
#include "node/data_store.h"
#include "node/fetched_pieces.h"
#include "node/network_factory.h"
#include "node/notices/notice_watch.h"
#include "node/part_folder.h"
#include "node/peer_data.h"
#include "pipeline/stage/stage_peer.h"

namespace swarmline {

// What clouds give a spot machine before it is taken, less a little.
inline constexpr Duration kPeerNotice = std::chrono::seconds(28);
inline constexpr Duration kNoticeMargin = std::chrono::seconds(2);

// How the peer's device reaches those of others on this machine, and what it is.
struct PeerFabric {
  std::unique_ptr<Fabric> door = nullptr;  // null: it reaches none
  GpuIdentity gpu = {};
};

struct PeerNodeOptions {
  std::vector<Address> coordinators;  // at least one: the run's, and its standbys
  PeerConfig machine;
  std::string name;
  std::shared_ptr<PeerGuard> guard = nullptr;  // of its links; null: they are plain
  decltype(StagePeerOptions::make_model) make_model;
  decltype(StagePeerOptions::free_device_memory) free_device_memory = {};
  // On the control thread, before it joins. Empty: it has none.
  std::function<PeerFabric(Runtime&, const std::string& device)> make_fabric = {};
  // Empty: from the data that the run's config names.
  decltype(StagePeerOptions::make_source) make_source = {};
  NetworkFactory network = make_tcp_network;
};

class PeerNode {
 public:
  PeerNode(AsioRuntime& runtime, PeerNodeOptions options,
           std::function<void(PeerOutcome)> on_finished);
  ~PeerNode();
  PeerNode(const PeerNode&) = delete;
  PeerNode& operator=(const PeerNode&) = delete;

  Result<void> open();
  void start();  // after open()
  // Its machine goes soon: takes nothing new, hands in what it holds, leaves.
  // `notice`: how long it has.
  void request_drain(Duration notice = kPeerNotice);
  void request_stop();
  const StagePeer& peer() const { return *peer_; }

 private:
  void on_notice(const Notice& notice);
  void finish(const PeerOutcome& outcome);

  AsioRuntime& runtime_;
  PeerNodeOptions options_;
  std::function<void(PeerOutcome)> on_finished_;
  std::shared_ptr<FetchedPieces> fetched_ = std::make_shared<FetchedPieces>();
  PeerData data_;
  DataStore data_store_;
  CpuDevice device_;
  PeerFabric fabric_;
  SharedPartFolder part_folder_;
  std::unique_ptr<BulkDoor> bulk_;  // outlives the connections, which have its links
  std::unique_ptr<Network> network_;
  std::optional<StagePeer> peer_;
  NoticeWatch notices_;
  CallbackGuard guard_;
};

}  // namespace swarmline
