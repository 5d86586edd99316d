#include "tools/measure/bench_links.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/check.h"
#include "engine/identity/identity.h"
#include "engine/net/bulk/bulk_connection.h"
#include "engine/net/tcp/tcp_network.h"
#include "tools/measure/link_meter.h"
#include "tools/measure/link_yardstick.h"
#include "tools/measure/measured_link.h"
#include "tools/measure/payload_way.h"

namespace swarmline {
namespace {

constexpr Duration kPatience = std::chrono::seconds(120);

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

// One end's doors.
struct LinkEnd {
  explicit LinkEnd(const std::string& way)
      : network(runtime, {.guard = way == "tls" ? std::make_shared<BenchGuard>() : nullptr}),
        bulk(make_door_of(way, runtime, network)) {}
  AsioRuntime runtime;
  TcpNetwork network;
  std::unique_ptr<BulkDoor> bulk;
  std::vector<std::unique_ptr<MeasuredLink>> links;

  // Over a connection that was made.
  MeasuredLink& take(std::shared_ptr<Connection> connection) {
    const auto made = bulk->over(std::move(connection));
    links.push_back(std::make_unique<MeasuredLink>(runtime, made));
    MeasuredLink& link = *links.back();
    made->start({.on_frame = [&link](Frame frame) { link.hear(std::move(frame)); },
                 .on_closed = [&link](const Error& error) { link.lost(error); }});
    return link;
  }
};

// Does what it is asked for.
class FarEnd {
 public:
  explicit FarEnd(const std::string& way) {
    thread_ = std::thread([this, way] {
      LinkEnd end(way);
      address_ =
          end.network
              .listen({"127.0.0.1", 0}, [&end](auto accepted) { end.take(std::move(accepted)); })
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
  std::thread thread_;
  std::atomic_flag ready_;
  AsioRuntime* runtime_ = nullptr;
  Address address_;
};

MeasuredLink& dial(LinkEnd& end, const Address& far) {
  end.network.connect(far, kPatience, [&end](auto made) {
    SWARMLINE_CHECK(made.has_value());
    end.take(std::move(*made));
  });
  SWARMLINE_CHECK(end.runtime.run_until([&end] { return !end.links.empty(); }, kPatience));
  return *end.links.front();
}

class Bench {
 public:
  Bench(const LinkBenchOptions& options, const SecondsClock& clock, const LinkBenchNews& news)
      : options_(options), news_(news), meter_(options.rounds, clock, news, result_) {}

  Result<LinkBenchResult> run() {
    for (const std::string& way : options_.ways) SWARMLINE_TRY(measure(way));
    return std::move(result_);
  }

 private:
  Result<void> measure(const std::string& way) {
    news_.on_begin(way);
    if (const auto here = way_is_here(way); !here) {
      result_.left_out.emplace_back(way, here.error().what);
      return {};
    }
    const FarEnd far(way);
    LinkEnd near(way);
    MeasuredLink& link = dial(near, far.address());
    const auto is_taken = link.take_way(way);
    if (!is_taken) return std::unexpected(is_taken.error());
    if (!*is_taken) {
      result_.left_out.emplace_back(way, kWayNotTaken);
      return {};
    }
    const LinkMeter::Ends ends{.way = way, .far = {}, .link = link, .raw = &raw_};
    for (const std::uint64_t bytes : options_.bytes)
      SWARMLINE_TRY(meter_.measure_rate(ends, bytes, false));
    return meter_.measure_trip(ends);
  }

  const LinkBenchOptions& options_;
  const LinkBenchNews& news_;
  RawLink raw_;
  LinkBenchResult result_;
  LinkMeter meter_;
};

}  // namespace

const std::vector<std::string>& link_bench_ways() {
  static const std::vector<std::string> ways = {"tcp", "tls", "shm", "ucx", "rdma", "streams"};
  return ways;
}

Result<void> check_link_ways(const std::vector<std::string>& ways) {
  for (const std::string& way : ways)
    if (std::ranges::find(link_bench_ways(), way) == link_bench_ways().end())
      return fail(ErrorCode::kUserMistake,
                  fmt::format("--ways {}: expected {}", way, fmt::join(link_bench_ways(), ", ")));
  return {};
}

Result<LinkBenchResult> bench_links(const LinkBenchOptions& options, const SecondsClock& clock,
                                    const LinkBenchNews& news) {
  SWARMLINE_TRY(check_link_ways(options.ways));
  return Bench(options, clock, news).run();
}

}  // namespace swarmline
