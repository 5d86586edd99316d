#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "base/log.h"
#include "base/printable.h"
#include "cli/commands.h"
#include "console/exit_codes.h"
#include "engine/runtime/asio_runtime.h"
#include "node/run_folder.h"
#include "node/shown_run.h"

namespace swarmline {
namespace {

struct ShowFlags {
  std::string run;
  std::uint16_t port = 0;
};

Result<void> run_show(const ShowFlags& flags) {
  auto folder = find_run_folder(flags.run);
  if (!folder) return std::unexpected(std::move(folder).error());
  init_log({.level = LogLevel::kWarn, .file = {}, .prefix = "show"});
  AsioRuntime runtime;
  runtime.on_signals([&](int) { runtime.request_stop(); });
  ShownRun shown(runtime, *folder);
  const auto url = shown.open({"127.0.0.1", flags.port});
  if (!url) return std::unexpected(url.error());
  std::printf("%s is shown at %s\nCtrl-C ends this; the run goes on.\n",
              printable_lines(folder->path()).c_str(), url->c_str());
  std::fflush(stdout);
  runtime.run();
  return {};
}

}  // namespace

void add_show_command(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<ShowFlags>();
  CLI::App* command =
      app.add_subcommand("show", "Serve the web page of a run, living or over, from its folder");
  command->add_option("run", flags->run, "A run folder; default: the newest under runs/")
      ->type_name("RUN_FOLDER");
  command->add_option("--port", flags->port, "Port on this machine (127.0.0.1); 0: any free one")
      ->capture_default_str()
      ->type_name("N");
  command->footer(
      "It prints the URL to open in a browser, and serves the page to this machine until Ctrl-C.\n"
      "A living run serves the same page by itself (docs/page.md).\n"
      "Example: swarmline show runs/quickstart --port 8080");
  command->callback([flags, &exit_code] {
    const auto shown = run_show(*flags);
    exit_code = shown ? kExitDone : report_error(shown.error());
  });
}

}  // namespace swarmline
