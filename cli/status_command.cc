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
#include "node/run_folder.h"
#include "node/summary.h"

namespace swarmline {
namespace {

constexpr Duration kWatchPeriod = std::chrono::milliseconds(500);

struct StatusFlags {
  std::string target;
  bool json = false;
  bool watch = false;
};

// Whoever may not steer the run may look all the same.
std::string secret_of(const RunTarget& target) {
  return target.folder ? target.folder->admin_secret().value_or("") : "";
}

// From the coordinator, or what it left behind.
Result<std::string> read_status(const RunTarget& target) {
  auto address = live_address(target);
  auto guard = guard_of(target);
  if (!guard) return std::unexpected(std::move(guard).error());
  Result<std::string> answer = address ? ask_status(*address, std::move(*guard), secret_of(target))
                                       : Result<std::string>(std::unexpected(address.error()));
  if (!answer && target.folder) {
    if (auto ended = target.folder->final_status()) return std::move(*ended);
  }
  return answer;
}

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
  std::fputs(describe(*status).c_str(), stdout);
  return {};
}

// Shows a running run until it is over or the watcher leaves.
class Watch {
 public:
  Watch(const StatusFlags& flags, const Address& coordinator, std::shared_ptr<LinkGuard> guard,
        const std::string& secret)
      : json_(flags.json),
        network_(runtime_, {.guard = std::move(guard)}),
        client_(runtime_, network_, coordinator, secret) {
    if (!json_ && output_is_terminal()) screen_.emplace();
  }

  Result<void> run() {
    runtime_.on_signals([this](int) { runtime_.request_stop(); });
    poll();
    runtime_.run();
    return result_;
  }

 private:
  void poll() {
    client_.status([this](Result<std::string> json) { show(std::move(json)); });
  }

  void show(Result<std::string> json) {
    if (!json) {
      // The run ended between two looks: its last status was shown.
      if (!seen_) result_ = std::unexpected(std::move(json).error());
      return runtime_.request_stop();
    }
    seen_ = true;
    auto status = parse_status(*json);
    if (!status) {
      result_ = std::unexpected(std::move(status).error());
      return runtime_.request_stop();
    }
    if (json_) {
      print_json_line(*json);
    } else if (screen_) {
      screen_->draw(
          render_screen(*status, "Ctrl-C: stop watching; the run goes on.", terminal_style()));
    } else {
      std::printf("%s\n", plain_line(*status).c_str());
      std::fflush(stdout);
    }
    if (status->over()) return runtime_.request_stop();
    runtime_.call_after(kWatchPeriod, [this] { poll(); });
  }

  bool json_;
  AsioRuntime runtime_;
  TcpNetwork network_;
  AdminClient client_;
  std::optional<LiveScreen> screen_;
  Result<void> result_;
  bool seen_ = false;
};

Result<void> run_status(const StatusFlags& flags) {
  auto target = find_run(flags.target);
  if (!target) return std::unexpected(std::move(target).error());
  if (!flags.watch) return show_once(flags, *target);
  auto address = live_address(*target);
  auto guard = guard_of(*target);
  if (!guard) return std::unexpected(std::move(guard).error());
  const std::string secret = secret_of(*target);
  if (!address || !ask_status(*address, *guard, secret)) return show_once(flags, *target);
  return Watch(flags, *address, std::move(*guard), secret).run();
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
  command->add_flag("--json", flags->json, "For programs (docs/formats/status.md)");
  command->add_flag("--watch", flags->watch, "Until the run is over or Ctrl-C");
  command->footer("Example: swarmline status runs/quickstart --watch");
  command->callback([flags, &exit_code] {
    auto shown = run_status(*flags);
    exit_code = shown ? kExitDone : report_error(shown.error());
  });
}

}  // namespace swarmline
