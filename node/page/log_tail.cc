#include "node/page/log_tail.h"

#include "engine/store/files.h"

namespace swarmline {

Result<bool> LogTail::read(const std::function<void(std::string_view line)>& take,
                           const std::atomic<bool>* stop) {
  auto file = MappedFile::open(path_);  // it only grows
  if (!file) return std::unexpected(std::move(file).error());
  const std::string_view all(reinterpret_cast<const char*>((*file)->bytes().data()),
                             (*file)->bytes().size());
  const bool same = all.size() >= offset_;
  if (!same) offset_ = 0;
  std::string_view rest = all.substr(offset_);
  if (offset_ == 0 && rest.size() > kLogTailBytesMax) {
    rest.remove_prefix(rest.size() - kLogTailBytesMax);
    rest.remove_prefix(std::min(rest.find('\n') + 1, rest.size()));
  }
  for (std::size_t end = rest.find('\n'); end != rest.npos; end = rest.find('\n')) {
    if (stop != nullptr && stop->load()) break;
    take(rest.substr(0, end));
    rest.remove_prefix(end + 1);
  }
  offset_ = all.size() - rest.size();
  return same;
}

}  // namespace swarmline
