#include "node/page/run_page.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include <fmt/format.h>

#include "node/page/page_files.h"
#include "node/page/run_metrics.h"
#include "pipeline/protocol/run_status.h"

namespace swarmline {
namespace {

// Nothing from anywhere else, nothing inline, in nobody's frame.
constexpr const char* kContentPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

std::shared_ptr<const std::string> shared(std::string text) {
  return std::make_shared<const std::string>(std::move(text));
}

HttpAnswer json_answer(std::string json) {
  HttpAnswer answer;
  answer.content_type = "application/json";
  answer.body = shared(std::move(json));
  return answer;
}

HttpAnswer file_answer(const PageFile& file) {
  HttpAnswer answer;
  answer.content_type = file.content_type;
  answer.body = shared(std::string(file.bytes));
  return answer;
}

HttpAnswer nothing_there() {
  return http_text(404,
                   "there is no such page; / is the page, /api/status, /api/steps, /api/events, "
                   "/api/stream and /metrics are for programs");
}

bool is_for_programs(std::string_view path) {
  return path == "/metrics" || path.starts_with("/api/");
}

std::string event_text(std::string_view event, std::string_view json) {
  return fmt::format("event: {}\ndata: {}\n\n", event, json);
}

bool is_over(const std::string& json) {
  const auto status = parse_status(json);
  return status && status->over();
}

}  // namespace

RunPage::RunPage(AsioRuntime& runtime, HttpOptions options, PageGuard guard,
                 std::function<std::string()> status_json)
    : runtime_(runtime),
      guard_(std::move(guard)),
      status_json_(std::move(status_json)),
      server_(runtime, std::move(options),
              [this](const HttpRequest& request) { return answer(request); }) {}

HttpAnswer RunPage::answer(const HttpRequest& request) {
  const bool for_programs = is_for_programs(request.path);
  auto refusal = guard_.refuse(request, for_programs, runtime_.wall_seconds());
  HttpAnswer answer;
  if (refusal) {
    answer = std::move(*refusal);
  } else if (for_programs) {
    answer = answer_api(request);
  } else {
    const std::string_view path = request.path;
    const PageFile* file = path.starts_with('/')
                               ? find_page_file(path == "/" ? "index.html" : path.substr(1))
                               : nullptr;
    answer = file != nullptr ? file_answer(*file) : nothing_there();
  }
  answer.headers.emplace("Cache-Control", "no-store");
  answer.headers.emplace("Content-Security-Policy", kContentPolicy);
  answer.headers.emplace("Cross-Origin-Resource-Policy", "same-origin");
  answer.headers.emplace("Referrer-Policy", "no-referrer");
  answer.headers.emplace("X-Content-Type-Options", "nosniff");
  return answer;
}

HttpAnswer RunPage::answer_api(const HttpRequest& request) {
  if (request.path == "/api/status") return status();
  if (request.path == "/api/events") return json_answer(events_json(series_));
  if (request.path == "/api/stream") return stream();
  if (request.path == "/metrics") return metrics();
  if (request.path != "/api/steps") return nothing_there();
  std::uint64_t from = 0;
  if (const std::string_view text = request.query_value("from"); !text.empty()) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), from);
    if (error != std::errc() || end != text.data() + text.size())
      return http_text(400, "from: expected the number of a step, as in /api/steps?from=100");
  }
  return json_answer(steps_json(series_, from));
}

const std::string& RunPage::newest_status() {
  const Instant now = runtime_.now();
  if (!status_at_ || now - *status_at_ >= kStatusAgeMax) {
    status_ = status_json_();
    status_at_ = now;
  }
  return status_;
}

HttpAnswer RunPage::status() {
  const std::string& json = newest_status();
  return json.empty() ? http_text(503, "the run is just starting; ask again") : json_answer(json);
}

HttpAnswer RunPage::metrics() {
  const auto status = parse_status(newest_status());
  if (!status) return http_text(503, "the run is just starting; ask again");
  HttpAnswer answer;
  answer.content_type = kMetricsContentType;
  answer.body = shared(metrics_text(*status, series_));
  return answer;
}

HttpAnswer RunPage::stream() {
  HttpAnswer answer;
  answer.content_type = "text/event-stream";
  // The server, and so every stream, goes before this object.
  answer.stream = [this](std::shared_ptr<HttpStream> stream) { begin(std::move(stream)); };
  return answer;
}

void RunPage::begin(std::shared_ptr<HttpStream> stream) {
  const std::string& status = newest_status();
  if (!status.empty()) stream->send(shared(event_text("status", status)));
  if (is_over(status)) {
    stream->send(shared(event_text("end", "{}")));
    return stream->finish();
  }
  std::erase_if(streams_, [](const auto& each) { return each->closed(); });
  streams_.push_back(std::move(stream));
  if (streams_.size() == 1) tick();
}

void RunPage::tell(std::string_view event, std::string_view json) {
  std::erase_if(streams_, [](const auto& each) { return each->closed(); });
  if (streams_.empty()) return;
  const auto text = shared(event_text(event, json));
  for (const auto& stream : streams_) stream->send(text);
}

void RunPage::tell_status() {
  const std::string& json = newest_status();
  if (json.empty()) return tell("starting", "{}");
  // Whoever has not read the one before gets the next: one of thousands of peers has megabytes.
  const auto text = shared(event_text("status", json));
  std::erase_if(streams_, [](const auto& each) { return each->closed(); });
  for (const auto& stream : streams_)
    if (stream->unsent() == 0) stream->send(text);
}

// As long as somebody listens.
void RunPage::tick() {
  runtime_.cancel(tick_);
  tick_ = runtime_.call_after(kStatusPeriod, callbacks_.wrap([this] {
    tell_status();
    if (!streams_.empty()) tick();
  }));
}

void RunPage::take_line(std::string_view line) {
  const auto entry = read_log_line(line);
  if (!entry) return;
  series_.add(*entry);
  if (std::holds_alternative<LoggedStep>(*entry)) {
    tell("step", to_json(series_.points().back()));
  } else if (std::holds_alternative<LoggedEval>(*entry)) {
    tell("eval", to_json(series_.evals().back()));
  } else {
    tell("event", to_json(series_.events().back()));
  }
}

void RunPage::take_history(RunSeries before) {
  before.append(series_);
  series_ = std::move(before);
}

void RunPage::end() {
  status_at_.reset();
  if (const std::string& json = newest_status(); !json.empty()) tell("status", json);
  tell("end", "{}");
  for (const auto& stream : streams_) stream->finish();
  streams_.clear();
}

}  // namespace swarmline
