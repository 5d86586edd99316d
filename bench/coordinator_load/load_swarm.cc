#include "bench/coordinator_load/load_swarm.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include <fmt/format.h>

#include "engine/store/files.h"
#include "pipeline/protocol/knobs.h"

namespace swarmline {

namespace {

constexpr Duration kTick = std::chrono::milliseconds(1);
constexpr double kBehindMax = 0.05;  // seconds of devices' work that one tick makes up for
constexpr std::uint64_t kAddressBytesMax = 256;

std::uint32_t window_of(const LoadOptions& options) {
  return window_for(0, options.stages * options.peers_per_stage, options.peers_per_stage);
}

}  // namespace

LoadSwarm::LoadSwarm(Runtime& runtime, Network& network, LoadOptions options,
                     std::function<void(int)> finished)
    : runtime_(runtime),
      options_(std::move(options)),
      finished_(std::move(finished)),
      check_(options_.stages, options_.microbatches),
      stages_(options_.stages) {
  for (std::uint32_t i = 0; i < options_.stages * options_.peers_per_stage; ++i)
    peers_.push_back(
        std::make_unique<LoadPeer>(runtime, network, *this, counts_, i, window_of(options_)));
}

void LoadSwarm::start() {
  reached_ = ticked_ = runtime_.now();
  for (const auto& peer : peers_) dials_.push_back(peer.get());
  tick();
}

void LoadSwarm::stop() {
  over_ = true;
  guard_.drop_callbacks();
}

void LoadSwarm::say(const std::string& kind, const std::string& more) {
  std::printf("{\"event\":\"%s\",\"t\":%.6f%s}\n", kind.c_str(),
              to_seconds(runtime_.now().time_since_epoch()), more.c_str());
  std::fflush(stdout);
}

void LoadSwarm::wrong(const std::string& what) {
  if (std::exchange(over_, true)) return;
  std::string escaped;
  for (const char c : what) escaped += c == '"' || c == '\\' ? '\'' : c;
  say("wrong", fmt::format(",\"what\":\"{}\"", escaped));
  finished_(1);
}

void LoadSwarm::check(const std::string& what) {
  if (!what.empty()) wrong(what);
}

// ---- Connections --------------------------------------------------------------------------------

void LoadSwarm::on_adrift(LoadPeer& peer) {
  if (over_) return;
  if (seated_ == peers()) {
    reached_ = runtime_.now();
    accepted_ = true;  // what is still in the sockets was the last reign's
    seated_ = opened_ = 0;
    was_adrift_ = true;
    say("adrift");
  }
  dial_later(peer);
}

// As peers do: so long after the end of a connection, or after one that failed.
void LoadSwarm::dial_later(LoadPeer& peer) {
  runtime_.call_after(knobs().rejoin_pause,
                      guard_.wrap([this, &peer] { dials_.push_back(&peer); }));
}

void LoadSwarm::dial_all() {
  if (dials_.empty() || dialling_ >= kDialsMax) return;
  if (runtime_.now() - reached_ > kPatience) return wrong("no coordinator answers");
  const auto text = read_text_file(options_.address_file, kAddressBytesMax);
  const auto address = text ? parse_address(text->substr(0, text->find('\n')))
                            : Result<Address>(std::unexpected(text.error()));
  if (!address) return;
  while (!dials_.empty() && dialling_ < kDialsMax) {
    LoadPeer* const peer = dials_.front();
    dials_.pop_front();
    ++dialling_;
    peer->connect(*address, [this, peer](bool connected) {
      --dialling_;
      if (connected) reached_ = runtime_.now();
      if (!connected) dial_later(*peer);
    });
  }
}

void LoadSwarm::on_seated(LoadPeer& peer, bool resumed) {
  const Seat& seat = peer.seat();
  if (seat.stage.value >= options_.stages) return wrong("a seat at a stage that the run lacks");
  if (resumed && seated_ == 0) accepted_ = false;
  if (!resumed) stages_[seat.stage.value].push_back(&peer);
  if (++seated_ < peers()) return;
  for (const auto& stage : stages_)
    if (stage.size() != options_.peers_per_stage) return wrong("stages of unequal size");
  say("seated");
}

// ---- Steps --------------------------------------------------------------------------------------

void LoadSwarm::on_opened(LoadPeer& peer, std::uint64_t step) {
  queue(peer);
  if (++opened_ < peers()) return;
  opened_ = 0;
  say("open", fmt::format(",\"step\":{}", step));
}

void LoadSwarm::give(LoadPeer& peer, const LoadPeer::Try& given) {
  peer.take(given);
  queue(peer);
}

void LoadSwarm::queue(LoadPeer& peer) {
  if (peer.has_tries() && !std::exchange(peer.queued, true)) computes_.push_back(&peer);
}

// The source computes the first stage, and of each further one somebody whose turn it is.
void LoadSwarm::on_leased(LoadPeer& source, const wire::Lease& lease) {
  const LoadPeer::Try given{lease.phase().step(), lease.index(), lease.attempt(), lease.opening()};
  for (std::uint16_t s = 0; s < options_.stages; ++s) {
    if (!mask_has(lease.stage_mask(), StageId{s})) continue;
    const auto& stage = stages_[s];
    give(s == 0 ? source : *stage[(lease.index() + s) % stage.size()], given);
  }
}

void LoadSwarm::tick() {
  const Instant now = runtime_.now();
  due_ += options_.rate * std::min(to_seconds(now - ticked_), kBehindMax);
  ticked_ = now;
  dial_all();
  if (counts_.unanswered > kUnansweredMax) ++held_back_;
  while (due_ >= 1 && !computes_.empty() && counts_.unanswered <= kUnansweredMax &&
         !awaits_its_end()) {
    LoadPeer* const peer = computes_.front();
    computes_.pop_front();
    if (peer->has_tries()) {
      peer->finish_one();
      --due_;
      ++computed_;
    }
    peer->queued = false;
    queue(*peer);
  }
  if (computes_.empty()) due_ = std::min(due_, 1.0);
  if (!over_) runtime_.call_after(kTick, guard_.wrap([this] { tick(); }));
}

// In the last step the coordinator is killed: it can't end before.
bool LoadSwarm::awaits_its_end() const {
  const std::uint64_t all = std::uint64_t{options_.stages} * options_.microbatches;
  return !was_adrift_ && step_ + 1 == options_.steps && 2 * computed_ >= all;
}

void LoadSwarm::on_accepted(LoadPeer& peer, std::uint64_t step, std::uint32_t index, bool is_new) {
  if (is_new && !std::exchange(accepted_, true)) say("accepted");
  check(check_.accepted(step, peer.seat().stage.value, index));
}

void LoadSwarm::on_committed(LoadPeer&, std::uint64_t step) {
  if (++committed_ < peers()) return;
  committed_ = 0;
  computed_ = 0;
  step_ = step + 1;
  check(check_.committed(step));
  const std::string more = fmt::format(
      ",\"step\":{},\"contributions\":{},\"reports\":{},\"heartbeats\":{},\"claims\":{},"
      "\"refused\":{},\"held_back\":{}",
      step, counts_.contributions, counts_.reports, counts_.heartbeats, counts_.claims,
      counts_.refused, held_back_);
  if (over_) return;
  say("step", more);
  if (step + 1 < options_.steps) return;
  over_ = true;
  say("done", more);
  finished_(0);
}

}  // namespace swarmline
