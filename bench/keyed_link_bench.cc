// What links between keys cost: the same bytes over a plain link and over one that is sealed, in
// the same iterations, in CPU seconds of both ends per GB; and what sealing and opening alone cost
// here, with the same cipher on records of the same size. `of_allowed` is sealed / (plain + 1.2 x
// those).
#include <atomic>
#include <ctime>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include <benchmark/benchmark.h>
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

double cpu_seconds() {
  timespec now{};
  SWARMLINE_CHECK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now) == 0);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

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

// The far end, on a thread of its own: a request is answered by a burst of payloads.
class Link {
 public:
  Link(bool keyed, std::size_t payload_bytes)
      : frames_(static_cast<int>(kBurstBytes / payload_bytes)), network_(runtime_, options(keyed)) {
    thread_ = std::thread([this, keyed, payload_bytes] { serve(keyed, payload_bytes); });
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
  // CPU seconds of both ends.
  double burst() {
    const double before = cpu_seconds();
    bytes_ = 0;
    bool done = false;
    channel_->call(Frame{.kind = 1}, kPatience, [&](const Result<Frame>& reply) {
      SWARMLINE_CHECK(reply.has_value());
      done = true;
    });
    SWARMLINE_CHECK(runtime_.run_until([&] { return done; }, kPatience));
    SWARMLINE_CHECK(bytes_ == kBurstBytes);
    return cpu_seconds() - before;
  }

 private:
  void serve(bool keyed, std::size_t payload_bytes) {
    AsioRuntime runtime;
    TcpNetwork network(runtime, options(keyed));
    std::shared_ptr<RpcChannel> channel;
    const SharedBytes payload{Buffer::zeroed(payload_bytes)};
    const auto answer = [&](const Frame&, const RpcChannel::Respond& respond) {
      for (int i = 0; i < frames_; ++i) channel->notify({.kind = 1, .payload = {payload}});
      respond(Frame{.kind = 1});
    };
    address_ = network
                   .listen({"127.0.0.1", 0},
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
  Cipher() : context_(EVP_CIPHER_CTX_new()), record_(Buffer::zeroed(kRecordBytes)) {}
  ~Cipher() { EVP_CIPHER_CTX_free(context_); }
  Cipher(const Cipher&) = delete;
  Cipher& operator=(const Cipher&) = delete;
  double burst() {
    const double before = cpu_seconds();
    for (std::size_t at = 0; at < kBurstBytes; at += kRecordBytes)
      for (const int seals : {1, 0}) pass(seals);
    return cpu_seconds() - before;
  }

 private:
  void pass(int seals) {
    int size = 0;
    auto* data = reinterpret_cast<unsigned char*>(record_.data());
    const int tag = seals != 0 ? EVP_CTRL_AEAD_GET_TAG : EVP_CTRL_AEAD_SET_TAG;
    SWARMLINE_CHECK(EVP_CipherInit_ex(context_, EVP_aes_128_gcm(), nullptr, key_, nonce_, seals) ==
                        1 &&
                    EVP_CipherUpdate(context_, data, &size, data, kRecordBytes) == 1);
    if (seals == 0) SWARMLINE_CHECK(EVP_CIPHER_CTX_ctrl(context_, tag, kTagBytes, tag_) == 1);
    SWARMLINE_CHECK(EVP_CipherFinal_ex(context_, data + size, &size) == 1);
    if (seals != 0) SWARMLINE_CHECK(EVP_CIPHER_CTX_ctrl(context_, tag, kTagBytes, tag_) == 1);
  }

  EVP_CIPHER_CTX* context_;
  Buffer record_;
  unsigned char key_[16] = {1}, nonce_[12] = {2}, tag_[kTagBytes] = {};
};

void keyed_link(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  Link plain(false, bytes), keyed(true, bytes);
  Cipher cipher;
  plain.burst();  // sockets grow their windows, malloc its heap
  keyed.burst();
  double plain_seconds = 0, keyed_seconds = 0, cipher_seconds = 0;
  for (auto _ : state) {
    const double seconds = keyed.burst();
    state.SetIterationTime(seconds);
    keyed_seconds += seconds;
    plain_seconds += plain.burst();
    cipher_seconds += cipher.burst();
  }
  const double gigabytes =
      1e-9 * static_cast<double>(kBurstBytes) * static_cast<double>(state.iterations());
  state.counters["keyed_s/GB"] = keyed_seconds / gigabytes;
  state.counters["plain_s/GB"] = plain_seconds / gigabytes;
  state.counters["cipher_s/GB"] = cipher_seconds / gigabytes;
  state.counters["of_allowed"] = keyed_seconds / (plain_seconds + 1.2 * cipher_seconds);
}
BENCHMARK(keyed_link)
    ->ArgName("bytes")
    ->Arg(64 << 10)
    ->Arg(1 << 20)
    ->Arg(16 << 20)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace swarmline
