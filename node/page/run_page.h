// The web page of a run, and what programs read beside it: one HTTP server over what it is told.
//   What:      the page's files; /api/status, /api/steps, /api/events, /api/stream (server-sent
//              events) and /metrics, as docs/formats/page.md tells.
//   Ownership: the runtime outlives it; so does what `status_json` reads.
//   Thread:    control thread. Nothing in it waits: what it answers is in memory.
//   Errors:    of listen(). What a client says wrongly costs it its connection.
//   Bounds:    those of RunSeries and HttpOptions; the status is asked for kStatusAgeMax apart, and
//              sent to streams kStatusPeriod apart.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/callback_guard.h"
#include "base/result.h"
#include "engine/net/http/http_server.h"
#include "engine/net/network.h"
#include "engine/runtime/asio_runtime.h"
#include "node/page/page_guard.h"
#include "node/page/run_series.h"

namespace swarmline {

class RunPage {
 public:
  static constexpr Duration kStatusPeriod = std::chrono::seconds(1);
  static constexpr Duration kStatusAgeMax = std::chrono::milliseconds(200);

  // `status_json`: the run's status (docs/formats/status.md); empty: there is none yet.
  RunPage(AsioRuntime& runtime, HttpOptions options, PageGuard guard,
          std::function<std::string()> status_json);
  RunPage(const RunPage&) = delete;
  RunPage& operator=(const RunPage&) = delete;

  Result<Address> listen(const Address& address) { return server_.listen(address); }
  void take_invites(InviteBook invites) { guard_.take_invites(std::move(invites)); }
  void take_line(std::string_view line);  // of log.jsonl, as it is written
  // What was before the lines that were taken.
  void take_history(RunSeries before);
  // The run is over: streams end with its last status.
  void end();
  const RunSeries& series() const { return series_; }
  HttpServer::Counters counters() const { return server_.counters(); }

 private:
  HttpAnswer answer(const HttpRequest& request);
  HttpAnswer answer_api(const HttpRequest& request);
  HttpAnswer status();
  HttpAnswer metrics();
  HttpAnswer stream();
  void begin(std::shared_ptr<HttpStream> stream);
  void tell(std::string_view event, std::string_view json);
  void tell_status();
  void tick();
  const std::string& newest_status();

  AsioRuntime& runtime_;
  PageGuard guard_;
  std::function<std::string()> status_json_;
  std::string status_;  // asked for at
  std::optional<Instant> status_at_;
  RunSeries series_;
  std::vector<std::shared_ptr<HttpStream>> streams_;
  TimerId tick_;
  HttpServer server_;
  CallbackGuard callbacks_;
};

}  // namespace swarmline
