#include "tests/pipeline/wayward_coordinator.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "engine/config/load.h"
#include "engine/fabric/fabric.h"

namespace swarmline {
namespace {

constexpr std::uint32_t kVocab = 31;
constexpr GroupId kGroup{0};
// By rank, who speaks for it; of the members that are left over each speaks for itself.
constexpr std::array<std::array<std::uint32_t, 3>, 5> kSpeakers = {
    {{0, 0, 0}, {0, 0, 2}, {0, 1, 1}, {0, 1, 0}, {0, 1, 2}}};

const std::vector<MessageKind> kToPeers =
    kinds_that_go(kFromCoordinator, {MessageKind::kSeal, MessageKind::kSeal});

}  // namespace

WaywardCoordinator::WaywardCoordinator(FuzzInput& input, SimNetwork& network, RunConfig config,
                                       std::uint32_t peers)
    : input_(input),
      config_(std::move(config)),
      network_(network.node(0)),
      frames_{.input = input,
              .seats = {},
              .activation_elements = 2 * 2 * 4,
              .activation_targets_bytes = 2 * 2 * 2},
      wanted_(peers),
      layout_(input.below(kSpeakers.size())),
      kind_(input.below(3)) {
  peers_.reserve(wanted_);
  auto bound = network_.listen({"sim", 60001}, [this](const std::shared_ptr<Connection>& made) {
    open_.push_back(made);
    made->start(
        {.on_frame = [this, self = made.get()](const Frame& frame) { on_frame(self, frame); },
         .on_closed =
             [this, self = made.get()](const Error&) {
               if (Peer* peer = peer_of(self)) peer->link.reset();
               std::erase_if(open_, [&](const auto& link) { return link.get() == self; });
             }});
  });
  SWARMLINE_CHECK(bound.has_value());
  address_ = *bound;
}

void WaywardCoordinator::end() {
  network_.stop_listening();
  for (const auto& left : std::vector(open_)) left->close();
}

WaywardCoordinator::Peer* WaywardCoordinator::peer_of(const Connection* link) {
  const auto found =
      std::ranges::find_if(peers_, [&](const Peer& peer) { return peer.link.get() == link; });
  return found == peers_.end() ? nullptr : &*found;
}

template <typename Holds>
bool WaywardCoordinator::all(Holds holds) const {
  return peers_.size() == wanted_ &&
         std::ranges::all_of(peers_, [&](const Peer& peer) { return !peer.link || holds(peer); });
}

void WaywardCoordinator::say(Peer& peer, MessageKind kind, google::protobuf::Message& message) {
  if (!peer.link) return;
  const auto place = static_cast<std::size_t>(&peer - peers_.data());
  const bool is_last = place + 1 == peers_.size();
  if (spoils_ && (*spoils_ == place || *spoils_ >= peers_.size())) {
    frames_.seats.front() = peer.seat;
    frames_.spoil(message);
    if (*spoils_ == place || is_last) spoils_.reset();
  }
  peer.link->send(make_frame(kind, message));
}

void WaywardCoordinator::on_frame(Connection* link, const Frame& frame) {
  if (kind_of(frame) == MessageKind::kHello) return welcome(link, frame);
  Peer* const peer = peer_of(link);
  if (peer == nullptr) return;
  switch (kind_of(frame)) {
    case MessageKind::kReady:
      peer->ready = true;
      if (!opened_ && all([](const Peer& p) { return p.ready; })) begin();
      return;
    case MessageKind::kClaim: {
      wire::ClaimReply claimed;
      claimed.set_granted(true);
      Frame reply = make_frame(MessageKind::kClaimReply, claimed);
      reply.request = frame.request;
      reply.flags = kFrameFlagReply;
      return link->send(std::move(reply));
    }
    case MessageKind::kReport:
      if (const auto report = parse<wire::Report>(frame)) on_report(*peer, *report);
      return;
    case MessageKind::kReduced:
      if (auto reduced = parse<wire::Reduced>(frame); reduced && reduced->attempt() == attempt_)
        peer->reduced = std::move(*reduced);
      if (!committed_ && all([](const Peer& p) { return p.reduced.has_value(); })) commit();
      return;
    case MessageKind::kRoundBroken:
      if (const auto broken = parse<wire::RoundBroken>(frame);
          !committed_ && broken && broken->attempt() == attempt_) {
        kind_ = input_.below(3);
        ++meeting_;
        seal();
      }
      return;
    case MessageKind::kStepped:
      peer->stepped = step_ + 1;
      if (committed_ && all([this](const Peer& p) { return p.stepped > step_; })) {
        ++step_;
        open();
      }
      return;
    default:
      return;
  }
}

void WaywardCoordinator::welcome(Connection* link, const Frame& frame) {
  const auto hello = parse<wire::Hello>(frame);
  if (!hello || peers_.size() == wanted_) return;
  Peer& peer = peers_.emplace_back();
  peer.seat = {PeerId{static_cast<std::uint32_t>(peers_.size())}, StageId{0}, Incarnation{1}};
  peer.address = hello->address();
  peer.link = *std::ranges::find_if(open_, [&](const auto& one) { return one.get() == link; });
  frames_.seats.push_back(peer.seat);
  wire::Welcome welcome;
  welcome.set_term(1);
  welcome.set_config_toml(to_toml(config_));
  welcome.set_run_id("simulated");
  welcome.set_vocab(kVocab);
  *welcome.mutable_seat() = to_wire(peer.seat);
  wire::StageCut* cut = welcome.add_cuts();
  cut->set_last_layer(config_.model.layers);
  welcome.set_heartbeat_seconds(5);
  Frame reply = make_frame(MessageKind::kWelcome, welcome);
  reply.request = frame.request;
  reply.flags = kFrameFlagReply;
  peer.link->send(std::move(reply));
}

void WaywardCoordinator::begin() {
  opened_ = true;
  for (Peer& peer : peers_) {
    wire::Membership membership;
    wire::Roster* roster = membership.add_rosters();
    roster->set_serial(1);
    for (const Peer& member : peers_) {
      wire::GroupMember* to = roster->add_members();
      *to->mutable_seat() = to_wire(member.seat);
      to->set_address(member.address);
    }
    *membership.mutable_to() = to_wire(peer.seat);
    say(peer, MessageKind::kMembership, membership);
  }
  open();
}

void WaywardCoordinator::open() {
  committed_ = false;
  if (step_ >= config_.run.steps) return;
  for (Peer& peer : peers_) {
    peer.owned.clear();
    peer.reduced.reset();
    wire::OpenPhase phase;
    phase.mutable_phase()->set_step(step_);
    phase.set_version(step_);
    phase.set_microbatches(static_cast<std::uint32_t>(config_.microbatches_per_step()));
    phase.set_opening(step_ + 1);
    say(peer, MessageKind::kOpenPhase, phase);
  }
  for (std::uint32_t index = 0; index < config_.microbatches_per_step(); ++index) {
    wire::Leases leases;
    wire::Lease* lease = leases.add_leases();
    lease->mutable_phase()->set_step(step_);
    lease->set_index(index);
    lease->set_attempt(index + 1);
    lease->set_opening(step_ + 1);
    say(peers_[index % peers_.size()], MessageKind::kLeases, leases);
  }
}

void WaywardCoordinator::on_report(Peer& peer, const wire::Report& report) {
  if (report.phase().step() != step_) return;
  wire::ReportAck ack;
  *ack.mutable_phase() = report.phase();
  for (const wire::Contribution& contribution : report.contributions()) {
    ack.add_accepted(contribution.index());
    peer.owned.insert(contribution.index());
  }
  say(peer, MessageKind::kReportAck, ack);
  std::size_t owned = 0;
  for (const Peer& member : peers_) owned += member.owned.size();
  if (owned >= config_.microbatches_per_step()) seal();
}

// Members of an island that had a meeting under that number have it again.
void WaywardCoordinator::seal() {
  ++attempt_;
  const auto& speakers = kSpeakers[layout_];
  for (Peer& peer : peers_) {
    peer.reduced.reset();
    wire::Seal seal;
    seal.mutable_phase()->set_step(step_);
    for (const std::uint32_t index : peer.owned) {
      wire::Range* range = seal.add_owned();
      range->set_first(index);
      range->set_count(1);
    }
    wire::ReduceGroup* group = seal.add_groups();
    group->set_group(kGroup.value);
    group->set_attempt(attempt_);
    group->set_meeting(meeting_ + 1);
    for (const Peer& member : peers_) {
      wire::GroupMember* to = group->add_members();
      *to->mutable_seat() = to_wire(member.seat);
      to->set_address(member.address);
    }
    if (layout_ + 1 < kSpeakers.size()) {
      group->mutable_speakers()->Add(speakers.begin(), speakers.begin() + wanted_);
      for (std::uint32_t rank = 0; rank < wanted_ && kind_ > 0; ++rank)
        group->add_fabrics(std::ranges::count(speakers, speakers[rank]) > 1
                               ? static_cast<std::uint32_t>(kind_)
                               : 0U);
    }
    say(peer, MessageKind::kSeal, seal);
  }
}

void WaywardCoordinator::commit() {
  committed_ = true;
  for (Peer& peer : peers_) {
    wire::Commit commit;
    commit.set_step(step_);
    wire::GroupDigest* group = commit.add_groups();
    group->set_group(kGroup.value);
    group->set_attempt(attempt_);
    if (peer.reduced) group->set_digest(peer.reduced->digest());
    commit.set_learning_rate(0.01);
    commit.set_clip_scale(1);
    commit.set_bias_correction1(1);
    commit.set_bias_correction2(1);
    *commit.mutable_to() = to_wire(peer.seat);
    say(peer, MessageKind::kCommit, commit);
  }
}

void WaywardCoordinator::act(SimNodeId victim) {
  if (!opened_ || victim == 0 || victim > peers_.size()) return;
  Peer& peer = peers_[victim - 1];
  switch (input_.below(8)) {
    case 0:
    case 1:
      return;
    case 2:
      spoils_ = peers_.size();
      return;
    case 3:
      spoils_ = victim - 1;
      return;
    case 4:
      layout_ = input_.below(kSpeakers.size());
      kind_ = input_.below(3);
      meeting_ += input_.below(2);
      if (!committed_) seal();
      return;
    case 5:
      if (!committed_) commit();
      return;
    default:
      break;
  }
  Frame frame = frames_.next(kToPeers);
  const bool is_the_last =
      kind_of(frame) == MessageKind::kShutdown || kind_of(frame) == MessageKind::kFenced;
  if (peer.link && (!is_the_last || input_.below(8) == 0)) peer.link->send(std::move(frame));
}

}  // namespace swarmline
