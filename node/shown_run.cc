#include "node/shown_run.h"

#include <utility>

#include <fmt/format.h>

#include "base/limits.h"
#include "base/log.h"
#include "engine/config/load.h"
#include "engine/identity/secrets.h"
#include "engine/net/tcp/tcp_network.h"
#include "engine/store/files.h"
#include "node/page_access.h"
#include "node/read_status.h"
#include "pipeline/protocol/run_status.h"

namespace swarmline {
namespace {

// Of a folder that another user's process may only read, a token for as long as this process lives.
std::string token_of_folder(const RunFolder& folder) {
  auto token = page_token(folder);
  return token ? std::move(*token) : to_hex(as_bytes(random_secret(kPageTokenBytes)));
}

// Of a run that has had no coordinator: a reference.
std::string status_by_steps(const RunFolder& folder, const RunSeries& series) {
  RunStatus status;
  const auto text = read_text_file(folder.config(), Limits::config_file_bytes_max);
  const auto config =
      text ? run_config_from_text(*text, folder.config()) : std::unexpected(text.error());
  if (config) {
    status.run = config->run.name;
    status.steps = config->run.steps;
  }
  if (!series.points().empty()) {
    const RunSeries::Point& last = series.points().back();
    status.step = status.version = last.step;
    status.loss = last.loss;
    status.wall_seconds = last.wall_seconds;
    for (const RunSeries::Point& point : series.points()) status.tokens += point.tokens;
  }
  if (!series.evals().empty()) status.held_out_loss = series.evals().back().loss;
  status.state = status.step >= status.steps ? "done" : "stopped";
  return to_json(status);
}

}  // namespace

ShownRun::ShownRun(AsioRuntime& runtime, RunFolder folder)
    : runtime_(runtime), folder_(std::move(folder)), tail_(folder_.log()) {}

Result<std::string> ShownRun::open(const Address& address) {
  const std::string token = token_of_folder(folder_);
  page_ = std::make_unique<RunPage>(runtime_, HttpOptions{}, PageGuard(true, token),
                                    [this] { return status_; });
  const auto bound = page_->listen(address);
  if (!bound)
    return fail(ErrorCode::kUserMistake,
                fmt::format("{}; give another port by --port N", bound.error().what));
  look();
  return with_token(fmt::format("http://{}/", to_string(*bound)), token);
}

void ShownRun::look() {
  const auto read = tail_.read([this](std::string_view line) { page_->take_line(line); });
  if (!read && read.error().code != ErrorCode::kNotFound)
    log(LogLevel::kDebug, "{}", read.error().what);
  const auto coordinator = folder_.read_address();
  coordinator ? ask(*coordinator) : read_what_is_left(coordinator.error());
  runtime_.call_after(kLook, callbacks_.wrap([this] { look(); }));
}

void ShownRun::ask(const Address& coordinator) {
  if (asked_) return;
  if (!client_ || client_->address() != coordinator) {
    client_.reset();
    auto guard = folder_.owner_guard();
    if (!guard) return read_what_is_left(guard.error());
    network_ = std::make_unique<TcpNetwork>(runtime_, TcpOptions{.guard = std::move(*guard)});
    client_.emplace(runtime_, *network_, coordinator, folder_.admin_secret().value_or(""));
  }
  asked_ = true;
  client_->status(callbacks_.wrap([this](Result<std::string> json) {
    asked_ = false;
    json ? take_status(std::move(*json)) : read_what_is_left(json.error());
  }));
}

// It changes when somebody goes on with the run, or ends it elsewhere.
void ShownRun::read_what_is_left(const Error& unanswered) {
  const Instant now = runtime_.now();
  if (left_read_ && now - *left_read_ < kLeftLook) return;
  left_read_ = now;
  auto left = left_status(folder_, unanswered);
  if (left) return take_status(std::move(*left));
  if (status_.empty() && unanswered.code == ErrorCode::kNotFound)
    take_status(status_by_steps(folder_, page_->series()));
}

void ShownRun::take_status(std::string json) {
  const auto status = parse_status(json);
  if (!status) return log(LogLevel::kWarn, "{}", status.error().what);
  status_ = std::move(json);
  const bool was_over = std::exchange(over_, status->over());
  if (over_ && !was_over) page_->end();
}

}  // namespace swarmline
