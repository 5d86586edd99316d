#include "tools/measure/own_member.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>

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

constexpr double kErrorMax = 0.1;  // 8-bit codecs on sums of a few values in [-1, 1]
enum Kind : std::uint16_t { kHello = 1, kReady, kDone, kOffer, kAnswer };

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
        network_(runtime_, {.guard = spec.guard}),
        doors_(make_door_of(spec.way, runtime_, network_, spec.trusted)),
        links_(spec.members),
        averager_(
            [this](const Seat& to, Frame frame) {
              links_[to.peer.value - 1].connection->send_lent(std::move(frame));
            },
            [this](const Seat& of, const Error& error) {
              fail_with(fmt::format("what member {} sent: {}", of.peer.value - 1, error.what));
            },
            [this](const Seat& to) {
              return links_[to.peer.value - 1].connection->shares_memory();
            },
            [this](std::function<void()> call) { runtime_.post(std::move(call)); }) {
    const auto values = input_.as<float>();
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = value_of(spec.rank, i);
  }

  // Until `socket` ends.
  Result<void> serve(int socket) {
    if (const auto here = way_is_here(spec_.way); !here)
      return fail(ErrorCode::kNotFound, here.error().what);
    const auto address = network_.listen({spec_.host, 0}, [this](auto connection) {
      unnamed_.push_back(link_over(std::move(connection)));
      start(unnamed_.back(), true);
    });
    if (!address) return std::unexpected(address.error());
    write_line(socket, std::to_string(address->port));
    const auto addresses = read_line(socket);
    if (!addresses) return {};
    SWARMLINE_TRY(connect_to(*addresses));
    if (!take_way()) return fail(ErrorCode::kNotFound, std::string(kWayNotTaken));
    const auto first = run_rounds(1);
    if (!first) return std::unexpected(first.error());
    if (first->wire_bytes == 0 || !is_right()) return fail(ErrorCode::kCorrupt, "its sum is wrong");
    write_line(socket, "ready");
    while (const auto line = read_line(socket)) {
      std::uint32_t rounds = 0;
      std::from_chars(line->data(), line->data() + line->size(), rounds);
      SWARMLINE_TRY(meet());
      const auto took = run_rounds(rounds);
      if (!took) return std::unexpected(took.error());
      write_line(socket,
                 fmt::format("{} {} {}", took->seconds, took->cpu_seconds, took->wire_bytes));
    }
    return {};
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
  void start(const Link& link, bool is_stranger) {
    RpcChannel::Handlers handlers{
        .on_message = [this,
                       link = &*link.channel](const Frame& frame) { on_message(link, frame); },
        .on_request = {},
        .on_closed = [this, link = &*link.channel](const Error& error) { on_closed(link, error); }};
    if (is_stranger)
      handlers.stranger = ConnectionBounds{.room = [](std::uint16_t) {
        return FrameRoom{.meta_bytes_max = kHelloBytesMax, .payload_bytes_max = 0};
      }};
    link.channel->start(std::move(handlers));
  }
  // Strangers come and go; with a member all is over.
  void on_closed(const RpcChannel* channel, const Error& error) {
    const auto rank = rank_of(channel);
    if (rank)
      return fail_with(fmt::format("its link to member {} has ended: {}", *rank, error.what));
    std::erase_if(unnamed_, [&](const Link& link) { return link.channel.get() == channel; });
  }
  void fail_with(std::string what) {
    if (!failed_) failed_ = Error{ErrorCode::kPeerGone, std::move(what)};
  }
  Result<void> wait_for(const std::function<bool()>& done, Duration patience, const char* what) {
    if (!runtime_.run_until([&] { return failed_ || done(); }, patience))
      return fail(ErrorCode::kDeadline,
                  fmt::format("{} did not come within {:.0f} s", what, to_seconds(patience)));
    if (failed_ && !done()) return std::unexpected(*failed_);
    return {};
  }
  std::optional<std::uint32_t> rank_of(const RpcChannel* channel) const {
    for (std::uint32_t rank = 0; rank < links_.size(); ++rank)
      if (links_[rank].channel && links_[rank].channel.get() == channel) return rank;
    return std::nullopt;
  }
  Link& link_of(const RpcChannel* channel) {
    const auto is_it = [channel](const Link& link) { return link.channel.get() == channel; };
    const auto named = std::ranges::find_if(links_, is_it);
    return named != links_.end() ? *named : *std::ranges::find_if(unnamed_, is_it);
  }

  // As a run cuts them (pipeline/coordinator/steps/uneven_slices.h).
  std::vector<std::uint64_t> bounds_of(std::uint64_t elements) const {
    const auto weights = water_filling(spec_.mbit_per_second);
    return weights ? slice_bounds(elements, *weights, kSliceAlignment)
                   : equal_slice_bounds(elements, spec_.members);
  }

  Result<void> connect_to(const std::string& addresses) {
    std::istringstream words(addresses);
    std::string word;
    for (std::uint32_t other = 0; other < spec_.rank && words >> word; ++other) {
      const auto address = parse_address(word);
      if (!address) return std::unexpected(address.error());
      connect(other, *address);
    }
    const auto all_known = [this] {
      const auto known = std::ranges::count_if(links_, [](const Link& l) { return !!l.channel; });
      return known + 1 == static_cast<std::ptrdiff_t>(spec_.members);
    };
    return wait_for(all_known, kOwnMemberPatience, "a link to each other member");
  }

  void connect(std::uint32_t other, const Address& address) {
    network_.connect(address, kOwnMemberPatience, [this, other, address](auto connection) {
      if (!connection)
        return fail_with(fmt::format("member {} can't be reached at {}: {}", other,
                                     to_string(address), connection.error().what));
      const Link& link = links_[other] = link_over(*connection);
      start(link, false);
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
    const auto rank = rank_of(from);
    if (!rank) return on_hello(from, frame);
    switch (frame.kind) {
      case kReady:
        ++ready_;
        return;
      case kDone:
        ++done_;
        return;
      case kOffer: {
        const Link& link = links_[*rank];
        return link.channel->notify({.kind = kAnswer, .meta = link.connection->answer(frame.meta)});
      }
      case kAnswer:
        if (frame.meta.empty()) return;
        if (const auto taken = links_[*rank].connection->take_answer(frame.meta); !taken)
          fail_with(fmt::format("what member {} answered: {}", *rank, taken.error().what));
        return;
      default:
        break;
    }
    if (const auto taken = averager_.on_chunk(seat_of(*rank), frame); !taken)
      fail_with(fmt::format("what member {} sent: {}", *rank, taken.error().what));
  }

  // Who says that it is a member that dials this one, and the first to say so.
  void on_hello(const RpcChannel* from, const Frame& frame) {
    Link& link = link_of(from);
    const std::size_t rank =
        frame.meta.size() == 1 ? static_cast<unsigned char>(frame.meta[0]) : links_.size();
    if (frame.kind != kHello || rank <= spec_.rank || rank >= links_.size() || links_[rank].channel)
      return link.channel->close();
    link.channel->connection().believe({});
    links_[rank] = std::move(link);
    std::erase_if(unnamed_, [](const Link& one) { return !one.channel; });
  }

  // All members have been told to begin.
  Result<void> meet() {
    ++meetings_;
    for (const Link& link : links_)
      if (link.channel) link.channel->notify({.kind = kReady});
    return wait_for([this] { return ready_ >= (spec_.members - 1) * meetings_; },
                    kOwnMemberPatience, "the word of each other member");
  }

  Result<Measured> run_rounds(std::uint32_t rounds) {
    Measured measured;
    const double cpu = own_cpu_seconds();
    const Instant start = runtime_.now();
    for (std::uint32_t i = 0; i < rounds; ++i) {
      const auto sent = round();
      if (!sent) return std::unexpected(sent.error());
      measured.wire_bytes += *sent;
    }
    SWARMLINE_TRY(drain());
    measured.seconds = to_seconds(runtime_.now() - start);
    measured.cpu_seconds = own_cpu_seconds() - cpu;
    SWARMLINE_TRY(part());
    return measured;
  }

  // Another one may wait for answers of this end's, by which its payloads are sent.
  Result<void> part() {
    ++partings_;
    for (const Link& link : links_)
      if (link.channel) link.channel->notify({.kind = kDone});
    SWARMLINE_TRY(wait_for([this] { return done_ >= (spec_.members - 1) * partings_; },
                           spec_.patience, "the end of each other member's round"));
    return drain();
  }

  // Who has its own result may still have what others wait for, and nothing is sent while it waits
  // to be told of more rounds.
  Result<void> drain() {
    const auto all_sent = [this] {
      return std::ranges::all_of(links_, [](const Link& link) {
        return !link.channel || link.connection->unsent_bytes() == 0;
      });
    };
    return wait_for(all_sent, spec_.patience, "the end of what others wait for");
  }

  Result<std::uint64_t> round() {
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
    SWARMLINE_TRY(averager_.start(std::move(round)));
    SWARMLINE_TRY(wait_for([&] { return sent.has_value(); }, spec_.patience, "a sum"));
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
  TcpNetwork network_;
  std::unique_ptr<BulkDoor> doors_;
  std::vector<Link> links_;    // by rank
  std::vector<Link> unnamed_;  // accepted, not yet introduced
  StageAverager averager_;
  std::uint64_t step_ = 0;
  std::uint64_t ready_ = 0, meetings_ = 0;  // words of others, over all meetings
  std::uint64_t done_ = 0, partings_ = 0;   // the same of ends of rounds
  std::optional<Error> failed_;
};

}  // namespace

void say_without(int line, const std::string& why) {
  write_line(line, std::string(kWithoutWay) + why);
}

void serve_own_member(const OwnMemberSpec& spec, int line) {
  const auto served = OwnMember(spec).serve(line);
  if (served) return;
  if (served.error().code == ErrorCode::kNotFound) return say_without(line, served.error().what);
  write_line(line, std::string(kMemberFailed) + served.error().what);
}

}  // namespace swarmline
