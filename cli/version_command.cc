#include <cstdio>
#include <memory>

#include <fmt/format.h>

#include "cli/build_info.h"
#include "cli/commands.h"
#include "engine/store/json_writer.h"

namespace swarmline {
namespace {

std::string version_text() {
  using namespace built_from;
  const std::string commit = *kCommit == '\0' ? "" : fmt::format(" ({}, {})", kCommit, kDate);
  return fmt::format("swarmline {}{}\nbuilt with {} as {}; libtorch {}; CUDA {}", SWARMLINE_VERSION,
                     commit, kCompiler, kBuildType, kLibtorch, kCuda);
}

std::string version_json() {
  using namespace built_from;
  JsonWriter json(1);
  json.begin_object().key("format").value(1).key("version").value(SWARMLINE_VERSION);
  json.key("commit").value(kCommit).key("date").value(kDate);
  json.key("compiler").value(kCompiler).key("build_type").value(kBuildType);
  json.key("libtorch").value(kLibtorch).key("cuda").value(kCuda);
  return json.end_object().take();
}

}  // namespace

void add_version_command(CLI::App& app, int&) {
  CLI::App* command =
      app.add_subcommand("version", "Print the program's version, and what it was built from");
  auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "Machine-readable output");
  command->callback([json] { std::puts((*json ? version_json() : version_text()).c_str()); });
}

}  // namespace swarmline
