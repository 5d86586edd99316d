#include "tools/chaos/chaos_run.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/rng.h"
#include "console/exit_codes.h"
#include "engine/net/tcp/tcp_network.h"
#include "engine/runtime/asio_runtime.h"
#include "engine/store/files.h"
#include "node/admin_client.h"
#include "node/child_process.h"
#include "pipeline/protocol/run_status.h"
#include "tools/chaos/chaos_faults.h"
#include "tools/chaos/chaos_injury.h"

namespace swarmline {
namespace {

constexpr Duration kTick = std::chrono::milliseconds(20);
constexpr Duration kStatusPeriod = std::chrono::milliseconds(100);
constexpr Duration kStartPatience = std::chrono::minutes(5);  // until it trains
constexpr Duration kPeersLeave = std::chrono::seconds(5);     // after the coordinator ended
constexpr Duration kRedraw = std::chrono::seconds(1);         // nobody could be spared
constexpr std::uint64_t kLogBytesMax = 1 << 30;

class ChaosRun {
 public:
  ChaosRun(ChaosRunOptions options, std::string program);
  Result<ChaosResult> run();

 private:
  void tick();
  void poll_status();
  void take_status(const std::string& json);
  void start_peers();
  void watch_run();
  bool has_leader();
  void watch_peers();
  void end(const std::string& why);

  void drive(PendingFault& pending, std::size_t id);
  bool is_due(const PendingFault& pending) const;
  void arm(PendingFault& pending, std::size_t id);
  void watch(const PendingFault& pending, std::size_t id, const std::string& process);
  void reached(const std::string& process, std::uint64_t id, std::uint64_t step);
  bool concerns(const PendingFault& pending, const std::string& process) const;
  std::vector<std::string> victims(const PendingFault& pending, const std::string& trigger) const;
  std::vector<std::string> peers_of_stage(std::uint32_t stage) const;
  std::optional<std::string> spare_peer();
  void apply(PendingFault& pending, std::size_t id, const std::vector<std::string>& who,
             std::uint64_t step);
  void begin(const ChaosFault& fault, const std::string& process);
  void heal(const ChaosFault& fault, const std::string& process);
  void note_speed(const std::string& process);
  std::optional<std::string> start_peer(bool now);
  void let_in(const std::string& peer);
  double wall() const { return runtime_.wall_seconds(); }

