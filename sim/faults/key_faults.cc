// Faults of a run with keys: who tries to come in, handshakes that stall, keys that change.
#include "base/check.h"
#include "base/marks.h"
#include "sim/faults/fault.h"

namespace swarmline {
namespace {

constexpr Duration kThiefDials = std::chrono::seconds(5);

SimTicket ticket_of(FaultKind kind, std::uint64_t times) {
  switch (kind) {
    case FaultKind::kWrongKey:
      SWARMLINE_MARK("fault.wrong_key");
      return SimTicket::kOtherRun;
    case FaultKind::kExpiredInvite:
      SWARMLINE_MARK("fault.expired_invite");
      return SimTicket::kExpired;
    case FaultKind::kSpentInvite:
      if (times % 2 == 0) {
        SWARMLINE_MARK("fault.invite_used_up");
        return SimTicket::kUsedUp;
      }
      SWARMLINE_MARK("fault.invite_revoked");
      return SimTicket::kRevoked;
    default:
      SWARMLINE_MARK("fault.stolen_seat");
      return SimTicket::kStolenSeat;
  }
}

}  // namespace

void FaultInjector::apply_to_keys(const Fault& fault) {
  SWARMLINE_CHECK(cluster_.keys() != nullptr);
  if (sends_stranger(fault.kind)) return send_stranger(fault);
  if (fault.kind == FaultKind::kRotateKey) {
    if (cluster_.keys()->rotate()) SWARMLINE_MARK("fault.rotate_key");
    return;
  }
  SWARMLINE_MARK("fault.stalled_handshake");
  begin(fault.node);
  begin(fault.other);
  cluster_.network().stall_handshakes(fault.node, true);
  cluster_.network().cut(fault.node, fault.other);
  heal_after(fault.time, {fault.node, fault.other},
             [this, node = fault.node] { cluster_.network().stall_handshakes(node, false); });
}

// It never recovers: nobody counts on it, and nothing else happens to it.
void FaultInjector::send_stranger(const Fault& fault) {
  SimPeer machine = cluster_.machine(fault.node - 1);
  machine.ticket = ticket_of(fault.kind, counts_[fault.kind]);
  const SimNodeId stranger = SimCluster::node_of_peer(cluster_.add_peer(machine));
  begin(stranger);
  cluster_.runtime().hurts(stranger);
  if (fault.kind != FaultKind::kStolenSeat) return;
  Network& network = cluster_.network().node(stranger);
  for (SimNodeId node = 1; node < stranger; ++node)
    if (cluster_.is_running(node - 1))
      network.connect(
          {"sim", static_cast<std::uint16_t>(node)}, kThiefDials,
          [](const Result<std::shared_ptr<Connection>>& made) {
            if (!made) return;
            (*made)->start({.on_frame = [](Frame) {}, .on_closed = [](const Error&) {}});
            (*made)->close();
          });
}

}  // namespace swarmline
