#include "tools/measure/bench_links.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/order_statistics.h"
#include "engine/identity/identity.h"
#include "engine/net/bulk/bulk_connection.h"
#include "engine/net/tcp/tcp_network.h"
#include "tools/measure/link_yardstick.h"
#include "tools/measure/payload_way.h"

namespace swarmline {
namespace {

constexpr Duration kPatience = std::chrono::seconds(120);
constexpr std::uint64_t kRoundBytes = 64 * kMiB;  // at least, of one measurement
constexpr std::uint64_t kPayloadsMax = 1024;
constexpr int kTripsOfRound = 200;
enum Kind : std::uint16_t { kWant = 1, kPayload, kEcho, kOffer, kAnswer };

// Lets in everybody: both ends are here.
class BenchGuard final : public LinkGuard {
 public:
  const Identity& identity() const override { return identity_; }
  std::optional<KeyHash> pinned(const Address&) override { return std::nullopt; }
  std::string opening(const Address&, const LinkFacts&) override { return {}; }
  Result<std::string> judge(const Address&, const LinkFacts&, const std::string&) override {
    return "far";
  }
  void admit(const LinkFacts&, const std::string&, Verdict verdict) override {
    verdict(Admission{.as = "near", .answer = {}});
  }

 private:
  Identity identity_ = Identity::make();
};

std::byte byte_at(std::size_t at) {
  return static_cast<std::byte>(at * 31 + (at >> 13U));
}

SharedBytes pattern(std::uint64_t size) {
  Buffer buffer(size);
  for (std::size_t i = 0; i < size; ++i) buffer.data()[i] = byte_at(i);
  return SharedBytes(std::move(buffer));
}

// One end's doors.
struct LinkEnd {
  explicit LinkEnd(const std::string& way)
      : network(runtime, {.guard = way == "tls" ? std::make_shared<BenchGuard>() : nullptr}),
        bulk(make_door_of(way, runtime, network)) {}
  AsioRuntime runtime;
  TcpNetwork network;
  std::unique_ptr<BulkDoor> bulk;
  std::shared_ptr<BulkConnection> connection;
};

// Sends what it is asked for.
class FarEnd {
 public:
  explicit FarEnd(const std::string& way) {
    thread_ = std::thread([this, way] {
      LinkEnd end(way);
      address_ = end.network
                     .listen({"127.0.0.1", 0},
                             [&end, this](auto accepted) {
                               // Streams of its link come, too: it is the one that speaks.
                               const auto made = end.bulk->over(std::move(accepted));
                               made->start({.on_frame =
                                                [&end, this, made = made.get()](Frame frame) {
                                                  end.connection = made->shared_from_this();
                                                  hear(end, frame);
                                                },
                                            .on_closed = [](const Error&) {}});
                             })
                     .value();
      runtime_ = &end.runtime;
      ready_.test_and_set();
      ready_.notify_one();
      end.runtime.run();
    });
    ready_.wait(false);
  }
  ~FarEnd() {
    runtime_->request_stop();
    thread_.join();
  }
  FarEnd(const FarEnd&) = delete;
  FarEnd& operator=(const FarEnd&) = delete;
  const Address& address() const { return address_; }

 private:
  void hear(LinkEnd& end, const Frame& frame) {
    if (frame.kind == kEcho) return end.connection->send(frame);
    if (frame.kind == kOffer)
      return end.connection->send({.kind = kAnswer, .meta = end.connection->answer(frame.meta)});
    std::array<std::uint64_t, 2> wanted{};  // how many, of how many bytes
    SWARMLINE_CHECK(frame.kind == kWant && frame.meta.size() == sizeof(wanted));
    std::memcpy(wanted.data(), frame.meta.data(), sizeof(wanted));
    if (payload_.size() != wanted[1]) payload_ = pattern(wanted[1]);
    for (std::uint64_t i = 0; i < wanted[0]; ++i)
      end.connection->send({.kind = kPayload, .payload = {payload_}});
  }

  std::thread thread_;
  std::atomic_flag ready_;
  AsioRuntime* runtime_ = nullptr;
  Address address_;
  SharedBytes payload_;
};

class NearEnd {
 public:
  NearEnd(const std::string& way, const Address& far) : end_(way) {
    end_.network.connect(far, kPatience, [this](auto made) {
      SWARMLINE_CHECK(made.has_value());
      end_.connection = end_.bulk->over(std::move(*made));
      end_.connection->start({.on_frame = [this](Frame frame) { hear(std::move(frame)); },
                              .on_closed = [](const Error&) {}});
    });
    run_until([this] { return end_.connection != nullptr; });
  }

  // Whether payloads go that way from now on.
  bool take_way(const std::string& way) {
    if (goes_with_frames(way)) return true;
    const std::string offer = end_.connection->offer();
    if (offer.empty()) return false;
    end_.connection->send({.kind = kOffer, .meta = offer});
    return end_.runtime.run_until([&] { return end_.connection->way() == way; },
                                  kBulkMeetTime + kBulkMeetTime) &&
           (round_trip(), true);
  }
  void receive(std::uint64_t count, std::uint64_t bytes) {
    const std::array<std::uint64_t, 2> wanted = {count, bytes};
    std::string meta(sizeof(wanted), '\0');
    std::memcpy(meta.data(), wanted.data(), sizeof(wanted));
    came_ = 0;
    expected_ = bytes;
    end_.connection->send({.kind = kWant, .meta = std::move(meta)});
    run_until([&] { return came_ == count; });
  }
  void round_trip() {
    echoed_ = false;
    end_.connection->send({.kind = kEcho, .meta = std::string(kLinkBenchMessageBytes, 'm')});
    run_until([this] { return echoed_; });
  }
  bool last_is_right() const {
    for (std::size_t i = 0; i < last_.size(); ++i)
      if (last_.view()[i] != byte_at(i)) return false;
    return last_.size() == expected_;
  }