  ChaosRunOptions options_;
  AsioRuntime runtime_;
  TcpNetwork network_;
  ChaosSwarm swarm_;
  std::optional<AdminClient> admin_;
  bool asked_ = false;
  RunStatus status_;
  std::vector<PendingFault> pending_;
  Rng rng_;
  std::multimap<std::string, double> hurting_;  // now: what each fault leaves of its speed
  std::set<std::string> ended_;                 // peers, for good
  std::optional<Instant> training_;
  Instant progress_{};
  std::uint64_t progress_step_ = 0;
  std::optional<Instant> coordinator_ended_;
  bool interrupted_ = false;
  bool over_ = false;
  ChaosResult result_;
  std::optional<Error> error_;
};

ChaosRun::ChaosRun(ChaosRunOptions options, std::string program)
    : options_(std::move(options)),
      network_(runtime_, {}),
      swarm_(runtime_,
             {.program = std::move(program),
              .folder = options_.folder,
              .peer_arguments = options_.peer_arguments,
              .links = options_.plan.hurts_links()},
             {.on_reached = [this](const std::string& process, std::uint64_t id,
                                   std::uint64_t step) { reached(process, id, step); },
              .on_started =
                  [this](const std::string& process) {
                    for (std::size_t id = 0; id < pending_.size(); ++id)
                      if (pending_[id].state == FaultState::kArmed)
                        watch(pending_[id], id, process);
                  }}),
      rng_(Rng(options_.plan.random.seed)) {
  pending_ = pending_faults(options_.plan, rng_);
  result_.name = options_.plan.name;
  result_.run = options_.folder.path();
  result_.stages = options_.config.pipeline.stages;
  result_.microbatches = options_.config.microbatches_per_step();
  for (const PendingFault& pending : pending_) {
    ChaosDone done;
    done.name = pending.fault.name;
    done.what = fmt::format("{} {}", to_string(pending.fault.kind),
                            pending.drawn ? "a peer" : to_string(pending.fault.who));
    result_.faults.push_back(std::move(done));
  }
}

Result<ChaosResult> ChaosRun::run() {
  SWARMLINE_TRY(swarm_.start_coordinator());
  progress_ = runtime_.now();
  runtime_.on_signals([this](int) {
    interrupted_ = true;
    end("interrupted");
  });
  tick();
  poll_status();
  runtime_.run();
  swarm_.kill_all();
  if (error_) return std::unexpected(std::move(*error_));
  if (interrupted_) return fail(ErrorCode::kStopped, "interrupted; nothing runs any more");
  if (const auto json = options_.folder.final_status()) {
    if (auto status = parse_status(*json)) {
      result_.finished = status->state == "done" && status->step == status->steps;
      if (!status->sentence.empty()) result_.end = status->sentence;
    }
  }
  std::vector<JsonValue> lines;
  if (auto text = read_text_file(options_.folder.log(), kLogBytesMax)) {
    for (std::string_view rest = *text; !rest.empty();) {
      const std::size_t end = std::min(rest.find('\n'), rest.size());
      if (auto line = parse_json(rest.substr(0, end))) lines.push_back(std::move(*line));
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  }
  read_log(result_, lines);
  return std::move(result_);
}

void ChaosRun::end(const std::string& why) {
  if (std::exchange(over_, true)) return;
  result_.end = why;
  runtime_.request_stop();
}

void ChaosRun::tick() {
  if (over_) return;
  start_peers();
  for (std::size_t id = 0; id < pending_.size(); ++id)
    if (training_ || pending_[id].fault.phase == ChaosPhase::kStart) drive(pending_[id], id);
  watch_run();
  runtime_.call_after(kTick, [this] { tick(); });
}

std::optional<std::string> ChaosRun::start_peer(bool now) {
  auto name = swarm_.start_peer(now);
  if (!name) {
    error_ = std::move(name).error();
    end(error_->what);
    return std::nullopt;
  }
  if (now) note_speed(*name);
  return std::move(*name);
}

void ChaosRun::start_peers() {
  if (!swarm_.peers().empty() || !options_.folder.read_address()) return;
  const auto& peers = options_.config.pipeline.peers;
  const std::uint32_t wanted = std::accumulate(peers.begin(), peers.end(), 0U);
  for (std::uint32_t i = 0; i < wanted && !over_; ++i) start_peer(true);
  if (options_.plan.ends_coordinator()) {
    if (auto standby = swarm_.start_standby(options_.config.net.standby.front()); !standby) {
      error_ = std::move(standby).error();
      return end(error_->what);
    }
  }
  // Those who join later are started along: how long a process takes to start is not the point.
  for (PendingFault& pending : pending_)
    if (!over_ && (pending.fault.needs_newcomer() || pending.fault.kind == ChaosKind::kJoin))
      if (const auto name = start_peer(false)) pending.newcomer = *name;
}

void ChaosRun::let_in(const std::string& peer) {
  swarm_.let_in(peer);
  note_speed(peer);
}

// ---- How the run is -----------------------------------------------------------------------------

void ChaosRun::poll_status() {
  if (over_) return;
  if (const auto address = options_.folder.read_address(); address && !asked_ && has_leader()) {
    if (!admin_ || admin_->address() != *address)
      admin_.emplace(runtime_, network_, *address, options_.folder.admin_secret().value_or(""));
    asked_ = true;
    admin_->status([this](Result<std::string> json) {
      asked_ = false;
      if (json) take_status(*json);
    });
  }
  runtime_.call_after(kStatusPeriod, [this] { poll_status(); });
}

void ChaosRun::take_status(const std::string& json) {
  auto status = parse_status(json);
  if (!status) return;
  status_ = std::move(*status);
  if (!training_ && status_.state != "starting" && status_.state != "waiting") {
    training_ = runtime_.now();
    progress_ = *training_;
  }
  if (status_.step != progress_step_) progress_ = runtime_.now();
  progress_step_ = status_.step;
}

bool ChaosRun::has_leader() {
  return swarm_.runs(kCoordinatorName) || swarm_.runs(kStandbyName);
}

// By itself, or by somebody else: what it could have given is missing from then on.
void ChaosRun::watch_peers() {
  if (!has_leader()) return;
  for (const std::string& peer : swarm_.peers()) {
    const auto code = swarm_.ended_with(peer);
    if (code.value_or(0) == 0 || hurting_.contains(peer) || !ended_.insert(peer).second) continue;
    result_.unplanned.push_back(fmt::format("{} ended with code {}", peer, *code));
  }
}

void ChaosRun::watch_run() {
  const Instant now = runtime_.now();
  watch_peers();
  if (!has_leader() && !hurting_.contains(kCoordinatorName)) {
    if (!coordinator_ended_) coordinator_ended_ = now;
    const bool all_left = std::ranges::none_of(
        swarm_.peers(), [this](const std::string& peer) { return swarm_.runs(peer); });
    if (all_left || now > *coordinator_ended_ + kPeersLeave)
      end(fmt::format("the coordinator ended with code {}",
                      swarm_.ended_with(kCoordinatorName).value_or(0)));
    return;
  }
  if (!training_ && now - progress_ > kStartPatience) end("it did not begin to train");
  if (training_ && now - progress_ > from_seconds(options_.patience_seconds))
    end(fmt::format("stuck: no commit for {:.0f} s, at step {}", options_.patience_seconds,
                    status_.step));
}

// ---- When ---------------------------------------------------------------------------------------

bool ChaosRun::is_due(const PendingFault& pending) const {
  const ChaosFault& fault = pending.fault;
  // A phase of a step is waited for by those who come to it.
  if (fault.phase && !fault.needs_newcomer()) return true;
  return status_.step >= fault.at_step &&
         runtime_.now() >= *training_ + from_seconds(fault.at_seconds);
}

void ChaosRun::drive(PendingFault& pending, std::size_t id) {
  if (pending.state != FaultState::kWaiting || !is_due(pending)) return;
  if (pending.fault.phase) return arm(pending, id);
  if (pending.drawn) {
    const auto victim = spare_peer();
    if (!victim) {
      pending.fault.at_seconds = to_seconds(runtime_.now() - *training_ + kRedraw);
      return;
    }
    pending.fault.who = {.kind = ChaosTarget::Kind::kNamed, .name = *victim};
  }
  if (pending.fault.kind == ChaosKind::kJoin) {
    let_in(pending.newcomer);
    return apply(pending, id, {pending.newcomer}, 0);
  }
  if (const auto who = victims(pending, {}); !who.empty()) apply(pending, id, who, 0);
}

void ChaosRun::arm(PendingFault& pending, std::size_t id) {
  pending.state = FaultState::kArmed;
  for (const std::string& process : swarm_.names()) watch(pending, id, process);
  if (pending.fault.needs_newcomer()) let_in(pending.newcomer);
}

void ChaosRun::watch(const PendingFault& pending, std::size_t id, const std::string& process) {
  if (coordinator_comes_to(pending.fault) != (process == kCoordinatorName)) return;
  const auto& peers = options_.config.pipeline.peers;
  const std::uint32_t stage = pending.fault.who.stage;
  const bool alone = stage < peers.size() && peers[stage] == 1;
  const bool stepless =
      pending.fault.needs_newcomer() || pending.fault.phase == ChaosPhase::kTakeover;
  const bool last = pending.fault.phase == ChaosPhase::kLastCheckpoint;
  const std::uint64_t step = last ? options_.config.run.steps : pending.fault.at_step;
  for (const ChaosPoint& point : points_of(pending.fault, alone))
    swarm_.watch(process, id, point, stepless ? 0 : step);
}

void ChaosRun::reached(const std::string& process, std::uint64_t id, std::uint64_t step) {
  if (id >= pending_.size() || pending_[id].state != FaultState::kArmed) return;
  PendingFault& pending = pending_[id];
  if (!concerns(pending, process)) return;
  apply(pending, id, victims(pending, process), step);
}

// ---- Who ----------------------------------------------------------------------------------------

bool ChaosRun::concerns(const PendingFault& pending, const std::string& process) const {
  const auto seat = swarm_.seat_of(process);
  switch (pending.fault.who.kind) {
    case ChaosTarget::Kind::kCoordinator:
      return true;  // whoever comes to the phase first
    case ChaosTarget::Kind::kOneOfStage:
    case ChaosTarget::Kind::kStage:
      return seat && seat->stage == pending.fault.who.stage && process != pending.newcomer;
    case ChaosTarget::Kind::kNewcomer:
    case ChaosTarget::Kind::kNewcomerStage:
      return process == pending.newcomer;
    case ChaosTarget::Kind::kNamed:
      break;
  }
  return process == pending.fault.who.name;
}

std::vector<std::string> ChaosRun::peers_of_stage(std::uint32_t stage) const {
  std::vector<std::string> found;
  for (const std::string& peer : swarm_.peers()) {
    const auto seat = swarm_.seat_of(peer);
    if (seat && seat->stage == stage) found.push_back(peer);
  }
  return found;
}

// `trigger`: who came to the phase; empty for a fault at a time or a step.
std::vector<std::string> ChaosRun::victims(const PendingFault& pending,
                                           const std::string& trigger) const {
  const ChaosTarget& who = pending.fault.who;
  std::vector<std::string> found;
  switch (who.kind) {
    case ChaosTarget::Kind::kCoordinator:
      return {kCoordinatorName};
    case ChaosTarget::Kind::kStage:
      found = peers_of_stage(who.stage);
      break;
    case ChaosTarget::Kind::kNewcomerStage:
      if (const auto seat = swarm_.seat_of(trigger)) found = peers_of_stage(seat->stage);
      break;
    case ChaosTarget::Kind::kOneOfStage:
      if (!trigger.empty()) return {trigger};
      found = peers_of_stage(who.stage);
      found.resize(std::min<std::size_t>(found.size(), 1));
      break;
    case ChaosTarget::Kind::kNewcomer:
      return {trigger};
    case ChaosTarget::Kind::kNamed:
      return {who.name};
  }
  return found;
}

// A peer whose stage keeps another one that serves and suffers nothing.
std::optional<std::string> ChaosRun::spare_peer() {
  std::vector<std::string> spare;
  for (const StageStatus& stage : status_.stages) {
    std::vector<std::string> sound;
    for (const PeerStatus& peer : stage.peers)
      if (peer.state == "ready" && !hurting_.contains(peer.name) && swarm_.runs(peer.name))
        sound.push_back(peer.name);
    if (sound.size() > 1) spare.insert(spare.end(), sound.begin(), sound.end());
  }
  if (spare.empty()) return std::nullopt;
  return spare[rng_.below(spare.size())];
}

// ---- What ---------------------------------------------------------------------------------------

void ChaosRun::apply(PendingFault& pending, std::size_t id, const std::vector<std::string>& who,
                     std::uint64_t step) {
  const ChaosFault& fault = pending.fault;
  ChaosDone& done = result_.faults[id];
  done.at = wall();
  done.what = fmt::format("{} ", to_string(fault.kind));
  for (const std::string& process : who) {
    const auto seat = swarm_.seat_of(process);
    done.what += fmt::format("{}{}", process == who.front() ? "" : ", ", process);
    if (seat) done.what += fmt::format(" (stage {})", seat->stage);
    if (seat && fault.kind != ChaosKind::kJoin) done.peers.push_back(seat->peer);
    done.coordinator = done.coordinator || process == kCoordinatorName;
  }
  done.what += point_text(fault, step);
  pending.state = FaultState::kDone;
  for (const std::string& process : who) begin(fault, process);
  if (fault.phase) swarm_.unwatch(id);
  if (options_.says) {
    fmt::print("{:8.2f} s  {}\n", training_ ? to_seconds(runtime_.now() - *training_) : 0,
               done.what);
    std::fflush(stdout);
  }
  if (fault.kind == ChaosKind::kKill || fault.kind == ChaosKind::kJoin) return;
  runtime_.call_after(from_seconds(fault.seconds), [this, fault, who] {
    if (over_) return;
    for (const std::string& process : who) heal(fault, process);
  });
}

void ChaosRun::begin(const ChaosFault& fault, const std::string& process) {
  if (fault.kind == ChaosKind::kJoin) return;
  hurting_.emplace(process, left_by(fault));
  note_speed(process);
  if (fault.kind == ChaosKind::kKill) ended_.insert(process);
  hurt(swarm_, fault, process);
}

void ChaosRun::heal(const ChaosFault& fault, const std::string& process) {
  const auto [first, last] = hurting_.equal_range(process);
  const auto healed =
      std::find_if(first, last, [&](const auto& entry) { return entry.second == left_by(fault); });
  if (healed != last) hurting_.erase(healed);
  note_speed(process);
  if (fault.kind != ChaosKind::kRestart) return swarmline::heal(swarm_, fault, process);
  if (swarm_.runs(process)) return;  // another fault's end was sooner
  if (auto started = swarm_.start_again(process); !started) {
    error_ = started.error();
    end(error_->what);
  }
}

void ChaosRun::note_speed(const std::string& process) {
  if (options_.peer_speed <= 0 || process == kCoordinatorName) return;
  double speed = options_.peer_speed;
  const auto [first, last] = hurting_.equal_range(process);
  for (auto fault = first; fault != last; ++fault) speed *= fault->second;
  result_.speeds.push_back({.at = wall(), .process = process, .speed = speed});
}

}  // namespace

Result<ChaosResult> run_chaos(ChaosRunOptions options) {
  auto program = own_program_path();
  if (!program) return std::unexpected(std::move(program).error());
  return ChaosRun(std::move(options), std::move(*program)).run();
}

}  // namespace swarmline
