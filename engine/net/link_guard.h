// Who may be at the other end of a link, for networks whose links are authenticated. Both ends show
// a key; then the dialling end says one thing, and the accepting end answers it. Only after that is
// the connection anybody's.
//   What:      a network asks it at each connection, dialled or accepted.
//   Ownership: the network holds it. Thread: control thread.
//   Errors:    what it refuses is told to the dialling end as a sentence, and ends the connection:
//              there it is kRefused, or, where the code is another one, kDeadline: to come again.
//   Bounds:    kLinkWordsMax bytes each way, kLinkVouchersMax beside the key; the network's
//              deadline for a handshake.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/result.h"
#include "engine/identity/identity.h"
#include "engine/net/network.h"

namespace swarmline {

inline constexpr std::size_t kLinkWordsMax = 4096;
inline constexpr std::size_t kLinkVouchersMax = 3072;

// What is known of the other end, and proven.
struct LinkFacts {
  KeyHash key;
  std::string public_key;  // raw, of that hash
  // Both ends of this one link have it and nobody else (RFC 9266): what is proven with it is proven
  // of no other link.
  std::string binding;
  std::string remote;         // for people
  std::string vouchers = {};  // what it says beside its key; nothing of it is proven
};

class LinkGuard {
 public:
  struct Admission {
    std::string as;      // Connection::admitted_as
    std::string answer;  // to the dialling end
  };
  using Verdict = std::function<void(Result<Admission>)>;

  virtual ~LinkGuard() = default;
  // This end's, and what is said beside it to who expects another key: kLinkVouchersMax bytes of
  // ASCII. Both are asked for at each link.
  virtual const Identity& identity() const = 0;
  virtual std::string vouchers() const { return {}; }
  // The key that must be at that address; none: what the other end answers is judged. Asked before
  // anything of this end but a greeting has left.
  virtual std::optional<KeyHash> pinned(const Address& dialled) = 0;
  // Whether the key that is there may be in the place of the pinned one.
  virtual bool vouched(const KeyHash& /*pinned*/, const KeyHash& /*shown*/,
                       const std::string& /*vouchers*/) const {
    return false;
  }
  virtual std::string opening(const Address& dialled, const LinkFacts& facts) = 0;
  // What the end that was dialled is, by its answer.
  virtual Result<std::string> judge(const Address& dialled, const LinkFacts& facts,
                                    const std::string& answer) = 0;
  // An end that dialled this one. `verdict` is called once, here or later, or never.
  virtual void admit(const LinkFacts& facts, const std::string& opening, Verdict verdict) = 0;
};

// Whether the end that was dialled may show that key: kCorrupt with a sentence. `pinned`: as the
// guard said of the address.
Result<void> check_shown_key(const LinkGuard& guard, const std::optional<KeyHash>& pinned,
                             const KeyHash& shown, const std::string& vouchers);

}  // namespace swarmline
