#include "node/object_store/checkpoint_store.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <map>
#include <sys/mman.h>
#include <unistd.h>

#include <fmt/format.h>

#include "base/printable.h"
#include "engine/store/files.h"
#include "engine/store/json_value.h"
#include "node/child_process.h"
#include "node/object_store/checkpoint_store_text.h"

namespace swarmline {
namespace {

namespace fs = std::filesystem;

constexpr Duration kLook = std::chrono::milliseconds(50);
constexpr std::size_t kErrorBytesShown = 500;
constexpr int kUserMistakeExit = 2;                        // of checkpoint_store.py
constexpr int kNoSuchProgram = 127, kNoProgramFile = 126;  // of env
constexpr const char* kEnv = "/usr/bin/env";               // finds programs as a shell does
constexpr std::string_view kSchemes[] = {"s3://", "gs://"};
constexpr std::string_view kStepPrefix = "step-";

// A file in memory, for what a child writes.
class Scratch {
 public:
  Scratch() : number_(::memfd_create("answer", MFD_CLOEXEC)) {}
  ~Scratch() {
    if (number_ >= 0) ::close(number_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  int number() const { return number_; }
  std::string path() const { return fmt::format("/proc/self/fd/{}", number_); }
  // It is read from its beginning then.
  Result<void> write(std::string_view text) const {
    if (::pwrite(number_, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()))
      return {};
    return fail(ErrorCode::kIo, std::strerror(errno));
  }
  Result<std::string> read(std::uint64_t bytes_max) const {
    const off_t size = ::lseek(number_, 0, SEEK_END);
    if (size < 0 || static_cast<std::uint64_t>(size) > bytes_max)
      return fail(ErrorCode::kCorrupt, fmt::format("an answer of {} bytes", size));
    std::string text(static_cast<std::size_t>(size), '\0');
    std::size_t got = 0;
    while (got < text.size()) {
      const ssize_t more =
          ::pread(number_, text.data() + got, text.size() - got, static_cast<off_t>(got));
      if (more <= 0) return fail(ErrorCode::kIo, std::strerror(errno));
      got += static_cast<std::size_t>(more);
    }
    return text;
  }

 private:
  int number_;
};

std::string last_line(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  text.erase(0, text.rfind('\n') + 1);
  return text.empty() ? "it said nothing" : printable(text, kErrorBytesShown);
}

Result<std::vector<JsonValue>> lines_of(std::string_view text) {
  std::vector<JsonValue> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    auto line = parse_json(text.substr(0, end));
    if (!line) return std::unexpected(std::move(line).error());
    lines.push_back(std::move(*line));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::vector<PartFile> parts_of(const Manifest& manifest) {
  std::vector<PartFile> parts;
  for (const SavedStage& stage : manifest.stages)
    parts.insert(parts.end(), stage.parts.begin(), stage.parts.end());
  return parts;
}

// By the sizes of its files.
std::string damage_by_size(const Manifest& manifest, const JsonValue& files) {
  std::map<std::string, std::uint64_t> there;
  for (const JsonValue& file : files.items) there[file["file"].string] = file["bytes"].count();
  for (const PartFile& part : parts_of(manifest)) {
    const auto found = there.find(part.file);
    if (found == there.end()) return part.file + " is not there";
    if (found->second != part.bytes)
      return fmt::format("{} has {} bytes, and the manifest says {}", part.file, found->second,
                         part.bytes);
  }
  return {};
}

StoredCheckpoint stored_from(const JsonValue& line, const std::string& shown) {
  StoredCheckpoint stored;
  stored.entry.path = line["name"].string;
  stored.wall_seconds = line["wall_seconds"].number_or(0);
  for (const JsonValue& file : line["files"].items) stored.bytes += file["bytes"].count();
  stored.unfinished = line["manifest"].string.empty();
  if (stored.unfinished) {
    stored.damage = "it has no manifest: it is being copied, or was left so";
    return stored;
  }
  auto manifest =
      parse_manifest(line["manifest"].string,
                     fmt::format("{}/{}/manifest.json", shown, printable(stored.entry.path, 64)));
  if (!manifest) {
    stored.damage = manifest.error().what;
    return stored;
  }
  stored.manifest = std::move(*manifest);
  stored.entry.era = stored.manifest.era;
  stored.entry.step = stored.manifest.step;
  if (stored.entry.path != fmt::format("{}{}", kStepPrefix, stored.entry.step))
    stored.damage = fmt::format("its manifest is of step {}", stored.entry.step);
  else
    stored.damage = damage_by_size(stored.manifest, line["files"]);
  return stored;
}

Result<std::uint64_t> bytes_of_folder(const std::string& path) {
  std::uint64_t bytes = 0;
  std::error_code error;
  for (const auto& file : fs::directory_iterator(path, error)) bytes += file.file_size(error);
  if (error) return fail(ErrorCode::kIo, fmt::format("cannot read {}: {}", path, error.message()));
  return bytes;
}

}  // namespace

bool is_store_url(std::string_view text) {
  return std::ranges::any_of(kSchemes, [&](std::string_view scheme) {
    return text.starts_with(scheme) && text.size() > scheme.size() && text[scheme.size()] != '/';
  });
}

CheckpointStore::Options CheckpointStore::of_run(const std::string& store, const std::string& run,
                                                 const std::string& python) {
  const std::size_t options = std::min(store.find('?'), store.size());
  std::string url = store.substr(0, options);
  while (url.ends_with('/')) url.pop_back();
  return {.url = fmt::format("{}/{}{}", url, run, store.substr(options)), .python = python};
}

std::string CheckpointStore::shown() const {
  std::string url = options_.url.substr(0, options_.url.find('?'));
  const std::size_t place = url.find("://") + 3, at = url.find('@');
  if (at < url.find('/', place)) url.erase(place, at + 1 - place);  // KEY:SECRET@
  return printable(url, kErrorBytesShown);
}

Result<std::string> CheckpointStore::request(std::string_view verb, std::vector<std::string> words,
                                             std::uint64_t bytes) const {
  const Scratch question, answer, complaint;
  if (question.number() < 0 || answer.number() < 0 || complaint.number() < 0)
    return fail(ErrorCode::kIo, fmt::format("no file in memory: {}", std::strerror(errno)));
  SWARMLINE_TRY(question.write(options_.url));
  words.insert(words.begin(),
               {options_.python, "-c", std::string(kCheckpointStoreProgram), std::string(verb)});
  // Not dying with its parent: that is a thread, which may end before it.
  auto child = ChildProcess::start({.program = kEnv,
                                    .arguments = std::move(words),
                                    .output_file = complaint.path(),
                                    .output = answer.number(),
                                    .input = question.number(),
                                    .dies_with_parent = false});
  if (!child) return std::unexpected(std::move(child).error());
  const Duration most =
      from_seconds(kRequestSecondsMin + static_cast<double>(bytes) / kBytesPerSecondMin);
  for (Duration waited{}; !child->wait(kLook); waited += kLook) {
    if (options_.stop && *options_.stop)
      return fail(ErrorCode::kStopped, fmt::format("{} of {} was stopped", verb, shown()));
    if (waited > most)
      return fail(ErrorCode::kIo, fmt::format("{}: {} took too long", shown(), verb));
  }
  const int code = *child->poll();
  if (code == 0) return answer.read(kAnswerBytesMax);
  if (code == kNoSuchProgram || code == kNoProgramFile)
    return fail(
        ErrorCode::kUserMistake,
        fmt::format("{}: found no program {}, expected a Python with pyarrow, which reaches "
                    "object storage; install it, or name another by checkpoint.python",
                    shown(), printable(options_.python, kErrorBytesShown)));
  const auto said = complaint.read(kAnswerBytesMax);
  return fail(code == kUserMistakeExit ? ErrorCode::kUserMistake : ErrorCode::kIo,
              last_line(said.value_or("")));
}

Result<std::vector<StoredCheckpoint>> CheckpointStore::list() const {
  const auto answer = request("list", {});
  if (!answer) return std::unexpected(answer.error());
  const auto lines = lines_of(*answer);
  if (!lines) return std::unexpected(lines.error());
  std::vector<StoredCheckpoint> stored;
  for (const JsonValue& line : *lines) stored.push_back(stored_from(line, shown()));
  std::ranges::sort(stored, {}, [](const StoredCheckpoint& one) {
    return std::pair(one.entry.era, one.entry.step);
  });
  return stored;
}

Result<void> CheckpointStore::push(const std::string& path) const {
  const auto bytes = bytes_of_folder(path);
  if (!bytes) return std::unexpected(bytes.error());
  const auto pushed = request("push", {fs::path(path).filename().string(), path}, *bytes);
  if (!pushed) return std::unexpected(pushed.error());
  return {};
}

Result<std::string> CheckpointStore::pull(const StoredCheckpoint& stored,
                                          const std::string& checkpoints_folder) const {
  const std::string target = checkpoint_path(checkpoints_folder, stored.entry.step);
  const std::string partial =
      partial_checkpoint_path(checkpoints_folder, stored.entry.step, stored.entry.era);
  SWARMLINE_TRY(make_folders(checkpoints_folder));
  SWARMLINE_TRY(remove_folder(partial));
  SWARMLINE_TRY(make_folders(partial));
  const auto pulled = [&]() -> Result<void> {
    const auto fetched = request("pull", {stored.entry.path, partial}, stored.bytes);
    if (!fetched) return std::unexpected(fetched.error());
    const auto whole = read_checkpoint(partial, Verify::kContents);
    if (!whole) return std::unexpected(whole.error());
    return replace_folder(partial, target);
  }();
  if (pulled) return target;
  if (const auto removed = remove_folder(partial); !removed)
    return std::unexpected(removed.error());
  return std::unexpected(pulled.error());
}

Result<std::string> CheckpointStore::find_damage(const StoredCheckpoint& stored) const {
  if (!stored.damage.empty()) return stored.damage;
  const auto answer = request("digest", {stored.entry.path}, stored.bytes);
  if (!answer) return std::unexpected(answer.error());
  const auto lines = lines_of(*answer);
  if (!lines) return std::unexpected(lines.error());
  for (const PartFile& part : parts_of(stored.manifest)) {
    const auto line = std::ranges::find_if(
        *lines, [&](const JsonValue& one) { return one["file"].string == part.file; });
    if (line == lines->end()) return part.file + " is not there";
    if ((*line)["bytes"].count() != part.bytes || (*line)["sha256"].string != part.sha256)
      return part.file + " is damaged: its SHA-256 is not the manifest's";
  }
  return std::string();
}

Result<void> CheckpointStore::remove(const StoredCheckpoint& stored) const {
  const auto removed = request("remove", {stored.entry.path});
  if (!removed) return std::unexpected(removed.error());
  return {};
}

}  // namespace swarmline
