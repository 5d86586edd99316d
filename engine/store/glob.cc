// glob_files(): fnmatch(3) per path component, plus `**` for any number of folders.

#include <algorithm>
#include <filesystem>
#include <fnmatch.h>
#include <system_error>

#include <fmt/format.h>

#include "engine/store/files.h"

namespace swarmline {

namespace {

namespace fs = std::filesystem;

constexpr int kGlobDepthMax = 64;  // folders below the one where a pattern starts

class GlobWalk {
 public:
  GlobWalk(const std::string& pattern, std::size_t files_max)
      : pattern_(pattern), files_max_(files_max) {
    for (const fs::path& part : fs::path(pattern)) {
      if (part.has_root_directory()) continue;
      if (const std::string text = part.string(); !text.empty()) parts_.push_back(text);
    }
    if (!parts_.empty() && parts_.back() == "**") parts_.push_back("*");  // every file below
  }

  Result<std::vector<std::string>> run() {
    SWARMLINE_TRY(visit(fs::path(pattern_).is_absolute() ? fs::path("/") : fs::path(), 0, 0));
    std::ranges::sort(found_);
    const auto rest = std::ranges::unique(found_);  // `**/**` reaches a file twice
    found_.erase(rest.begin(), rest.end());
    return std::move(found_);
  }

 private:
  Result<void> visit(const fs::path& folder, std::size_t part, int depth) {
    if (part == parts_.size() || depth > kGlobDepthMax) return {};
    if (!has_wildcard(parts_[part])) return step(folder / parts_[part], part + 1, depth);
    const bool descends = parts_[part] == "**";
    if (descends) SWARMLINE_TRY(visit(folder, part + 1, depth));

    std::error_code error;  // an unreadable or absent folder matches nothing, as in a shell
    fs::directory_iterator entry(folder.empty() ? fs::path(".") : folder, error);
    while (!error && entry != fs::directory_iterator()) {
      const std::string name = entry->path().filename().string();
      const fs::path path = folder / name;
      std::error_code ignored;
      if (descends) {
        // Links to folders are not followed: they may form a circle.
        if (name.front() != '.' && entry->is_directory(ignored) && !entry->is_symlink(ignored)) {
          SWARMLINE_TRY(visit(path, part, depth + 1));
        }
      } else if (::fnmatch(parts_[part].c_str(), name.c_str(), FNM_PERIOD) == 0) {
        SWARMLINE_TRY(step(path, part + 1, depth));
      }
      entry.increment(error);
    }
    return {};
  }

  Result<void> step(const fs::path& path, std::size_t part, int depth) {
    if (part < parts_.size()) return visit(path, part, depth + 1);
    std::error_code ignored;
    if (!fs::is_regular_file(path, ignored)) return {};
    found_.push_back(path.string());
    if (found_.size() > files_max_) {
      return fail(ErrorCode::kRefused, fmt::format("\"{}\" matches more than the {} files allowed",
                                                   pattern_, files_max_));
    }
    return {};
  }

  const std::string& pattern_;
  std::size_t files_max_;
  std::vector<std::string> parts_;
  std::vector<std::string> found_;
};

}  // namespace

bool has_wildcard(const std::string& pattern) {
  return pattern.find_first_of("*?[") != std::string::npos;
}

Result<std::vector<std::string>> glob_files(const std::string& pattern, std::size_t files_max) {
  return GlobWalk(pattern, files_max).run();
}

}  // namespace swarmline
