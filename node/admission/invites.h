// Invites to a run: what a join string's id and secret are good for, and who came by them. Pure.
//   What:      a book is read from the lines of a run's keys/invites.jsonl (of the format that
//              docs/formats/invites.md tells), which are only ever added to.
//   Proof:     HMAC-SHA256 of the link's binding, keyed by the secret: the secret itself never
//              travels, and what was said on one link is worth nothing on another.
//   Time:      seconds since 1970 by the wall clock; kClockSkew in favour of whoever comes.
//   Who is in: a key that was admitted stays so when its invite expires, is used up or revoked, as
//              long as it proves the secret: invites are for newcomers. Who has a seat shows that.
//   The end:   kInviteKeptSeconds after an invite is over for newcomers it is over for who came by
//              it, too, and its lines go when another one is made; of those that are over,
//              kInvitesOverMax stay. Nothing ever makes an id good again: whoever proves one that
//              is gone is refused as one that never was.
//   Thread:    any, one at a time.
//   Errors:    kCorrupt of lines that are none; kRefused with a sentence for who is not admitted.
//   Bounds:    kInvitesMax, kInviteFileBytesMax.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/identity/key_hash.h"

namespace swarmline {

inline constexpr double kClockSkewSeconds = 60;
inline constexpr double kInviteLifeSeconds = 24 * 3600;  // unless its maker says otherwise
inline constexpr double kInviteKeptSeconds = 7 * 24 * 3600.0;
inline constexpr std::size_t kInvitesMax = 10'000;
inline constexpr std::size_t kInvitesOverMax = 1000;
inline constexpr std::uint64_t kInviteFileBytesMax = 64 << 20;
inline constexpr int kInvitesFormat = 1;

// What an invite is good for: to serve the run, to look at it, to steer it.
enum class InviteScope : std::uint8_t { kPeer, kObserver, kAdmin };
std::string_view to_string(InviteScope scope);
std::optional<InviteScope> parse_invite_scope(std::string_view text);

struct Invite {
  std::string id;      // kInviteIdBytes
  std::string secret;  // kInviteSecretBytes
  InviteScope scope = InviteScope::kPeer;
  double made = 0;
  double expires = 0;
  std::uint64_t uses_max = 0;  // 0: any number
  std::optional<double> revoked;
  std::set<KeyHash> admitted;
  double admitted_last = 0;

  // Good for another newcomer.
  bool is_open(double now) const;
  // Since when it is not; none: it is.
  std::optional<double> over_since(double now) const;
};

Invite make_invite(InviteScope scope, double now, double life_seconds, std::uint64_t uses_max);
std::string invite_proof(std::string_view secret, std::string_view binding);

class InviteBook {
 public:
  static Result<InviteBook> parse(std::string_view lines);

  struct Admitted {
    InviteScope scope = InviteScope::kPeer;
    std::string line;  // to be added before anybody relies on it; empty: nothing is new
  };
  Result<Admitted> admit(std::string_view id, std::string_view proof, std::string_view binding,
                         const KeyHash& key, double now) const;

  const std::vector<Invite>& invites() const { return invites_; }  // oldest first
  const Invite* find(std::string_view id) const;
  // The one that is open longest, of that scope and without a count.
  const Invite* newest_open(InviteScope scope, double now) const;

  // ---- Lines ----
  // The lines of a book without those that are over for good, and with another invite. kRefused
  // where kInvitesMax are still good.
  Result<std::string> with(const Invite& another, double now) const;
  static std::string line_of(const Invite& invite);
  // kUserMistake where there is no such invite; empty where it was revoked before.
  Result<std::string> line_to_revoke(std::string_view id, double now) const;

 private:
  Result<void> take(std::string_view line);
  std::vector<Invite> invites_;
  std::map<std::string, std::size_t, std::less<>> by_id_;
};

}  // namespace swarmline
