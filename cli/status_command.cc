#include <cstdio>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/printable.h"
#include "cli/commands.h"
#include "console/exit_codes.h"
#include "console/screen.h"
#include "engine/net/tcp/tcp_network.h"
#include "engine/runtime/asio_runtime.h"
#include "node/admin_client.h"
#include "node/page_access.h"
#include "node/read_status.h"
#include "node/run_folder.h"
#include "node/summary.h"

namespace swarmline {
namespace {

constexpr Duration kWatchPeriod = std::chrono::milliseconds(500);
constexpr Duration kAwayMax = std::chrono::seconds(10);  // of a coordinator that is watched

struct StatusFlags {
  std::string target;
  bool json = false;
  bool watch = false;
};

void print_json_line(std::string_view json) {
  while (json.ends_with('\n')) json.remove_suffix(1);
  std::printf("%s\n", printable_lines(json).c_str());  // JSON itself has no other characters
  std::fflush(stdout);
}

Result<void> show_once(const StatusFlags& flags, const RunTarget& target) {
  auto json = read_status(target);
  if (!json) return std::unexpected(std::move(json).error());
  if (flags.json) {
    print_json_line(*json);
    return {};
  }
  auto status = parse_status(*json);
  if (!status) return std::unexpected(std::move(status).error());
  if (target.folder) add_page_token(*status, *target.folder);
  std::fputs(describe(*status).c_str(), stdout);
  return {};
}

// Shows a running run until it is over or the watcher leaves.
class Watch {
 public:
  Watch(const StatusFlags& flags, std::optional<RunFolder> folder, const Address& coordinator,
        std::shared_ptr<LinkGuard> guard, const std::string& secret)
      : json_(flags.json),
        folder_(std::move(folder)),
        network_(runtime_, {.guard = std::move(guard)}),
        client_(runtime_, network_, coordinator, secret) {
    if (!json_ && output_is_terminal()) screen_.emplace();
  }

  // The exit code.
  Result<int> run() {
    runtime_.on_signals([this](int) { runtime_.request_stop(); });
    poll();
    runtime_.run();
    if (!result_) return std::unexpected(result_.error());
    return exit_code_;
  }

 private:
  void poll() {
    client_.status([this](Result<std::string> json) { show(std::move(json)); });
  }

  // A coordinator that is begun again answers soon.
  void on_no_answer(const Error& error) {
    const Instant now = runtime_.now();
    if (!silent_since_) silent_since_ = now;
    if (seen_ && now - *silent_since_ < kAwayMax) return poll_again();
    auto left =
        folder_ ? left_status(*folder_, error) : Result<std::string>(std::unexpected(error));
    if (!left) {
      result_ = std::unexpected(std::move(left).error());
      return runtime_.request_stop();
    }
    show_one(*left);
    runtime_.request_stop();
  }

  void show(Result<std::string> json) {
    if (!json) {
      const auto ended = folder_ ? folder_->final_status() : std::nullopt;
      if (!ended) return on_no_answer(json.error());
      show_one(*ended);
      return runtime_.request_stop();
    }
    silent_since_.reset();
    seen_ = true;
    if (show_one(*json)) poll_again();
  }

  // False: there is nothing more to come.
  bool show_one(const std::string& json) {
    auto status = parse_status(json);
    if (!status) {
      result_ = std::unexpected(std::move(status).error());
      runtime_.request_stop();
      return false;
    }
    if (folder_) add_page_token(*status, *folder_);
    if (json_) {
      print_json_line(json);
    } else if (screen_) {
      screen_->draw(
          render_screen(*status, "Ctrl-C: stop watching; the run goes on.", terminal_style()));
    } else {
      std::printf("%s\n", plain_line(*status).c_str());
      std::fflush(stdout);
    }
    if (!status->over()) return true;
    if (!json_) std::printf("%s\n", printable_lines(ending(*status)).c_str());
    if (status->state != "done") exit_code_ = kExitFailed;
    runtime_.request_stop();
    return false;
  }

  static std::string ending(const RunStatus& status) {
    return status.sentence.empty() ? status.state
                                   : fmt::format("{}: {}", status.state, status.sentence);
  }

  void poll_again() {
    runtime_.call_after(kWatchPeriod, [this] { poll(); });
  }

  bool json_;
  const std::optional<RunFolder> folder_;
  AsioRuntime runtime_;
  TcpNetwork network_;
  AdminClient client_;
  std::optional<LiveScreen> screen_;
  Result<void> result_;
  bool seen_ = false;
  std::optional<Instant> silent_since_;
  int exit_code_ = kExitDone;
};

Result<int> run_status(const StatusFlags& flags) {
  auto target = find_run(flags.target);
  if (!target) return std::unexpected(std::move(target).error());
  const auto once = [&]() -> Result<int> {
    SWARMLINE_TRY(show_once(flags, *target));
    return kExitDone;
  };
  if (!flags.watch) return once();
  auto address = live_address(*target);
  auto guard = guard_of(*target);
  if (!guard) return std::unexpected(std::move(guard).error());
  const std::string secret = admin_secret_of(*target);
  if (!address || !ask_status(*address, *guard, secret)) return once();
  return Watch(flags, target->folder, *address, std::move(*guard), secret).run();
}

}  // namespace

void add_status_command(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<StatusFlags>();
  CLI::App* command = app.add_subcommand("status", "Show how a run is doing, or how it ended");
  command
      ->add_option(
          "run", flags->target,
          "A run folder, a coordinator's address on this machine, or a join string; default: "
          "the newest under runs/")
      ->type_name("RUN_FOLDER|HOST:PORT|swarm1...");
  command->add_flag("--json", flags->json, "Machine-readable output (docs/formats/status.md)");
  command->add_flag("--watch", flags->watch, "Keep showing it until the run ends or Ctrl-C");
  command->footer("Example: swarmline status runs/quickstart --watch");
  command->callback([flags, &exit_code] {
    auto shown = run_status(*flags);
    exit_code = shown ? *shown : report_error(shown.error());
  });
}

}  // namespace swarmline
