#include "node/run_folder.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>

#include "base/limits.h"
#include "engine/checkpoint/checkpoint_folder.h"
#include "engine/config/begun_run.h"
#include "engine/config/load.h"
#include "engine/identity/key_file.h"
#include "engine/runtime/asio_runtime.h"
#include "engine/store/files.h"
#include "node/admin_client.h"
#include "node/admission/run_guard.h"

namespace swarmline {
namespace {

namespace fs = std::filesystem;

constexpr int kAsideMax = 10'000;                    // folders NAME.1 .. NAME.10000
constexpr std::uint64_t kAddressBytesMax = 512;      // coordinator.address
constexpr std::uint64_t kStatusBytesMax = 16 << 20;  // status.json
constexpr const char* kRunsFolder = "runs";

Result<void> move_aside(const std::string& path) {
  for (int number = 1; number <= kAsideMax; ++number) {
    const std::string target = fmt::format("{}.{}", path, number);
    std::error_code error;
    if (fs::exists(target, error)) continue;
    fs::rename(path, target, error);
    if (!error) return {};
    return fail(ErrorCode::kIo,
                fmt::format("cannot move {} to {}: {}", path, target, error.message()));
  }
  return fail(ErrorCode::kIo,
              fmt::format("{} has {} older runs beside it; remove some", path, kAsideMax));
}

}  // namespace

bool RunFolder::holds_a_run() const {
  return file_exists(config()) || file_exists(journal()) || file_exists(log());
}

Result<void> RunFolder::refuse_running() const {
  const auto address = read_address();
  if (!address) return {};
  auto guard = owner_guard();
  if (!guard) return std::unexpected(std::move(guard).error());
  if (!ask_status(*address, std::move(*guard))) return {};
  return fail(ErrorCode::kUserMistake,
              fmt::format("{} is running (coordinator {}); end it by \"swarmline stop {}\", or "
                          "give this run another name by --name NAME",
                          path_, to_string(*address), path_));
}

Result<void> RunFolder::prepare(std::string_view config_toml, bool fresh) const {
  if (holds_a_run()) {
    SWARMLINE_TRY(refuse_running());
    if (!fresh) {
      return fail(ErrorCode::kUserMistake,
                  fmt::format("{} holds a run already; give this one another name by --name NAME, "
                              "or move the old one to {}.1 by --fresh",
                              path_, path_));
    }
    SWARMLINE_TRY(move_aside(path_));
  }
  SWARMLINE_TRY(make_folders(checkpoints()));
  SWARMLINE_TRY(make_folders(logs()));
  return write_text_file_atomically(config(), config_toml);
}

Result<RunStart> RunFolder::prepare_or_resume(const RunConfig& config, bool fresh) const {
  if (fresh || !holds_a_run()) {
    SWARMLINE_TRY(prepare(to_toml(config), fresh));
    return RunStart::kNew;
  }
  SWARMLINE_TRY(refuse_running());
  return resume(config);
}

Result<RunStart> RunFolder::take_over(const RunConfig& config) const {
  return holds_a_run() ? resume(config) : prepare_or_resume(config, false);
}

Result<RunStart> RunFolder::resume(const RunConfig& config) const {
  const auto no = [this](const std::string& why) {
    return fail(ErrorCode::kUserMistake,
                fmt::format("{}; give this run another name by --name NAME, or move the old one to "
                            "{}.1 by --fresh",
                            why, path_));
  };
  // A reference and other runs without a coordinator can't be gone on with.
  const bool begun = file_exists(journal()) || !config.run.etcd.empty();
  if (!begun && file_exists(log())) return no(path_ + " holds a run already, without a journal");
  if (file_exists(this->config())) {
    auto text = read_text_file(this->config(), Limits::config_file_bytes_max);
    if (!text) return std::unexpected(std::move(text).error());
    auto before = run_config_from_text(*text, this->config());
    if (!before) return std::unexpected(std::move(before).error());
    if (const auto difference = fixed_difference(*before, config))
      return no(fmt::format("{} holds a run of another config: {}", path_, *difference));
  }
  auto newest = latest_checkpoint(checkpoints());
  if (!newest) return std::unexpected(std::move(newest).error());
  if (*newest) {
    if ((*newest)->step >= config.run.steps) return RunStart::kFinished;
    auto manifest = read_checkpoint((*newest)->path, Verify::kSizes);
    if (!manifest) return std::unexpected(std::move(manifest).error());
    if (!manifest->optimizer_state)
      return no(
          fmt::format("{} can't be resumed: {} holds no optimizer state "
                      "(checkpoint.optimizer)",
                      path_, (*newest)->path));
  }
  SWARMLINE_TRY(make_folders(checkpoints()));
  SWARMLINE_TRY(make_folders(logs()));
  remove_address();
  std::error_code ignored;  // how it ended is over
  fs::remove(status(), ignored);
  SWARMLINE_TRY(write_text_file_atomically(this->config(), to_toml(config)));
  return begun ? RunStart::kResumes : RunStart::kNew;
}

Result<Address> RunFolder::read_address() const {
  auto text = read_text_file(address(), kAddressBytesMax);
  if (!text) {
    return fail(ErrorCode::kNotFound,
                fmt::format("no coordinator of {} is running (there is no {})", path_, address()));
  }
  while (!text->empty() && text->back() == '\n') text->pop_back();
  return parse_address(*text);
}

Result<void> RunFolder::write_address(const Address& bound) const {
  return write_text_file_atomically(address(), to_string(bound) + "\n");
}

void RunFolder::remove_address() const {
  std::error_code ignored;  // a stale address is found out by the next who connects
  fs::remove(address(), ignored);
}

Result<std::shared_ptr<LinkGuard>> RunFolder::owner_guard() const {
  if (!file_exists(join_string())) return nullptr;
  auto key = load_key(run_key());
  if (!key) return std::unexpected(std::move(key).error());
  // A tool that looks on for long sees the key change.
  return std::make_shared<OwnerGuard>(std::move(*key),
                                      [path = run_key()] { return load_key(path); });
}

std::optional<std::string> RunFolder::final_status() const {
  auto text = read_text_file(status(), kStatusBytesMax);
  if (!text) return std::nullopt;
  return std::move(*text);
}

namespace {

std::optional<std::string> newest_run() {
  std::optional<std::string> newest;
  fs::file_time_type newest_time;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(kRunsFolder, error)) {
    const RunFolder folder(entry.path().string());
    std::error_code no_time;
    const auto time = fs::last_write_time(folder.config(), no_time);
    if (no_time || (newest && time <= newest_time)) continue;
    newest = folder.path();
    newest_time = time;
  }
  return newest;
}

}  // namespace

