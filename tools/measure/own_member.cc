#include "tools/measure/own_member.h"

#include <algorithm>
#include <charconv>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/check.h"
#include "engine/collective/slices.h"
#include "engine/net/bulk/bulk_connection.h"
#include "engine/net/rpc.h"
#include "engine/net/tcp/tcp_network.h"
#include "engine/runtime/asio_runtime.h"
#include "pipeline/averaging/stage_averager.h"
#include "pipeline/protocol/message_kinds.h"
#include "tools/measure/member_line.h"
#include "tools/measure/payload_way.h"

namespace swarmline {
namespace {

constexpr Duration kPatience = std::chrono::seconds(60);
constexpr double kErrorMax = 0.1;  // 8-bit codecs on sums of a few values in [-1, 1]
enum Kind : std::uint16_t { kHello = 1, kReady, kOffer, kAnswer };

Seat seat_of(std::uint32_t rank) {
  return {PeerId{rank + 1}, StageId{0}, Incarnation{1}};
}
float value_of(std::uint32_t rank, std::size_t i) {
  return static_cast<float>((i * 31 + rank * 17) % 64) / 32 - 1;
}

class OwnMember {
 public:
  explicit OwnMember(const OwnMemberSpec& spec)
      : spec_(spec),
        input_(spec.bytes),
        output_(Buffer::zeroed(spec.bytes)),
        doors_(make_door_of(spec.way, runtime_, network_)),
        links_(spec.members),
        averager_(
            [this](const Seat& to, Frame frame) {
              links_[to.peer.value - 1].connection->send_lent(std::move(frame));
            },
            [](const Seat&, const Error& error) { SWARMLINE_CHECK_MSG(false, error.what); },
            [this](const Seat& to) {
              return links_[to.peer.value - 1].connection->shares_memory();
            },
            [this](std::function<void()> call) { runtime_.post(std::move(call)); }) {
    const auto values = input_.as<float>();
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = value_of(spec.rank, i);
  }

  void serve(int socket) {
    if (const auto here = way_is_here(spec_.way); !here)
      return say_without(socket, here.error().what);
    const auto address = network_.listen({address_of(spec_.rank), 0}, [this](auto connection) {
      unnamed_.push_back(link_over(std::move(connection)));
      start(unnamed_.back());
    });
    SWARMLINE_CHECK(address.has_value());
    write_line(socket, std::to_string(address->port));
    const auto ports = read_line(socket);
    if (!ports) return;
    connect_to(*ports);
    if (!take_way()) return say_without(socket, std::string(kWayNotTaken));
    SWARMLINE_CHECK(run_rounds(1).wire_bytes > 0 && is_right());
    write_line(socket, "ready");
    while (const auto line = read_line(socket)) {
      std::uint32_t rounds = 0;
      std::from_chars(line->data(), line->data() + line->size(), rounds);
      meet();
      const Measured took = run_rounds(rounds);
      write_line(socket, fmt::format("{} {} {}", took.seconds, took.cpu_seconds, took.wire_bytes));
    }
  }

 private:
  struct Measured {
    double seconds = 0, cpu_seconds = 0;
    std::uint64_t wire_bytes = 0;
  };
  struct Link {
    std::shared_ptr<BulkConnection> connection;
    std::shared_ptr<RpcChannel> channel;  // over it; none: no link yet
  };

  Link link_over(std::shared_ptr<Connection> connection) {
    Link link{.connection = doors_->over(std::move(connection)), .channel = {}};
    link.channel = RpcChannel::make(runtime_, link.connection);
    return link;
  }
  void start(const Link& link) {
    link.channel->start({.on_message = [this, link = &*link.channel](const Frame& frame) {
      on_message(link, frame);
    }});
  }
  Link& link_of(const RpcChannel* channel) {
    const auto is_it = [channel](const Link& link) { return link.channel.get() == channel; };
    const auto named = std::ranges::find_if(links_, is_it);
    return named != links_.end() ? *named : *std::ranges::find_if(unnamed_, is_it);
  }

  std::string address_of(std::uint32_t rank) const {
    return spec_.addresses.empty() ? "127.0.0.1" : spec_.addresses[rank];
  }

  // As a run cuts them (pipeline/coordinator/steps/uneven_slices.h).
  std::vector<std::uint64_t> bounds_of(std::uint64_t elements) const {
    const auto weights = water_filling(spec_.mbit_per_second);
    return weights ? slice_bounds(elements, *weights, kSliceAlignment)
                   : equal_slice_bounds(elements, spec_.members);
  }

  void connect_to(const std::string& ports) {
    const char* at = ports.data();
    for (std::uint32_t other = 0; other < spec_.rank; ++other) {
      std::uint16_t port = 0;
      at = std::from_chars(at, ports.data() + ports.size(), port).ptr + 1;
      connect(other, port);
    }
    const auto all_known = [this] {
      const auto known = std::ranges::count_if(links_, [](const Link& l) { return !!l.channel; });
      return known + 1 == static_cast<std::ptrdiff_t>(spec_.members);
    };
    SWARMLINE_CHECK(runtime_.run_until(all_known, kPatience));
  }

