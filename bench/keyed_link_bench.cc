// What links between keys cost: the same bytes over a plain link and over one that is sealed, in
// the same iterations, in CPU seconds of both ends per GB, and how fast they are; and what sealing
// and opening alone cost here, with the same cipher on records of the same size (`openssl speed
// -evp aes-128-gcm -bytes 16384` does the same without the tags). `of_allowed` is sealed / (plain +
// 1.2 x those), `control` what of them the near end's control thread took. At last the two links
// over a wire of 1 Gbit/s, which takes root, ip and tc.
#include <atomic>
#include <cstdlib>
#include <ctime>
#include <fcntl.h>
#include <functional>
#include <memory>
#include <sched.h>
#include <string>
#include <thread>
#include <unistd.h>
#include <utility>

#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <openssl/evp.h>

#include "base/check.h"
#include "engine/net/rpc.h"
#include "engine/net/tcp/tcp_network.h"

namespace swarmline {
namespace {

constexpr Duration kPatience = std::chrono::seconds(60);
constexpr std::size_t kBurstBytes = 64 * kMiB;
constexpr std::size_t kRecordBytes = 16 * kKiB;  // of TLS
constexpr int kTagBytes = 16;

double seconds_by(clockid_t clock) {
  timespec now{};
  SWARMLINE_CHECK(clock_gettime(clock, &now) == 0);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// CPU of all threads, CPU of this one, and what a clock on the wall says.
struct Seconds {
  double cpu = 0, here = 0, wall = 0;

  static Seconds now() {
    return {.cpu = seconds_by(CLOCK_PROCESS_CPUTIME_ID),
            .here = seconds_by(CLOCK_THREAD_CPUTIME_ID),
            .wall = seconds_by(CLOCK_MONOTONIC)};
  }
  Seconds since() const {
    const Seconds later = now();
    return {.cpu = later.cpu - cpu, .here = later.here - here, .wall = later.wall - wall};
  }
  void operator+=(const Seconds& more) {
    cpu += more.cpu;
    here += more.here;
    wall += more.wall;
  }
};

class AnyGuard final : public LinkGuard {
 public:
  const Identity& identity() const override { return identity_; }
  std::optional<KeyHash> pinned(const Address&) override { return std::nullopt; }
  std::string opening(const Address&, const LinkFacts&) override { return {}; }
  Result<std::string> judge(const Address&, const LinkFacts&, const std::string&) override {
    return std::string("any");
  }
  void admit(const LinkFacts&, const std::string&, Verdict verdict) override {
    verdict(Admission{.as = "any", .answer = {}});
  }

 private:
  Identity identity_ = Identity::make();
};

TcpOptions options(bool keyed) {
  return {.guard = keyed ? std::make_shared<AnyGuard>() : nullptr};
}

// Where a link is: its far end's address, and what takes its thread there.
struct Place {
  std::string host = "127.0.0.1";
  std::function<void()> go_far = [] {};
};

// The far end, on a thread of its own: a request is answered by a burst of payloads.
class Link {
 public:
  Link(bool keyed, std::size_t payload_bytes, const Place& place = {})
      : frames_(static_cast<int>(kBurstBytes / payload_bytes)), network_(runtime_, options(keyed)) {
    thread_ = std::thread([this, keyed, payload_bytes, place] {
      place.go_far();
      serve(keyed, payload_bytes, place.host);
    });
    ready_.wait(false);
    network_.connect(address_, kPatience, [this](Result<std::shared_ptr<Connection>> made) {
      channel_ = RpcChannel::make(runtime_, made.value());
      channel_->start({.on_message = [this](const Frame& f) { bytes_ += f.payload_bytes(); }});
    });
    SWARMLINE_CHECK(runtime_.run_until([this] { return channel_ != nullptr; }, kPatience));
  }
  ~Link() {
    far_runtime_->request_stop();
    thread_.join();
  }
  Seconds burst() {
    const Seconds before = Seconds::now();
    bytes_ = 0;
    bool done = false;
    channel_->call(Frame{.kind = 1}, kPatience, [&](const Result<Frame>& reply) {
      SWARMLINE_CHECK(reply.has_value());
      done = true;
    });
    SWARMLINE_CHECK(runtime_.run_until([&] { return done; }, kPatience));
    SWARMLINE_CHECK(bytes_ == kBurstBytes);
    return before.since();
  }

 private:
  void serve(bool keyed, std::size_t payload_bytes, const std::string& host) {
    AsioRuntime runtime;
    TcpNetwork network(runtime, options(keyed));
    std::shared_ptr<RpcChannel> channel;
    const SharedBytes payload{Buffer::zeroed(payload_bytes)};
    const auto answer = [&](const Frame&, const RpcChannel::Respond& respond) {
      for (int i = 0; i < frames_; ++i) channel->notify({.kind = 1, .payload = {payload}});
      respond(Frame{.kind = 1});
    };
    address_ = network
                   .listen({host, 0},
                           [&](std::shared_ptr<Connection> connection) {
                             channel = RpcChannel::make(runtime, std::move(connection));
                             channel->start({.on_request = answer});
                           })
                   .value();
    far_runtime_ = &runtime;
    ready_.test_and_set();
    ready_.notify_one();
    runtime.run();
  }

  const int frames_;
  AsioRuntime runtime_;
  TcpNetwork network_;
  std::shared_ptr<RpcChannel> channel_;
  std::size_t bytes_ = 0;
  std::thread thread_;
  std::atomic_flag ready_;
  AsioRuntime* far_runtime_ = nullptr;
  Address address_;
};

// A burst sealed and opened in place, record by record.
class Cipher {
 public:
  Cipher() : record_(Buffer::zeroed(kRecordBytes)) {
    for (const int seals : {0, 1})
      SWARMLINE_CHECK(EVP_CipherInit_ex(contexts_[seals], EVP_aes_128_gcm(), nullptr, key_, nonce_,
                                        seals) == 1);
  }
  ~Cipher() {
    for (EVP_CIPHER_CTX* context : contexts_) EVP_CIPHER_CTX_free(context);
  }
  Cipher(const Cipher&) = delete;
  Cipher& operator=(const Cipher&) = delete;
  Seconds burst() {
    const Seconds before = Seconds::now();
    for (std::size_t at = 0; at < kBurstBytes; at += kRecordBytes)
      for (const int seals : {1, 0}) pass(seals);
    return before.since();
  }

 private:
  void pass(int seals) {
    int size = 0;
    EVP_CIPHER_CTX* const context = contexts_[seals];
    auto* data = reinterpret_cast<unsigned char*>(record_.data());
    const int tag = seals != 0 ? EVP_CTRL_AEAD_GET_TAG : EVP_CTRL_AEAD_SET_TAG;
    SWARMLINE_CHECK(EVP_CipherInit_ex(context, nullptr, nullptr, nullptr, nonce_, seals) == 1 &&
                    EVP_CipherUpdate(context, data, &size, data, kRecordBytes) == 1);
    if (seals == 0) SWARMLINE_CHECK(EVP_CIPHER_CTX_ctrl(context, tag, kTagBytes, tag_) == 1);
    SWARMLINE_CHECK(EVP_CipherFinal_ex(context, data + size, &size) == 1);
    if (seals != 0) SWARMLINE_CHECK(EVP_CIPHER_CTX_ctrl(context, tag, kTagBytes, tag_) == 1);
  }

  EVP_CIPHER_CTX* contexts_[2] = {EVP_CIPHER_CTX_new(), EVP_CIPHER_CTX_new()};
  Buffer record_;
  unsigned char key_[16] = {1}, nonce_[12] = {2}, tag_[kTagBytes] = {};
};

void keyed_link(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  Link plain(false, bytes), keyed(true, bytes);
  Cipher cipher;
  plain.burst();  // sockets grow their windows, malloc its heap
  keyed.burst();
  Seconds of_plain, of_keyed, of_cipher;
  for (auto _ : state) {
    const Seconds seconds = keyed.burst();
    state.SetIterationTime(seconds.cpu);
    of_keyed += seconds;
    of_plain += plain.burst();
    of_cipher += cipher.burst();
  }
  const double gigabytes =
      1e-9 * static_cast<double>(kBurstBytes) * static_cast<double>(state.iterations());
  state.counters["keyed_s/GB"] = of_keyed.cpu / gigabytes;
  state.counters["plain_s/GB"] = of_plain.cpu / gigabytes;
  state.counters["cipher_s/GB"] = of_cipher.cpu / gigabytes;
  state.counters["of_allowed"] = of_keyed.cpu / (of_plain.cpu + 1.2 * of_cipher.cpu);
  state.counters["keyed_control_s/GB"] = of_keyed.here / gigabytes;
  state.counters["plain_control_s/GB"] = of_plain.here / gigabytes;
  state.counters["keyed_GB/s"] = gigabytes / of_keyed.wall;
  state.counters["plain_GB/s"] = gigabytes / of_plain.wall;
}
BENCHMARK(keyed_link)
    ->ArgName("bytes")
    ->Arg(64 << 10)
    ->Arg(1 << 20)
    ->Arg(16 << 20)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

// Two network namespaces of this process's threads, and a wire of 1 Gbit/s between them; they go
// with the threads.
class Wire {
 public:
  // The calling thread is at the near end from now on. False: this machine does not allow it.
  bool make() {
    far_ = make_namespace();
    near_ = make_namespace();
    if (far_ < 0 || near_ < 0) return false;
    const std::string far = fmt::format("/proc/{}/fd/{}", getpid(), far_);
    return run("ip link add wire0 type veth peer name wire1 netns " + far) && raise("wire0", 1) &&
           in_far([] { return raise("wire1", 2); });
  }
  ~Wire() {
    for (const int fd : {far_, near_})
      if (fd >= 0) close(fd);
  }
  Wire() = default;
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;
  Place place() const {
    return {.host = "10.77.0.2",
            .go_far = [fd = far_] { SWARMLINE_CHECK(setns(fd, CLONE_NEWNET) == 0); }};
  }

 private:
  static int make_namespace() {
    if (unshare(CLONE_NEWNET) != 0) return -1;
    return open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
  }
  static bool run(const std::string& command) {
    return std::system((command + " >/dev/null 2>&1").c_str()) == 0;
  }
  static bool raise(const std::string& device, int host) {
    return run(fmt::format("ip addr add 10.77.0.{}/24 dev {}", host, device)) &&
           run(fmt::format("ip link set {} up", device)) &&
           run(fmt::format("tc qdisc add dev {} root tbf rate 1gbit burst 256kb latency 50ms",
                           device));
  }
  bool in_far(const std::function<bool()>& what) const {
    bool done = false;
    std::thread([&] {
      place().go_far();
      done = what();
    }).join();
    return done;
  }

  int far_ = -1, near_ = -1;
};

void measure_shaped(benchmark::State& state) {
  Wire wire;
  if (!wire.make()) return state.SkipWithError("needs root, ip and tc");
  const auto bytes = static_cast<std::size_t>(state.range(0));
  Link plain(false, bytes, wire.place()), keyed(true, bytes, wire.place());
  plain.burst();
  keyed.burst();
  Seconds of_plain, of_keyed;
  for (auto _ : state) {
    const Seconds seconds = keyed.burst();
    state.SetIterationTime(seconds.wall);
    of_keyed += seconds;
    of_plain += plain.burst();
  }
  const double gigabytes =
      1e-9 * static_cast<double>(kBurstBytes) * static_cast<double>(state.iterations());
  state.counters["keyed_s/GB"] = of_keyed.cpu / gigabytes;
  state.counters["plain_s/GB"] = of_plain.cpu / gigabytes;
  state.counters["keyed_GB/s"] = gigabytes / of_keyed.wall;
  state.counters["plain_GB/s"] = gigabytes / of_plain.wall;
  state.counters["of_plain"] = of_plain.wall / of_keyed.wall;  // its speed
}

// In a thread of its own: where it has been, no other case may be.
void keyed_link_at_1gbit(benchmark::State& state) {
  std::thread([&] { measure_shaped(state); }).join();
}
BENCHMARK(keyed_link_at_1gbit)
    ->ArgName("bytes")
    ->Arg(1 << 20)
    ->UseManualTime()
    ->Iterations(5)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace swarmline
