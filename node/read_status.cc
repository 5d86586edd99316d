#include "node/read_status.h"

#include <optional>
#include <utility>

#include "node/admin_client.h"
#include "node/dead_run.h"

namespace swarmline {

std::string admin_secret_of(const RunTarget& target) {
  return target.folder ? target.folder->admin_secret().value_or("") : "";
}

Result<std::string> left_status(const RunFolder& folder, const Error& unanswered) {
  if (auto ended = folder.final_status()) return std::move(*ended);
  if (unanswered.code != ErrorCode::kPeerGone && unanswered.code != ErrorCode::kNotFound)
    return std::unexpected(unanswered);  // it may be slow
  auto died = status_of_dead_run(folder);
  if (!died) return std::unexpected(unanswered);
  return to_json(*died);
}

Result<std::string> read_status(const RunTarget& target) {
  auto address = live_address(target);
  auto guard = guard_of(target);
  if (!guard) return std::unexpected(std::move(guard).error());
  Result<std::string> answer =
      address ? ask_status(*address, std::move(*guard), admin_secret_of(target))
              : Result<std::string>(std::unexpected(address.error()));
  if (!answer && target.folder) return left_status(*target.folder, answer.error());
  return answer;
}

}  // namespace swarmline
