// How processes on a run's machine get at its coordinator, and others into the run: the run's key,
// its guard, its invites and the string that joins, all in the run folder's keys/ (mode 0600).
//   Thread: any; blocking (files). Errors: kUserMistake, kIo, as sentences.
//   Bounds: kJoinStringBytesMax; those of node/admission.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/config/run_config.h"
#include "engine/device/device.h"
#include "engine/runtime/runtime.h"
#include "node/admission/join_string.h"
#include "node/admission/run_guard.h"
#include "node/run_folder.h"

namespace swarmline {

// For its owner alone; made if need be.
Result<void> make_keys_folder(const RunFolder& folder);
// Of a coordinator whose run, of that name, wants keys: its key is made at its first start.
Result<std::shared_ptr<RunGuard>> open_run_guard(const RunFolder& folder, const std::string& run,
                                                 Runtime& runtime, Device& worker);
// Where other machines reach a coordinator that listens at `bound`.
std::vector<Address> reached_at(const RunConfig& config, const Address& bound);

// ---- Invites ----
Result<InviteBook> read_invites(const RunFolder& folder);
// Those that are over for good go.
Result<void> add_invite(const RunFolder& folder, const Invite& invite);
Result<std::string> join_string_of(const RunFolder& folder, const std::string& run,
                                   const Invite& invite, std::vector<Address> addresses);
// The string that any peer joins by for a while: of an invite that is good for at least half of
// kInviteLifeSeconds, made if need be. It is left in the run folder, too.
Result<std::string> leave_join_string(const RunFolder& folder, const RunConfig& config,
                                      const Address& bound, double now);
// Of a coordinator whose links are plain.
void remove_join_string(const RunFolder& folder);

// ---- Joining ----
struct JoinTarget {
  std::vector<Address> coordinators;  // at least one
  std::optional<JoinString> invite;   // none: by address alone
};
// "swarm1...", HOST:PORT[,...], "-" (a line of the standard input), or a file that holds one of the
// first two.
Result<JoinTarget> parse_join(const std::string& text);

}  // namespace swarmline