  void connect(std::uint32_t other, std::uint16_t port) {
    network_.connect({address_of(other), port}, kPatience, [this, other](auto connection) {
      SWARMLINE_CHECK(connection.has_value());
      const Link& link = links_[other] = link_over(*connection);
      start(link);
      link.channel->notify({.kind = kHello, .meta = std::string(1, static_cast<char>(spec_.rank))});
    });
  }

  // Whether chunks go that way from now on, over all links. Who dialled offers it.
  bool take_way() {
    if (goes_with_frames(spec_.way)) return true;
    for (std::uint32_t other = 0; other < spec_.rank; ++other)
      links_[other].channel->notify({.kind = kOffer, .meta = links_[other].connection->offer()});
    const auto is_taken = [this](const Link& link) {
      return !link.channel || link.connection->way() == spec_.way;
    };
    return runtime_.run_until([&] { return std::ranges::all_of(links_, is_taken); },
                              2 * kBulkMeetTime);
  }

  void on_message(const RpcChannel* from, const Frame& frame) {
    switch (frame.kind) {
      case kHello:
        links_.at(static_cast<std::size_t>(frame.meta.at(0))) = std::move(link_of(from));
        std::erase_if(unnamed_, [](const Link& link) { return !link.channel; });
        return;
      case kReady:
        ++ready_;
        return;
      case kOffer: {
        const Link& link = link_of(from);
        return link.channel->notify({.kind = kAnswer, .meta = link.connection->answer(frame.meta)});
      }
      case kAnswer:
        if (!frame.meta.empty())
          SWARMLINE_CHECK(link_of(from).connection->take_answer(frame.meta).has_value());
        return;
      default:
        break;
    }
    std::uint32_t rank = 0;
    while (links_[rank].channel.get() != from) ++rank;
    const auto taken = averager_.on_chunk(seat_of(rank), frame);
    SWARMLINE_CHECK_MSG(taken.has_value(), taken.error().what);
  }

  // All members have been told to begin.
  void meet() {
    ++meetings_;
    for (const Link& link : links_)
      if (link.channel) link.channel->notify({.kind = kReady});
    SWARMLINE_CHECK(runtime_.run_until([this] { return ready_ >= (spec_.members - 1) * meetings_; },
                                       kPatience));
  }

  Measured run_rounds(std::uint32_t rounds) {
    Measured measured;
    const double cpu = own_cpu_seconds();
    const Instant start = runtime_.now();
    for (std::uint32_t i = 0; i < rounds; ++i) measured.wire_bytes += round();
    drain();
    measured.seconds = to_seconds(runtime_.now() - start);
    measured.cpu_seconds = own_cpu_seconds() - cpu;
    return measured;
  }

  // Who has its own result may still have what others wait for, and nothing is sent while it waits
  // to be told of more rounds.
  void drain() {
    const auto all_sent = [this] {
      return std::ranges::all_of(links_, [](const Link& link) {
        return !link.channel || link.connection->unsent_bytes() == 0;
      });
    };
    SWARMLINE_CHECK(runtime_.run_until(all_sent, kPatience));
  }

  std::uint64_t round() {
    const Phase phase{PhaseKind::kTrain, step_++};
    const std::uint64_t elements = input_.size() / sizeof(float);
    std::optional<std::uint64_t> sent;
    StageAverager::Round round;
    round.key = {.phase = phase};
    for (std::uint32_t r = 0; r < spec_.members; ++r) round.members.push_back(seat_of(r));
    round.spec = {.rank = spec_.rank,
                  .ranks = spec_.members,
                  .elements = elements,
                  .bounds = bounds_of(elements),
                  .scatter = std::vector<CodecSpec>(spec_.members, spec_.codec),
                  .gather = spec_.codec};
    round.input = input_.bytes();
    round.output = output_.bytes();
    round.on_done = [&sent](std::uint64_t bytes) { sent = bytes; };
    SWARMLINE_CHECK(averager_.start(std::move(round)).has_value());
    SWARMLINE_CHECK(runtime_.run_until([&] { return sent.has_value(); }, kPatience));
    averager_.retire(phase);
    return *sent;
  }

  bool is_right() const {
    const double error_max = spec_.codec.kind == CodecKind::kNone ? 1e-5 : kErrorMax;
    const auto values = output_.as<const float>();
    for (std::size_t i = 0; i < values.size(); i += 997) {
      double sum = 0;
      for (std::uint32_t r = 0; r < spec_.members; ++r) sum += double{value_of(r, i)};
      const double error = double{values[i]} - sum;
      if (!(error <= error_max && error >= -error_max)) return false;
    }
    return true;
  }

  const OwnMemberSpec spec_;
  Buffer input_, output_;
  AsioRuntime runtime_;
  TcpNetwork network_{runtime_, {}};
  std::unique_ptr<BulkDoor> doors_;
  std::vector<Link> links_;    // by rank
  std::vector<Link> unnamed_;  // accepted, not yet introduced
  StageAverager averager_;
  std::uint64_t step_ = 0;
  std::uint64_t ready_ = 0, meetings_ = 0;  // words of others, over all meetings
};

}  // namespace

void say_without(int line, const std::string& why) {
  write_line(line, std::string(kWithoutWay) + why);
}

void serve_own_member(const OwnMemberSpec& spec, int line) {
  OwnMember(spec).serve(line);
}

}  // namespace swarmline