Result<RunTarget> find_run(const std::string& text) {
  if (text.empty()) {
    const auto newest = newest_run();
    if (!newest) {
      return fail(ErrorCode::kUserMistake,
                  "there is no run under runs/ here; name a run folder or HOST:PORT");
    }
    return RunTarget{.address = std::nullopt, .folder = RunFolder(*newest)};
  }
  std::string path = text;
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  std::error_code error;
  if (fs::is_directory(path, error)) {
    if (!RunFolder(path).holds_a_run()) {
      return fail(ErrorCode::kUserMistake,
                  fmt::format("{} is no run folder (it has no config.toml)", path));
    }
    return RunTarget{.address = std::nullopt, .folder = RunFolder(path)};
  }
  if (path.starts_with(kJoinStringBegins) && path.find('@') != std::string::npos) {
    auto join = parse_join_string(path);
    if (!join) return std::unexpected(std::move(join).error());
    Address first = join->addresses.front();
    return RunTarget{
        .address = std::move(first),
        .folder = std::nullopt,
        .guard = std::make_shared<InviteGuard>(std::move(*join), AsioRuntime().wall_seconds())};
  }
  auto address = parse_address(path);
  if (!address) {
    return fail(ErrorCode::kUserMistake,
                fmt::format("{} is neither a run folder nor HOST:PORT", text));
  }
  return RunTarget{.address = std::move(*address), .folder = std::nullopt};
}

Result<RunFolder> find_run_folder(const std::string& text) {
  auto target = find_run(text);
  if (!target) return std::unexpected(std::move(target).error());
  if (target->folder) return *target->folder;
  return fail(ErrorCode::kUserMistake,
              fmt::format("{}: expected a run folder on this machine", text));
}

Result<Address> live_address(const RunTarget& target) {
  if (target.address) return *target.address;
  return target.folder->read_address();
}

Result<AdminDoor> admin_door(const RunTarget& target) {
  auto address = live_address(target);
  if (!address) return std::unexpected(std::move(address).error());
  auto guard = guard_of(target);
  if (!guard) return std::unexpected(std::move(guard).error());
  auto secret = target.folder ? target.folder->admin_secret() : Result<std::string>("");
  if (!secret) return std::unexpected(std::move(secret).error());
  return AdminDoor{std::move(*address), std::move(*guard), std::move(*secret)};
}

Result<std::shared_ptr<LinkGuard>> guard_of(const RunTarget& target) {
  if (target.folder) return target.folder->owner_guard();
  return target.guard;
}

}  // namespace swarmline
