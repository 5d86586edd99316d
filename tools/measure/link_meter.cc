#include "tools/measure/link_meter.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "base/order_statistics.h"
#include "engine/net/frame.h"

namespace swarmline {
namespace {

constexpr int kTripsOfRound = 200;
constexpr int kFarTripsOfRound = 20;

Result<void> checked(bool moved) {
  if (moved) return {};
  return fail(ErrorCode::kPeerGone, "the plain socket's other end is gone");
}

Result<void> move_over(const LinkMeter::Ends& ends, std::uint64_t count, std::uint64_t bytes,
                       bool outward) {
  return outward ? ends.link.send(count, bytes) : ends.link.receive(count, bytes);
}

double median_of(const std::vector<double>& values) {
  return values.empty() ? 0 : median(values);
}

}  // namespace

Result<double> LinkMeter::seconds_of(const std::function<Result<void>()>& work) const {
  const double start = clock_();
  SWARMLINE_TRY(work());
  return clock_() - start;
}

// The first payload is not timed within this machine: memory is taken, and every byte looked at.
Result<std::uint64_t> LinkMeter::payloads_of(const Ends& ends, std::uint64_t bytes,
                                             bool outward) const {
  SWARMLINE_TRY(move_over(ends, 1, bytes, outward));
  const std::uint64_t most = std::clamp<std::uint64_t>(kRoundBytes / bytes, 1, kLinkPayloadsMax);
  if (ends.far.empty()) return most;
  const auto took = seconds_of([&] { return move_over(ends, most, bytes, outward); });
  if (!took) return std::unexpected(took.error());
  const double fit = static_cast<double>(most) * kFarRoundSeconds / *took;
  return std::clamp(static_cast<std::uint64_t>(fit), std::uint64_t{1}, most);
}

Result<void> LinkMeter::measure_rate(const Ends& ends, std::uint64_t bytes, bool outward) {
  const char* const direction = ends.far.empty() ? "" : outward ? ", to there" : ", from there";
  news_.on_begin(fmt::format("{}, {} KiB{}", ends.way, bytes / kKiB, direction));
  const auto count = payloads_of(ends, bytes, outward);
  if (!count) return std::unexpected(count.error());
  Buffer room = Buffer::zeroed(bytes), from = Buffer::zeroed(bytes);
  const auto all = static_cast<double>(*count * bytes);
  std::vector<double> ours, raws, copies, ratios;
  for (int round = 0; round < rounds_; ++round) {
    const auto own = seconds_of([&] { return move_over(ends, *count, bytes, outward); });
    if (!own) return std::unexpected(own.error());
    ours.push_back(all / *own);
    if (ends.raw != nullptr) {
      const auto raw = seconds_of([&] {
        return checked(outward ? ends.raw->send(*count, from.bytes())
                               : ends.raw->receive(*count, room.bytes()));
      });
      if (!raw) return std::unexpected(raw.error());
      raws.push_back(all / *raw);
      ratios.push_back(*raw / *own);
    }
    if (!ends.far.empty()) continue;
    const auto copy = seconds_of([&]() -> Result<void> {
      for (std::uint64_t i = 0; i < *count; ++i) std::memcpy(room.data(), from.data(), bytes);
      return {};
    });
    copies.push_back(all / *copy);
  }
  result_.rates.push_back({.way = ends.way,
                           .bytes = bytes,
                           .bytes_per_second = median(ours),
                           .raw_bytes_per_second = median_of(raws),
                           .copy_bytes_per_second = median_of(copies),
                           .of_raw = median_of(ratios),
                           .far = ends.far,
                           .outward = outward});
  news_.on_rate(result_.rates.back());
  return {};
}

Result<void> LinkMeter::measure_trip(const Ends& ends) {
  news_.on_begin(ends.way + ", round trips");
  const int trips = ends.far.empty() ? kTripsOfRound : kFarTripsOfRound;
  Buffer message = Buffer::zeroed(kFrameHeaderBytes + kLinkBenchMessageBytes);
  const auto times = [&](const std::function<Result<void>()>& trip) {
    return seconds_of([&]() -> Result<void> {
      for (int i = 0; i < trips; ++i) SWARMLINE_TRY(trip());
      return {};
    });
  };
  std::vector<double> ours, raws, ratios;
  for (int round = 0; round < rounds_; ++round) {
    const auto own = times([&] { return ends.link.round_trip(); });
    if (!own) return std::unexpected(own.error());
    ours.push_back(*own / trips);
    if (ends.raw == nullptr) continue;
    const auto raw = times([&] { return checked(ends.raw->round_trip(message.bytes())); });
    if (!raw) return std::unexpected(raw.error());
    raws.push_back(*raw / trips);
    ratios.push_back(*own / *raw);
  }
  result_.trips.push_back({.way = ends.way,
                           .seconds = median(ours),
                           .raw_seconds = median_of(raws),
                           .of_raw = median_of(ratios),
                           .far = ends.far});
  news_.on_trip(result_.trips.back());
  return {};
}

}  // namespace swarmline
