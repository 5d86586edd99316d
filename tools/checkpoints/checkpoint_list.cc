#include "tools/checkpoints/checkpoint_list.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "console/text.h"
#include "engine/checkpoint/checkpoint_folder.h"
#include "engine/store/files.h"
#include "engine/store/json_writer.h"
#include "node/initial_state.h"
#include "node/run_folder.h"
#include "tools/history/run_history.h"

namespace swarmline {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSetAside = ".damaged";

double written_at(const std::string& path) {
  std::error_code error;
  const auto time = fs::last_write_time(path + "/manifest.json", error);
  if (error) return 0;
  const auto since = std::chrono::file_clock::to_sys(time).time_since_epoch();
  return std::chrono::duration<double>(since).count();
}

std::uint64_t bytes_in(const std::string& path) {
  std::uint64_t bytes = 0;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path, error))
    bytes += file_bytes(entry.path().string()).value_or(0);
  return bytes;
}

void add_losses(const RunHistory& history, ListedCheckpoint& listed) {
  // The step that made version N is N - 1.
  const auto step = std::ranges::lower_bound(history.steps, listed.step, {},
                                             [](const StepHistory& s) { return s.step + 1; });
  if (step != history.steps.end() && step->step + 1 == listed.step) listed.loss = step->loss;
  const auto eval = std::ranges::lower_bound(history.evals, listed.step, {}, &EvalHistory::version);
  if (eval != history.evals.end() && eval->version == listed.step) listed.held_out = eval->loss;
}

ListedCheckpoint listed_of(const CheckpointEntry& entry) {
  ListedCheckpoint listed{.name = fs::path(entry.path).filename().string(),
                          .path = entry.path,
                          .era = entry.era,
                          .step = entry.step,
                          .bytes = bytes_in(entry.path),
                          .wall_seconds = written_at(entry.path)};
  const auto manifest = read_checkpoint(entry.path, Verify::kSizes);
  if (manifest) {
    listed.optimizer_state = manifest->optimizer_state;
  } else {
    listed.damage = manifest.error().what;
  }
  return listed;
}

std::string loss_text(const std::optional<double>& loss) {
  return loss ? fmt::format("{:.4f}", *loss) : "-";
}

}  // namespace

Result<std::vector<ListedCheckpoint>> list_run_checkpoints(const std::string& folder) {
  const RunFolder run(folder);
  auto entries = list_checkpoints(run.checkpoints());
  if (!entries) return std::unexpected(std::move(entries).error());
  std::vector<ListedCheckpoint> all;
  for (const CheckpointEntry& entry : *entries) all.push_back(listed_of(entry));
  if (const auto history = read_history(run.log()))
    for (ListedCheckpoint& listed : all) add_losses(*history, listed);
  const auto names = list_folder(run.checkpoints());
  for (const std::string& name : names.value_or(std::vector<std::string>())) {
    if (!name.ends_with(kSetAside)) continue;
    const std::string path = run.checkpoints() + "/" + name;
    all.insert(all.begin(), {.name = name,
                             .path = path,
                             .bytes = bytes_in(path),
                             .wall_seconds = written_at(path),
                             .damage = "set aside",
                             .set_aside = true});
  }
  return all;
}

std::string to_text(const std::vector<ListedCheckpoint>& checkpoints, double now_wall_seconds) {
  if (checkpoints.empty()) return "no checkpoints\n";
  std::string out = fmt::format("{:<20} {:>10} {:>10} {:>8} {:>9}  {}\n", "checkpoint", "size",
                                "age", "loss", "held-out", "state");
  for (const ListedCheckpoint& one : checkpoints) {
    const std::string state = !one.damage.empty()   ? "damaged: " + one.damage
                              : one.optimizer_state ? "whole"
                                                    : "whole, parameters alone";
    out += fmt::format("{:<20} {:>10} {:>10} {:>8} {:>9}  {}\n", one.name,
                       human_bytes(static_cast<double>(one.bytes)),
                       human_seconds(std::max(0.0, now_wall_seconds - one.wall_seconds)),
                       loss_text(one.loss), loss_text(one.held_out), state);
  }
  return out;
}

std::string to_json(const std::vector<ListedCheckpoint>& checkpoints) {
  JsonWriter json(2);
  json.begin_object().member("format", kCheckpointListFormat).key("checkpoints").begin_array();
  for (const ListedCheckpoint& one : checkpoints) {
    json.begin_object().member("name", one.name).member("path", one.path).member("era", one.era);
    json.member("step", one.step).member("bytes", one.bytes);
    json.member("wall_seconds", one.wall_seconds).member("whole", one.damage.empty());
    if (!one.damage.empty()) json.member("damage", one.damage);
    json.member("optimizer_state", one.optimizer_state);
    json.member("loss", one.loss).member("held_out_loss", one.held_out).end_object();
  }
  json.end_array().end_object();
  return json.take() + "\n";
}

Result<std::vector<VerifiedCheckpoint>> verify_checkpoints(const std::string& path) {
  std::vector<std::string> paths;
  if (file_exists(path + "/manifest.json")) {
    paths.push_back(path);
  } else {
    auto entries = list_checkpoints(RunFolder(path).checkpoints());
    if (!entries) return std::unexpected(std::move(entries).error());
    for (const CheckpointEntry& entry : *entries) paths.push_back(entry.path);
    const std::string initial = checkpoint_path(initial_folder(RunFolder(path)), 0);
    if (file_exists(initial)) paths.push_back(initial);
  }
  if (paths.empty())
    return fail(ErrorCode::kUserMistake,
                fmt::format("{} holds no checkpoint: name a run folder or a checkpoints/step-N "
                            "folder",
                            path));
  std::vector<VerifiedCheckpoint> all;
  for (std::string& one : paths) {
    VerifiedCheckpoint verified{.path = one, .bytes = bytes_in(one)};
    if (const auto manifest = read_checkpoint(one, Verify::kContents); !manifest)
      verified.damage = manifest.error().what;
    all.push_back(std::move(verified));
  }
  return all;
}

}  // namespace swarmline
