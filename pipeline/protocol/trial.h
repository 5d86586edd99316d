// A trial of a link to a coordinator, for a machine that may join its run (wire::TrialRequest and
// TrialReply): what both ends of it agree on. No message of a run's protocol: who joins never sends
// it, and its kinds are numbered apart from those of message_kinds.h.
#pragma once

#include <cstdint>

#include "base/units.h"
#include "pipeline/protocol/message_kinds.h"

namespace swarmline {

inline constexpr auto kTrialRequest = static_cast<MessageKind>(120);
inline constexpr auto kTrialReply = static_cast<MessageKind>(121);
inline constexpr std::uint32_t kTrialFillerBytesMax = 32 * kKiB;  // of a request, and of an answer

}  // namespace swarmline
