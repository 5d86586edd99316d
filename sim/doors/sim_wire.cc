#include "sim/doors/sim_wire.h"

#include <algorithm>
#include <utility>

namespace swarmline {
namespace {

constexpr std::uint64_t kSmallFrameBytes = 16 * kKiB;

}  // namespace

const SimLink& SimWire::link_of(SimRoute route) const {
  if (!links.empty())
    if (const auto found = links.find(route); found != links.end()) return found->second;
  const SimLink* const link = options.link_between ? options.link_between(route) : nullptr;
  return link != nullptr ? *link : options.link;
}

Duration SimWire::one_way(SimRoute route) {
  const SimLink& link = link_of(route);
  if (link.jitter == Duration{}) return link.latency;
  return link.latency + from_seconds(rng.exponential(to_seconds(link.jitter)));
}

SimWire::Passage SimWire::passage(SimRoute route, std::uint64_t bytes, bool streams) {
  const Instant now = runtime.now();
  const auto taking = [bytes](double rate) {
    return from_seconds(static_cast<double>(bytes) / rate);
  };
  // Connections share a node's card fairly: a small frame goes between the parts of large ones. A
  // stream takes half of a card, and leaves half of it to others while it lasts; streams wait for
  // each other where they are received, for they come from many.
  const auto rate_of = [&](const Way& way, double rate) {
    return streams || way.streaming_until > now ? rate / 2 : rate;
  };
  const auto queue = [&](Way& way, Instant earliest, double rate, bool receives) {
    Instant& free_at = streams ? way.streaming_until : way.free_at;
    const bool waits = streams ? receives : bytes > kSmallFrameBytes;
    const Instant end = std::max(waits ? free_at : earliest, earliest) + taking(rate);
    free_at = std::max(free_at, end);
    return end;
  };
  Passage passage{now, now};
  Instant begins = now;
  const SimLink& link = link_of(route);
  if (link.bytes_per_second > 0 && link.small_between) {
    Way& way = link_ways[route];
    const double rate = rate_of(way, link.bytes_per_second);
    passage.leaves = queue(way, now, rate, true);
    begins = passage.leaves - taking(rate);
  } else if (const double rate = link.bytes_per_second; rate > 0) {
    Instant& free_at = link_free_at[route];
    begins = std::max(free_at, now);
    passage.leaves = free_at = begins + taking(rate);
  }
  if (const auto card = cards.find(route.first); card != cards.end()) {
    const double rate = rate_of(card->second.up, card->second.rates.up_bytes_per_second);
    const Instant end = queue(card->second.up, now, rate, false);
    begins = std::max(begins, end - taking(rate));
    passage.leaves = std::max(passage.leaves, end);
  }
  const Duration latency = one_way(route);
  passage.arrives = passage.leaves + latency;
  if (const auto card = cards.find(route.second); card != cards.end()) {
    const double rate = rate_of(card->second.down, card->second.rates.down_bytes_per_second);
    const Instant first = std::max(begins + latency, passage.arrives - taking(rate));
    passage.arrives = std::max(passage.arrives, queue(card->second.down, first, rate, true));
  }
  return passage;
}

SimWire::Damage SimWire::draw_damage(SimRoute route, const Frame& frame) {
  if (damaged.empty()) return Damage::kNone;
  const auto share_of = [this](SimNodeId node) {
    const auto found = damaged.find(node);
    return found == damaged.end() ? 0.0 : found->second;
  };
  const double share = std::max(share_of(route.first), share_of(route.second));
  if (share == 0 || damage_rng.uniform() >= share) return Damage::kNone;
  return frame.payload_bytes() > 0 && damage_rng.below(2) == 0 ? Damage::kPayload : Damage::kFrame;
}

void SimWire::when_open(SimRoute route, std::function<void()> fn) {
  if (!is_blocked(route)) return fn();
  waiting[route].push_back(std::move(fn));
}

}  // namespace swarmline
