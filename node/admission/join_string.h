// The one string that joins a run: swarm1WORD@HOST:PORT[,HOST:PORT]. WORD is base32 (RFC 4648,
// lower case, unpadded) of the run's name, the hash of its key, an invite's id and secret, and a
// checksum over all of it, addresses included: one that was changed on its way is no join string.
//   Thread: pure. Errors: kUserMistake, one sentence that says what is wrong with it; the secret is
//           in none. Bounds: kJoinStringBytesMax, kJoinAddressesMax, kRunNameBytesMax.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/identity/key_hash.h"
#include "engine/net/network.h"

namespace swarmline {

inline constexpr std::size_t kInviteIdBytes = 8;       // random; public
inline constexpr std::size_t kInviteSecretBytes = 16;  // random
inline constexpr std::size_t kJoinStringBytesMax = 4096;
inline constexpr std::size_t kJoinAddressesMax = 8;
inline constexpr std::size_t kRunNameBytesMax = 200;
inline constexpr std::string_view kJoinStringBegins = "swarm1";

struct JoinString {
  std::string run;  // its name, for people; printable, without spaces
  KeyHash run_key;
  std::string invite_id;           // kInviteIdBytes
  std::string secret;              // kInviteSecretBytes
  std::vector<Address> addresses;  // of its coordinators; at least one
  bool operator==(const JoinString&) const = default;
};

// kUserMistake where no string can hold it.
Result<std::string> to_text(const JoinString& join);
Result<JoinString> parse_join_string(std::string_view text);

}  // namespace swarmline
