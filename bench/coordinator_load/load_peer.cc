#include "bench/coordinator_load/load_peer.h"

#include <utility>

#include <fmt/format.h>

#include "base/hash.h"
#include "base/limits.h"
#include "pipeline/protocol/data_messages.h"
#include "pipeline/protocol/knobs.h"
#include "pipeline/protocol/protocol_version.h"

namespace swarmline {

namespace {

constexpr std::uint64_t kBusyNs = 10'000'000;  // of a microbatch on its device, as it says

std::uint64_t hash_of(std::uint64_t a, std::uint64_t b, std::uint64_t c) {
  RollingHash hash;
  hash.add(a);
  hash.add(b);
  hash.add(c);
  return hash.value();
}

}  // namespace

std::uint64_t reduced_digest(std::uint32_t group, std::uint64_t step) {
  return hash_of(1, group, step);
}

std::uint64_t LoadPeer::state_digest(std::uint64_t version) const {
  return hash_of(2, seat_.stage.value, version);
}

LoadPeer::LoadPeer(Runtime& runtime, Network& network, LoadEvents& events, LoadCounts& counts,
                   std::uint32_t number, std::uint32_t window)
    : runtime_(runtime),
      network_(network),
      events_(events),
      counts_(counts),
      number_(number),
      window_(window) {}

void LoadPeer::wrong(const std::string& what) {
  events_.wrong(fmt::format("{}: {}", to_string(seat_), what));
}

void LoadPeer::tell(MessageKind kind, const auto& message) {
  if (channel_) channel_->notify(make_frame(kind, message));
}

// ---- Its coordinator ----------------------------------------------------------------------------

void LoadPeer::connect(const Address& coordinator, std::function<void(bool)> done) {
  network_.connect(coordinator, knobs().reach_timeout,
                   guard_.wrap([this, done = std::move(done)](
                                   const Result<std::shared_ptr<Connection>>& connected) {
                     if (connected) on_channel(*connected);
                     done(connected.has_value());
                   }));
}

void LoadPeer::close() {
  if (channel_) channel_->close();
}

void LoadPeer::on_channel(std::shared_ptr<Connection> connection) {
  channel_ = RpcChannel::make(runtime_, std::move(connection));
  channel_->start({.on_message = guard_.wrap([this](const Frame& frame) { on_message(frame); }),
                   .on_closed = guard_.wrap([this](const Error&) { on_closed(); })});
  say_hello();
}

void LoadPeer::say_hello() {
  channel_->call(make_frame(MessageKind::kHello, hello()), Limits::rpc_deadline,
                 guard_.wrap([this](const Result<Frame>& reply) {
                   if (!reply) {
                     if (reply.error().code != ErrorCode::kPeerGone) wrong(reply.error().what);
                     return;
                   }
                   if (kind_of(*reply) == MessageKind::kDataWanted) {
                     const auto wanted = parse<wire::DataWanted>(*reply);
                     return wanted ? on_data_wanted(*wanted) : wrong(wanted.error().what);
                   }
                   const auto welcome = parse<wire::Welcome>(*reply);
                   welcome ? on_welcome(*welcome) : wrong(welcome.error().what);
                 }));
}

void LoadPeer::on_data_wanted(const wire::DataWanted& wanted) {
  const auto manifest = from_wire(wanted);
  if (!manifest) return wrong(manifest.error().what);
  if (data_ == manifest->fingerprint()) return wrong("it is asked twice about the same data");
  data_ = manifest->fingerprint();
  say_hello();
}

wire::Hello LoadPeer::hello() const {
  wire::Hello hello;
  hello.set_protocol(kProtocolVersion);
  hello.set_name(fmt::format("load-{}", number_));
  hello.set_address(
      fmt::format("10.{}.{}.{}:7400", number_ >> 16, number_ >> 8 & 255, number_ & 255));
  hello.set_device("cpu");
  hello.set_run_id(run_id_);
  hello.set_term(term_);
  if (!data_.empty()) hello.mutable_data()->set_fingerprint(data_);
  if (seat_.peer.value == 0) return hello;
  *hello.mutable_previous() = to_wire(seat_);
  hello.set_seat_proof(seat_proof_);
  hello.mutable_kept()->set_stage(seat_.stage.value);
  hello.mutable_kept()->set_version(committed_);
  fill(*hello.mutable_holdings());
  return hello;
}

void LoadPeer::fill(wire::Holdings& holdings) const {
  holdings.set_era(era_);
  holdings.set_version(committed_);
  holdings.set_stepped(committed_);
  if (committed_ > 0) holdings.set_state_digest(state_digest(committed_));
  holdings.set_wanted(wanted_);
  holdings.set_leased(leased_);
  if (!open_) return;
  wire::PhaseHoldings* held = holdings.add_phases();
  held->mutable_phase()->set_step(committed_);
  held->set_version(committed_);
  const auto list = [](const auto& from, auto&& add) {
    for (const auto& [index, done] : from) {
      wire::Contribution* contribution = add();
      contribution->set_index(index);
      contribution->set_attempt(done.attempt);
      contribution->set_loss_sum(1);
    }
  };
  list(acknowledged_, [held] { return held->add_acknowledged(); });
  list(reported_, [held] { return held->add_reported(); });
}

void LoadPeer::on_welcome(const wire::Welcome& welcome) {
  const bool again = seat_.peer.value != 0;
  if (again && (!welcome.resumed() || from_wire(welcome.seat()) != seat_ ||
                welcome.run_id() != run_id_ || welcome.term() <= term_))
    return wrong("a coordinator that was begun again did not give it its seat back");
  if (!again && welcome.joining()) return wrong("training began without it");
  seat_ = from_wire(welcome.seat());
  term_ = welcome.term();
  era_ = welcome.era();
  run_id_ = welcome.run_id();
  seat_proof_ = welcome.seat_proof();
  if (welcome.heartbeat_seconds() > 0) usual_ = from_seconds(welcome.heartbeat_seconds());
  period_ = usual_;
  seated_ = !again;  // until it is told to resume
  events_.on_seated(*this, again);
  ++beats_;
  beat();
  if (again) return;
  wire::Ready ready;
  *ready.mutable_seat() = to_wire(seat_);
  ready.set_version(0);
  ready.set_state_digest(state_digest(0));
  tell(MessageKind::kReady, ready);
  want();
}

void LoadPeer::on_closed() {
  channel_.reset();
  if (std::exchange(seated_, false)) counts_.unanswered -= reported_.size();
  tries_.clear();
  pending_.Clear();
  events_.on_adrift(*this);
}

void LoadPeer::beat() {
  wire::Heartbeat heartbeat;
  *heartbeat.mutable_seat() = to_wire(seat_);
  heartbeat.set_in_flight(static_cast<std::uint32_t>(tries_.size()));
  // The first of another period comes sooner, so that not all beat at once.
  const Duration early =
      std::exchange(spreads_, false) ? Duration(period_ * (number_ % 64) / 128) : Duration{};
  const Duration pause = period_ - early;
  if (pause != usual_) heartbeat.set_period_seconds(to_seconds(pause));
  tell(MessageKind::kHeartbeat, heartbeat);
  ++counts_.heartbeats;
  runtime_.call_after(pause, guard_.wrap([this, beats = beats_] {
    if (beats == beats_) beat();
  }));
}

void LoadPeer::on_ack(const wire::HeartbeatAck& ack) {
  const Duration asked = heartbeat_period_from(ack.period_seconds());
  if (asked == Duration{} || asked == period_) return;
  period_ = asked;
  spreads_ = true;
}

void LoadPeer::on_message(const Frame& frame) {
  const auto handle = [&]<typename Message>(std::type_identity<Message>, auto&& take) {
    const auto message = parse<Message>(frame);
    message ? take(*message) : wrong(message.error().what);
  };
  switch (kind_of(frame)) {
    case MessageKind::kHeartbeatAck:
      return handle(std::type_identity<wire::HeartbeatAck>(), [&](const auto& m) { on_ack(m); });
    case MessageKind::kMembership:
      return;
    case MessageKind::kReportAck:
      return handle(std::type_identity<wire::ReportAck>(), [&](const auto& m) { on_ack(m); });
    case MessageKind::kOpenPhase:
      return handle(std::type_identity<wire::OpenPhase>(), [&](const auto& m) { on_open(m); });
    case MessageKind::kLeases:
      return handle(std::type_identity<wire::Leases>(), [&](const auto& m) { on_leases(m); });
    case MessageKind::kSeal:
      return handle(std::type_identity<wire::Seal>(), [&](const auto& m) { on_seal(m); });
    case MessageKind::kCommit:
      return handle(std::type_identity<wire::Commit>(), [&](const auto& m) { on_commit(m); });
    case MessageKind::kResume:
      return on_resume();
    default:
      return wrong(fmt::format("it was sent a {}", to_string(kind_of(frame))));
  }
}

// What was begun under the coordinator before is void, but for what both have counted.
void LoadPeer::on_resume() {
  seated_ = true;
  opening_ = 0;  // until the step is opened again
  counts_.unanswered += reported_.size();
  leases_.clear();
  while (finished_ < leased_) {
    ++finished_;
    window_.on_finished();
  }
}

// ---- Steps --------------------------------------------------------------------------------------

void LoadPeer::on_open(const wire::OpenPhase& open) {
  if (open.phase().eval() || open.phase().step() != committed_ || open.version() != committed_)
    return wrong(fmt::format("{} is opened after {} commits", to_string(from_wire(open.phase())),
                             committed_));
  if (open_ && open.opening() <= opening_) return wrong("a step was opened twice");
  open_ = true;
  opening_ = open.opening();
  want();
  events_.on_opened(*this, committed_);
}

void LoadPeer::want() {
  if (seat_.stage.value != 0 || window_.total_wanted() <= wanted_) return;
  wanted_ = window_.total_wanted();
  wire::WantLeases message;
  *message.mutable_seat() = to_wire(seat_);
  message.set_total(wanted_);
  message.set_finished(window_.finished());
  tell(MessageKind::kWantLeases, message);
}

void LoadPeer::on_leases(const wire::Leases& leases) {
  leased_ += static_cast<std::uint64_t>(leases.leases_size());
  if (leased_ > wanted_) return wrong("it was leased more than it asked for");
  for (const wire::Lease& lease : leases.leases()) {
    if (lease.phase().eval() || lease.phase().step() != committed_ || lease.opening() != opening_)
      return wrong("a lease of a phase that is not open");
    ++leases_[lease.index()];
    events_.on_leased(*this, lease);
    if (!mask_has(lease.stage_mask(), seat_.stage)) end_lease(lease.index());
  }
  want();
}

void LoadPeer::end_lease(std::uint32_t index) {
  const auto lease = leases_.find(index);
  if (lease == leases_.end()) return;
  if (--lease->second == 0) leases_.erase(lease);
  ++finished_;
  window_.on_finished();
}

void LoadPeer::finish_one() {
  const Try done = tries_.front();
  tries_.pop_front();
  if (done.step != committed_ || done.opening != opening_) return end_lease(done.index);
  done.attempt == 0 ? add(done) : claim(done);
}

void LoadPeer::claim(const Try& claimed) {
  ++counts_.claims;
  wire::Claim claim;
  *claim.mutable_seat() = to_wire(seat_);
  wire::AttemptId* id = claim.mutable_id();
  id->mutable_phase()->set_step(committed_);
  id->set_index(claimed.index);
  id->set_attempt(claimed.attempt);
  channel_->call(make_frame(MessageKind::kClaim, claim), Limits::rpc_deadline,
                 guard_.wrap([this, claimed](const Result<Frame>& reply) {
                   if (!reply || claimed.step != committed_ || claimed.opening != opening_) return;
                   const auto answer = parse<wire::ClaimReply>(*reply);
                   if (!answer) return wrong(answer.error().what);
                   if (answer->granted()) return add(claimed);
                   end_lease(claimed.index);
                   want();
                 }));
}

// Several that end within the delay travel together.
void LoadPeer::add(const Try& computed) {
  if (reported_.contains(computed.index) || acknowledged_.contains(computed.index))
    return end_lease(computed.index);
  reported_[computed.index] = computed;
  ++counts_.unanswered;
  wire::Contribution* contribution = pending_.add_contributions();
  contribution->set_index(computed.index);
  contribution->set_attempt(computed.attempt);
  contribution->set_loss_sum(1);
  if (std::exchange(flush_armed_, true)) return;
  runtime_.call_after(knobs().report_delay, guard_.wrap([this] { flush(); }));
}

void LoadPeer::flush() {
  flush_armed_ = false;
  if (pending_.contributions_size() == 0) return;
  *pending_.mutable_seat() = to_wire(seat_);
  pending_.mutable_phase()->set_step(committed_);
  ++counts_.reports;
  tell(MessageKind::kReport, pending_);
  pending_.Clear();
}

void LoadPeer::on_ack(const wire::ReportAck& ack) {
  if (ack.phase().eval() || ack.phase().step() != committed_)
    return wrong("an answer to a report of another step");
  for (const std::uint32_t index : ack.accepted()) {
    auto reported = reported_.extract(index);
    if (reported.empty()) return wrong("what it did not report was accepted");
    --counts_.unanswered;
    ++counts_.contributions;
    const bool is_new = reported.mapped().opening == opening_;
    acknowledged_.insert(std::move(reported));
    end_lease(index);
    events_.on_accepted(*this, committed_, index, is_new);
  }
  for (const std::uint32_t index : ack.refused()) {
    if (reported_.erase(index) == 0) return wrong("what it did not report was refused");
    --counts_.unanswered;
    ++counts_.refused;
    end_lease(index);
  }
  want();
}

void LoadPeer::on_seal(const wire::Seal& seal) {
  if (!open_ || seal.phase().eval() || seal.phase().step() != committed_)
    return wrong("a seal of a step that is not open");
  std::size_t owned = 0;
  for (const wire::Range& range : seal.owned())
    for (std::uint32_t i = 0; i < range.count(); ++i, ++owned)
      if (!acknowledged_.contains(range.first() + i))
        return wrong("it is sealed with what it was not told to own");
  if (owned != acknowledged_.size()) return wrong("it is sealed without all that it owns");
  for (const wire::ReduceGroup& group : seal.groups()) {
    wire::Reduced reduced;
    *reduced.mutable_seat() = to_wire(seat_);
    *reduced.mutable_phase() = seal.phase();
    reduced.set_group(group.group());
    reduced.set_attempt(group.attempt());
    reduced.set_digest(reduced_digest(group.group(), committed_));
    reduced.set_sum_of_squares(1);
    reduced.set_reduce_bytes(1);
    reduced.set_passes(kPassesOfAMicrobatch * static_cast<std::uint32_t>(owned));
    reduced.set_busy_ns(kBusyNs * owned);
    tell(MessageKind::kReduced, reduced);
  }
}

void LoadPeer::on_commit(const wire::Commit& commit) {
  if (commit.step() != committed_)
    return wrong(fmt::format("step {} is committed after {} commits", commit.step(), committed_));
  if (commit.skipped()) return wrong("a step was skipped");
  for (const wire::GroupDigest& group : commit.groups())
    if (group.digest() != reduced_digest(group.group(), committed_))
      return wrong(fmt::format("step {} is committed with another digest", committed_));
  counts_.unanswered -= reported_.size();
  reported_.clear();
  acknowledged_.clear();
  pending_.Clear();
  open_ = false;
  while (!leases_.empty()) end_lease(leases_.begin()->first);
  ++committed_;
  std::erase_if(tries_, [this](const Try& given) { return given.step < committed_; });
  wire::Stepped stepped;
  *stepped.mutable_seat() = to_wire(seat_);
  stepped.set_version(committed_);
  stepped.set_state_digest(state_digest(committed_));
  tell(MessageKind::kStepped, stepped);
  want();
  events_.on_committed(*this, committed_ - 1);
}

}  // namespace swarmline
