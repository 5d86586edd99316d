// The doors to other processes: encoding and reading frames, rpc round trips, bulk links. Round
// trips and bulk links run the same bytes over plain sockets in the same iterations; `of_raw` is
// the plain loop's time over ours (1: as fast).
#include <algorithm>
#include <arpa/inet.h>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include <benchmark/benchmark.h>

#include "base/check.h"
#include "engine/net/frame_reader.h"
#include "engine/net/rpc.h"
#include "engine/net/tcp/tcp_network.h"

namespace swarmline {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr Duration kPatience = std::chrono::seconds(60);
constexpr std::size_t kBurstBytes = 64 * kMiB;

double seconds_of(const std::function<void()>& work) {
  const auto start = SteadyClock::now();
  work();
  return std::chrono::duration<double>(SteadyClock::now() - start).count();
}

void frame_encode(benchmark::State& state) {
  const Frame frame{
      .kind = 1, .request = 7, .meta = std::string(static_cast<std::size_t>(state.range(0)), 'm')};
  for (auto _ : state) benchmark::DoNotOptimize(encode_header(frame.header()));
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(frame_encode)->ArgName("meta_bytes")->Arg(64)->Arg(1024);

void frame_read(benchmark::State& state) {
  const Frame frame{.kind = 1, .meta = std::string(static_cast<std::size_t>(state.range(0)), 'm')};
  std::string wire;
  std::size_t count = 0;
  while (wire.size() + frame.wire_bytes() <= FrameReader::kStagingBytes) {
    wire += as_text(encode_header(frame.header()));
    wire += frame.meta;
    ++count;
  }
  for (auto _ : state) {
    FrameReader reader;
    std::memcpy(reader.space()[1].data(), wire.data(), wire.size());
    SWARMLINE_CHECK(reader.commit(wire.size()).has_value());
    std::size_t frames = 0;
    while (reader.next()) ++frames;
    SWARMLINE_CHECK(frames == count);
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(count));
}
BENCHMARK(frame_read)->ArgName("meta_bytes")->Arg(64)->Arg(1024);

// A sender on a thread of its own: a request names how many payload frames are to precede its
// reply, which carries its meta.
class Sender {
 public:
  explicit Sender(std::size_t payload_bytes) {
    thread_ = std::thread([this, payload_bytes] {
      AsioRuntime runtime;
      TcpNetwork network(runtime, {});
      std::shared_ptr<RpcChannel> channel;
      const SharedBytes payload{Buffer::zeroed(payload_bytes)};
      const auto serve = [&](Frame request, const RpcChannel::Respond& respond) {
        for (int i = 0; i < request.kind; ++i) channel->notify({.kind = 1, .payload = {payload}});
        respond(Frame{.kind = 1, .meta = std::move(request.meta)});
      };
      const auto accept = [&](std::shared_ptr<Connection> connection) {
        channel = RpcChannel::make(runtime, std::move(connection));
        channel->start({.on_request = serve});
      };
      address_ = network.listen({"127.0.0.1", 0}, accept).value();
      runtime_ = &runtime;
      ready_.test_and_set();
      ready_.notify_one();
      runtime.run();
    });
    ready_.wait(false);
  }
  ~Sender() {
    runtime_->request_stop();
    thread_.join();
  }
  const Address& address() const { return address_; }

 private:
  std::thread thread_;
  std::atomic_flag ready_;
  AsioRuntime* runtime_ = nullptr;
  Address address_;
};

class Receiver {
 public:
  explicit Receiver(const Address& address) {
    network_.connect(address, kPatience, [this](auto connection) {
      channel_ = RpcChannel::make(runtime_, connection.value());
      channel_->start(
          {.on_message = [this](const Frame& frame) { bytes_ += frame.payload_bytes(); }});
    });
    SWARMLINE_CHECK(runtime_.run_until([this] { return channel_ != nullptr; }, kPatience));
  }
  void exchange(int frames, const std::string& meta, std::size_t payload_bytes) {
    bytes_ = 0;
    bool done = false;
    const Frame request{.kind = static_cast<std::uint16_t>(frames), .meta = meta};
    channel_->call(request, kPatience, [&](const Result<Frame>& reply) {
      SWARMLINE_CHECK(reply.has_value() && reply->meta == meta);
      done = true;
    });
    SWARMLINE_CHECK(runtime_.run_until([&] { return done; }, kPatience));
    SWARMLINE_CHECK(bytes_ == static_cast<std::size_t>(frames) * payload_bytes);
  }

 private:
  AsioRuntime runtime_;
  TcpNetwork network_{runtime_, {}};
  std::shared_ptr<RpcChannel> channel_;
  std::size_t bytes_ = 0;
};

// Two plain sockets over loopback: for every `request_bytes` the far end sends its payload
// `times` times.
class RawPair {
 public:
  RawPair(std::size_t request_bytes, std::size_t payload_bytes, int times)
      : request_(Buffer::zeroed(request_bytes)), buffer_(std::max(request_bytes, payload_bytes)) {
    const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(at);
    auto* address = reinterpret_cast<sockaddr*>(&at);
    SWARMLINE_CHECK(::bind(listener, address, size) == 0 && ::listen(listener, 1) == 0);
    SWARMLINE_CHECK(::getsockname(listener, address, &size) == 0);
    near_ = ::socket(AF_INET, SOCK_STREAM, 0);
    SWARMLINE_CHECK(::connect(near_, address, size) == 0);
    far_ = ::accept(listener, nullptr, nullptr);
    ::close(listener);
    const int on = 1;
    for (const int fd : {near_, far_}) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    thread_ = std::thread([fd = far_, request_bytes, payload_bytes, times] {
      Buffer request(request_bytes);
      const Buffer payload = Buffer::zeroed(payload_bytes);
      while (receive(fd, request.data(), request_bytes)) {
        for (int i = 0; i < times; ++i) send_all(fd, payload);
      }
    });
  }
  ~RawPair() {
    ::shutdown(near_, SHUT_RDWR);
    thread_.join();
    ::close(near_);
    ::close(far_);
  }
  void exchange(int times, std::size_t payload_bytes) {
    send_all(near_, request_);
    for (int i = 0; i < times; ++i) {
      SWARMLINE_CHECK(receive(near_, buffer_.data(), payload_bytes));
    }
  }

 private:
  static bool receive(int fd, std::byte* into, std::size_t bytes) {
    while (bytes > 0) {
      const ssize_t got = ::recv(fd, into, bytes, 0);
      if (got <= 0) return false;
      into += got;
      bytes -= static_cast<std::size_t>(got);
    }
    return true;
  }
  static void send_all(int fd, const Buffer& buffer) {
    for (std::size_t at = 0; at < buffer.size();) {
      const ssize_t sent = ::send(fd, buffer.data() + at, buffer.size() - at, MSG_NOSIGNAL);
      if (sent <= 0) return;
      at += static_cast<std::size_t>(sent);
    }
  }

  Buffer request_, buffer_;
  int near_ = -1, far_ = -1;
  std::thread thread_;
};

void rpc_round_trip(benchmark::State& state) {
  const std::size_t bytes = 100;
  const Sender sender(0);
  Receiver receiver(sender.address());
  RawPair raw(bytes, bytes, 1);
  const std::string meta(bytes - kFrameHeaderBytes, 'm');
  double ours = 0, theirs = 0;
  for (auto _ : state) {
    const double seconds = seconds_of([&] { receiver.exchange(0, meta, 0); });
    state.SetIterationTime(seconds);
    ours += seconds;
    theirs += seconds_of([&] { raw.exchange(1, bytes); });
  }
  state.counters["of_raw"] = theirs / ours;
  state.counters["raw_us"] = theirs / static_cast<double>(state.iterations()) * 1e6;
}
BENCHMARK(rpc_round_trip)->UseManualTime()->Unit(benchmark::kMicrosecond);

void bulk_link(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  const int frames = static_cast<int>(kBurstBytes / bytes);
  const Sender sender(bytes);
  Receiver receiver(sender.address());
  RawPair raw(1, bytes, frames);
  receiver.exchange(frames, "warm", bytes);  // sockets grow their windows, malloc its heap
  raw.exchange(frames, bytes);
  double ours = 0, theirs = 0;
  for (auto _ : state) {
    const double seconds = seconds_of([&] { receiver.exchange(frames, "go", bytes); });
    state.SetIterationTime(seconds);
    ours += seconds;
    theirs += seconds_of([&] { raw.exchange(frames, bytes); });
  }
  const double moved =
      static_cast<double>(bytes) * frames * static_cast<double>(state.iterations());
  state.SetBytesProcessed(static_cast<std::int64_t>(moved));
  state.counters["of_raw"] = theirs / ours;
  state.counters["raw_GB/s"] = moved / theirs * 1e-9;
}
BENCHMARK(bulk_link)
    ->ArgName("bytes")
    ->Arg(64 << 10)
    ->Arg(1 << 20)
    ->Arg(16 << 20)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace swarmline
