#include "node/run_retention.h"

#include <algorithm>
#include <string_view>
#include <variant>

#include "base/log.h"
#include "engine/store/files.h"
#include "engine/store/log_reader.h"

namespace swarmline {

std::map<std::uint64_t, double> held_out_losses(const std::string& log_path) {
  std::map<std::uint64_t, double> losses;
  const auto file = MappedFile::open(log_path);  // it only grows
  if (!file) {
    log(LogLevel::kWarn, "held-out losses are not known: {}", file.error().what);
    return losses;
  }
  std::string_view rest = as_text((*file)->bytes());
  for (std::size_t end = rest.find('\n'); end != rest.npos; end = rest.find('\n')) {
    const std::string_view text = rest.substr(0, end);
    rest.remove_prefix(end + 1);
    if (text.find("\"eval\"") == text.npos) continue;  // most lines are of steps, and long
    const auto entry = read_log_line(text);
    const auto* const eval = entry ? std::get_if<LoggedEval>(&*entry) : nullptr;
    if (eval == nullptr) continue;
    // Those from there on were of before a return to a checkpoint.
    losses.erase(losses.lower_bound(eval->version), losses.end());
    losses[eval->version] = eval->loss;
  }
  return losses;
}

Retention retention_of(const CheckpointSection& config, const std::string& log_path) {
  Retention retention{.newest = std::max(config.keep, 1U),
                      .every_steps = config.keep_every,
                      .best = config.keep_best,
                      .held_out = {}};
  if (retention.best > 0) retention.held_out = held_out_losses(log_path);
  return retention;
}

}  // namespace swarmline
