// An all-reduce as it runs: every member a process of its own, over loopback TCP, with the code
// that averages gradients (StageAverager). Arguments: MiB of fp32 a member, members, codec of both
// halves. Time: from the word to start until every member has its result. Counters:
// bytes_per_second of the members' vectors; `memcpy` = that speed as a share of copying every
// member's vector once, one after the other, in this process; `wire` = bytes a member sends per
// byte of its vector. The sums are checked before anything is timed.
#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <benchmark/benchmark.h>

#include "base/check.h"
#include "base/rng.h"
#include "bench/copy_rate.h"
#include "engine/collective/slices.h"
#include "engine/net/rpc.h"
#include "engine/net/tcp/tcp_network.h"
#include "engine/runtime/asio_runtime.h"
#include "pipeline/averaging/stage_averager.h"
#include "pipeline/protocol/message_kinds.h"

namespace swarmline {
namespace {

constexpr Duration kPatience = std::chrono::seconds(60);
constexpr double kErrorMax = 0.1;  // lin8 on sums of at most eight values in [-1, 1]
constexpr std::uint16_t kHello = 1, kFinished = 2;

bool read_all(int fd, void* into, std::size_t bytes) {
  for (auto* at = static_cast<std::byte*>(into); bytes > 0;) {
    const ssize_t got = ::read(fd, at, bytes);
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}
void write_all(int fd, const void* from, std::size_t bytes) {
  SWARMLINE_CHECK(::write(fd, from, bytes) == static_cast<ssize_t>(bytes));
}

Seat seat_of(std::uint32_t rank) {
  return {PeerId{rank + 1}, StageId{0}, Incarnation{1}};
}
float value_of(std::uint32_t rank, std::size_t i) {
  return static_cast<float>((i * 31 + rank * 17) % 64) / 32 - 1;
}

// One member, in its own process: connects to all others, then a round for each byte it is sent.
class Member {
 public:
  Member(std::uint32_t rank, std::uint32_t members, std::uint64_t bytes, const CodecSpec& codec)
      : rank_(rank),
        members_(members),
        codec_(codec),
        input_(bytes),
        output_(Buffer::zeroed(bytes)),
        channels_(members),
        averager_(
            [this](const Seat& to, Frame frame) {
              channels_[to.peer.value - 1]->connection().send_lent(std::move(frame));
            },
            [](const Seat&, const Error& error) { SWARMLINE_CHECK_MSG(false, error.what); }) {
    const auto values = input_.as<float>();
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = value_of(rank, i);
  }

  // Ports go to `out`, come back from `in`; then `in` says "go" and `out` says "done".
  void serve(int in, int out) {
    const auto address = network_.listen({"127.0.0.1", 0}, [this](auto connection) {
      auto channel = RpcChannel::make(runtime_, std::move(connection));
      RpcChannel* raw = channel.get();
      unnamed_.push_back(std::move(channel));
      raw->start({.on_message = [this, raw](const Frame& frame) { on_message(raw, frame); }});
    });
    SWARMLINE_CHECK(address.has_value());
    write_all(out, &address->port, sizeof(address->port));
    std::vector<std::uint16_t> ports(members_);
    if (!read_all(in, ports.data(), ports.size() * sizeof(ports[0]))) return;
    for (std::uint32_t other = 0; other < rank_; ++other) connect(other, ports[other]);
    SWARMLINE_CHECK(runtime_.run_until(
        [this] {
          std::uint32_t known = 0;
          for (const auto& channel : channels_) known += channel ? 1 : 0;
          return known + 1 == members_;
        },
        kPatience));
    for (char go = 0; read_all(in, &go, 1);) {
      const std::uint64_t sent = round();
      write_all(out, &sent, sizeof(sent));
    }
  }

 private:
  void connect(std::uint32_t other, std::uint16_t port) {
    network_.connect({"127.0.0.1", port}, kPatience, [this, other](auto connection) {
      SWARMLINE_CHECK(connection.has_value());
      auto channel = RpcChannel::make(runtime_, *connection);
      RpcChannel* raw = channel.get();
      channels_[other] = std::move(channel);
      raw->start({.on_message = [this, raw](const Frame& frame) { on_message(raw, frame); }});
      raw->notify({.kind = kHello, .meta = std::string(1, static_cast<char>(rank_))});
    });
  }
  void on_message(RpcChannel* from, const Frame& frame) {
    if (frame.kind == kHello) {
      const auto other = static_cast<std::size_t>(frame.meta.at(0));
      const auto channel = std::ranges::find(unnamed_, from, &std::shared_ptr<RpcChannel>::get);
      channels_.at(other) = std::move(*channel);
      unnamed_.erase(channel);
      return;
    }
    if (frame.kind == kFinished) {
      ++finished_;
      return;
    }
    std::uint32_t rank = 0;
    while (channels_[rank].get() != from) ++rank;
    SWARMLINE_CHECK(averager_.on_chunk(seat_of(rank), frame).has_value());
  }

  // Wire bytes sent; 0: the result is wrong.
  std::uint64_t round() {
    const Phase phase{PhaseKind::kTrain, step_++};
    const std::uint64_t elements = input_.size() / sizeof(float);
    const std::vector<double> weights(members_, 1.0 / members_);
    std::uint64_t sent = 0;
    StageAverager::Round round;
    round.key = {.phase = phase};
    for (std::uint32_t r = 0; r < members_; ++r) round.members.push_back(seat_of(r));
    round.spec = {.rank = rank_,
                  .ranks = members_,
                  .elements = elements,
                  .bounds = slice_bounds(elements, weights, 16),
                  .scatter = std::vector<CodecSpec>(members_, codec_),
                  .gather = codec_};
    round.input = input_.bytes();
    round.output = output_.bytes();
    round.on_done = [this, &sent](std::uint64_t bytes) {
      sent = bytes;
      for (const auto& channel : channels_)
        if (channel) channel->notify({.kind = kFinished});
    };
    SWARMLINE_CHECK(averager_.start(std::move(round)).has_value());
    // Who has finished needs nothing more of us, but our own word may still be on its way.
    SWARMLINE_CHECK(runtime_.run_until(
        [&] {
          std::uint64_t unsent = 0;
          for (const auto& channel : channels_)
            if (channel) unsent += channel->connection().unsent_bytes();
          return sent > 0 && finished_ == (members_ - 1) * step_ && unsent == 0;
        },
        kPatience));
    averager_.retire(phase);
    return phase.step > 0 || is_right() ? sent : 0;
  }

  bool is_right() const {
    const double error_max = codec_.kind == CodecKind::kNone ? 1e-5 : kErrorMax;
    const auto values = output_.as<const float>();
    for (std::size_t i = 0; i < values.size(); i += 997) {
      double sum = 0;
      for (std::uint32_t r = 0; r < members_; ++r) sum += double{value_of(r, i)};
      const double error = double{values[i]} - sum;
      if (!(error <= error_max && error >= -error_max)) return false;
    }
    return true;
  }

  std::uint32_t rank_, members_;
  CodecSpec codec_;
  Buffer input_, output_;
  AsioRuntime runtime_;
  TcpNetwork network_{runtime_, {}};
  std::vector<std::shared_ptr<RpcChannel>> channels_;  // by rank
  std::vector<std::shared_ptr<RpcChannel>> unnamed_;   // accepted, not yet introduced
  StageAverager averager_;
  std::uint64_t step_ = 0;
  std::uint64_t finished_ = 0;  // words of others, over all rounds
};

class Processes {
 public:
  Processes(std::uint32_t members, std::uint64_t bytes, const CodecSpec& codec) {
    for (std::uint32_t rank = 0; rank < members; ++rank) {
      std::array<int, 2> to{}, from{};
      SWARMLINE_CHECK(::pipe(to.data()) == 0 && ::pipe(from.data()) == 0);
      std::fflush(nullptr);
      const pid_t pid = ::fork();
      SWARMLINE_CHECK(pid >= 0);
      if (pid == 0) {
        for (const Pipes& pipes : pipes_) {  // or a member would outlive its parent's word
          ::close(pipes.to);
          ::close(pipes.from);
        }
        ::close(to[1]);
        ::close(from[0]);
        Member(rank, members, bytes, codec).serve(to[0], from[1]);
        ::_exit(0);
      }
      ::close(to[0]);
      ::close(from[1]);
      pipes_.push_back({pid, to[1], from[0]});
    }
    std::vector<std::uint16_t> ports(members);
    for (std::uint32_t rank = 0; rank < members; ++rank)
      SWARMLINE_CHECK(read_all(pipes_[rank].from, &ports[rank], sizeof(ports[rank])));
    for (const Pipes& pipes : pipes_)
      write_all(pipes.to, ports.data(), ports.size() * sizeof(ports[0]));
  }
  ~Processes() {
    for (const Pipes& pipes : pipes_) {
      ::close(pipes.to);
      ::close(pipes.from);
      ::waitpid(pipes.pid, nullptr, 0);
    }
  }
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  // Wire bytes that all sent; 0: a wrong result.
  std::uint64_t round() {
    for (const Pipes& pipes : pipes_) write_all(pipes.to, "g", 1);
    std::uint64_t all = 0;
    bool right = true;
    for (const Pipes& pipes : pipes_) {
      std::uint64_t sent = 0;
      SWARMLINE_CHECK(read_all(pipes.from, &sent, sizeof(sent)));
      right = right && sent > 0;
      all += sent;
    }
    return right ? all : 0;
  }

 private:
  struct Pipes {
    pid_t pid;
    int to, from;
  };
  std::vector<Pipes> pipes_;
};

void all_reduce(benchmark::State& state, const CodecSpec& codec) {
  const auto bytes = static_cast<std::uint64_t>(state.range(0)) * kMiB;
  const auto members = static_cast<std::uint32_t>(state.range(1));
  Processes processes(members, bytes, codec);
  if (processes.round() == 0) {  // it also brings in every page and opens every window
    state.SkipWithError("wrong sums");
    return;
  }
  const double copy = bench::copy_seconds(bytes) * members;
  double seconds = 0, wire = 0;
  for (auto _ : state) {
    const auto start = std::chrono::steady_clock::now();
    wire += static_cast<double>(processes.round());
    const double took =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    state.SetIterationTime(took);
    seconds += took;
  }
  const double moved =
      static_cast<double>(bytes * members) * static_cast<double>(state.iterations());
  state.SetBytesProcessed(static_cast<std::int64_t>(moved));
  state.counters["memcpy"] = copy * static_cast<double>(state.iterations()) / seconds;
  state.counters["wire"] = wire / moved;
}

// MiB x members: every size with two, every number of members with 16 MiB.
constexpr std::pair<int, int> kCases[] = {{1, 2}, {16, 2}, {64, 2}, {256, 2},
                                          {1, 8}, {16, 4}, {16, 8}, {256, 8}};
// Of the test, which runs every other case for a moment.
constexpr int kBriefMib = 16;

void register_all(bool brief) {
  for (const char* kind : {"none", "bf16", "lin8"}) {
    const CodecSpec codec = *parse_codec(kind);
    auto* bench = benchmark::RegisterBenchmark(
        ("processes/" + to_string(codec)).c_str(),
        [codec](benchmark::State& state) { all_reduce(state, codec); });
    for (const auto& [mib, members] : kCases)
      if (!brief || mib < kBriefMib) bench->Args({mib, members});
    bench->ArgNames({"mib", "members"})->UseManualTime()->Unit(benchmark::kMillisecond);
  }
}

}  // namespace
}  // namespace swarmline

// --brief: small vectors alone.
int main(int argc, char** argv) {
  const bool brief = argc > 1 && std::string_view(argv[1]) == "--brief";
  if (brief) {
    std::swap(argv[1], argv[argc - 1]);
    --argc;
  }
  swarmline::register_all(brief);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