 private:
  void hear(Frame frame) {
    if (frame.kind == kAnswer) {
      if (!frame.meta.empty()) SWARMLINE_CHECK(end_.connection->take_answer(frame.meta));
    } else if (frame.kind == kEcho) {
      echoed_ = true;
    } else {
      SWARMLINE_CHECK(frame.payload_bytes() == expected_);
      ++came_;
      last_ = std::move(frame.payload.front());
    }
  }
  void run_until(const std::function<bool()>& done) {
    SWARMLINE_CHECK(end_.runtime.run_until(done, kPatience));
  }

  LinkEnd end_;
  std::uint64_t came_ = 0, expected_ = 0;
  SharedBytes last_;
  bool echoed_ = false;
};

class Bench {
 public:
  Bench(const LinkBenchOptions& options, const SecondsClock& clock, const LinkBenchNews& news)
      : options_(options), clock_(clock), news_(news) {}

  LinkBenchResult run() {
    for (const std::string& way : options_.ways) {
      news_.on_begin(way);
      if (const auto here = way_is_here(way); !here) {
        result_.left_out.emplace_back(way, here.error().what);
        continue;
      }
      FarEnd far(way);
      NearEnd near(way, far.address());
      if (!near.take_way(way)) {
        result_.left_out.emplace_back(way, kWayNotTaken);
        continue;
      }
      for (const std::uint64_t bytes : options_.bytes) measure_rate(way, near, bytes);
      measure_trip(way, near);
    }
    return std::move(result_);
  }

 private:
  double seconds_of(const std::function<void()>& work) {
    const double start = clock_();
    work();
    return clock_() - start;
  }

  void measure_rate(const std::string& way, NearEnd& near, std::uint64_t bytes) {
    news_.on_begin(fmt::format("{}, {} KiB", way, bytes / kKiB));
    const std::uint64_t count = std::clamp<std::uint64_t>(kRoundBytes / bytes, 1, kPayloadsMax);
    Buffer room = Buffer::zeroed(bytes), from = Buffer::zeroed(bytes);
    near.receive(1, bytes);  // not timed: memory is taken, and every byte looked at
    SWARMLINE_CHECK(near.last_is_right());
    std::vector<double> ours, raws, copies, ratios;
    for (int round = 0; round < options_.rounds; ++round) {
      const double own = seconds_of([&] { near.receive(count, bytes); });
      const double raw = seconds_of([&] { raw_.receive(count, room.bytes()); });
      const double copy = seconds_of([&] {
        for (std::uint64_t i = 0; i < count; ++i) std::memcpy(room.data(), from.data(), bytes);
      });
      const auto all = static_cast<double>(count * bytes);
      ours.push_back(all / own);
      raws.push_back(all / raw);
      copies.push_back(all / copy);
      ratios.push_back(raw / own);
    }
    result_.rates.push_back({.way = way,
                             .bytes = bytes,
                             .bytes_per_second = median(ours),
                             .raw_bytes_per_second = median(raws),
                             .copy_bytes_per_second = median(copies),
                             .of_raw = median(ratios)});
    news_.on_rate(result_.rates.back());
  }

  void measure_trip(const std::string& way, NearEnd& near) {
    news_.on_begin(way + ", round trips");
    Buffer message = Buffer::zeroed(kFrameHeaderBytes + kLinkBenchMessageBytes);
    std::vector<double> ours, raws, ratios;
    for (int round = 0; round < options_.rounds; ++round) {
      const double own = seconds_of([&] {
        for (int i = 0; i < kTripsOfRound; ++i) near.round_trip();
      });
      const double raw = seconds_of([&] {
        for (int i = 0; i < kTripsOfRound; ++i) raw_.round_trip(message.bytes());
      });
      ours.push_back(own / kTripsOfRound);
      raws.push_back(raw / kTripsOfRound);
      ratios.push_back(own / raw);
    }
    result_.trips.push_back({.way = way,
                             .seconds = median(ours),
                             .raw_seconds = median(raws),
                             .of_raw = median(ratios)});
    news_.on_trip(result_.trips.back());
  }

  const LinkBenchOptions& options_;
  const SecondsClock& clock_;
  const LinkBenchNews& news_;
  RawLink raw_;
  LinkBenchResult result_;
};

}  // namespace

const std::vector<std::string>& link_bench_ways() {
  static const std::vector<std::string> ways = {"tcp", "tls", "streams", "shm", "ucx", "rdma"};
  return ways;
}

Result<LinkBenchResult> bench_links(const LinkBenchOptions& options, const SecondsClock& clock,
                                    const LinkBenchNews& news) {
  for (const std::string& way : options.ways)
    if (std::ranges::find(link_bench_ways(), way) == link_bench_ways().end())
      return fail(ErrorCode::kUserMistake,
                  fmt::format("--ways {}: expected {}", way, fmt::join(link_bench_ways(), ", ")));
  return Bench(options, clock, news).run();
}

}  // namespace swarmline
