#include "node/admission/run_guard.h"

#include <utility>

#include <fmt/format.h>

#include "base/marks.h"
#include "engine/store/secret_file.h"
#include "node/admission/seat_certificate.h"

namespace swarmline {
namespace {

constexpr std::string_view kJoin = "join ";
constexpr std::size_t kProofBytes = 32;

struct Claim {
  std::string id;
  std::string proof;
};

Result<Claim> parse_claim(std::string_view opening) {
  const auto none = fail(ErrorCode::kRefused,
                         "it has no invite; join by the string that the run's coordinator prints");
  if (!opening.starts_with(kJoin)) return none;
  opening.remove_prefix(kJoin.size());
  const std::size_t space = std::min(opening.find(' '), opening.size());
  auto id = from_hex(opening.substr(0, space), kInviteIdBytes);
  auto proof = from_hex(opening.substr(std::min(space + 1, opening.size())), kProofBytes);
  if (!id || !proof) return none;
  return Claim{.id = std::move(*id), .proof = std::move(*proof)};
}

// Another process may add to the file, too: what it says now counts.
Result<InviteScope> admit_by_file(const std::string& path, const Claim& claim,
                                  const LinkFacts& facts, double now) {
  InviteScope scope = InviteScope::kPeer;
  const auto line = [&](std::string_view so_far) -> Result<std::string> {
    const auto book = InviteBook::parse(so_far);
    if (!book) return std::unexpected(book.error());
    auto admitted = book->admit(claim.id, claim.proof, facts.binding, facts.key, now);
    if (!admitted) return std::unexpected(std::move(admitted).error());
    scope = admitted->scope;
    return std::move(admitted->line);
  };
  SWARMLINE_TRY(append_secret_line(path, kInviteFileBytesMax, line));
  return scope;
}

}  // namespace

std::string invite_opening(const std::string& id, const std::string& secret,
                           const LinkFacts& facts) {
  return fmt::format("{}{} {}", kJoin, to_hex(as_bytes(id)),
                     to_hex(as_bytes(invite_proof(secret, facts.binding))));
}

std::string InviteGuard::opening(const Address&, const LinkFacts& facts) {
  return invite_opening(join_.invite_id, join_.secret, facts);
}

RunGuard::RunGuard(Identity run_key, std::string invites, Runtime& runtime, Device& worker)
    : run_key_(std::move(run_key)),
      invites_(std::move(invites)),
      runtime_(runtime),
      worker_(worker) {}

Result<std::string> RunGuard::judge(const Address&, const LinkFacts& facts,
                                    const std::string& answer) {
  if (answer.empty()) return std::string(kNewcomerLink);
  const auto seat =
      check_seat_certificate(answer, run_key_.public_key(), facts.key, runtime_.wall_seconds());
  if (!seat) return std::unexpected(Error{ErrorCode::kCorrupt, seat.error().what});
  return to_string(seat->seat);
}

void RunGuard::admit(const LinkFacts& facts, const std::string& opening, Verdict verdict) {
  if (facts.key == run_key_.hash())
    return verdict(Admission{.as = std::string(kRunLink), .answer = {}});
  auto claim = parse_claim(opening);
  if (!claim) {
    SWARMLINE_MARK("guard.no_invite");
    return verdict(std::unexpected(std::move(claim).error()));
  }
  auto scope = std::make_shared<Result<InviteScope>>(fail(ErrorCode::kIo, "not looked up"));
  auto shared_verdict = std::make_shared<Verdict>(std::move(verdict));
  const auto submitted = worker_.submit(
      {.estimate = {},
       .body = [scope, path = invites_, claim = std::move(*claim), facts,
                now = runtime_.wall_seconds()]() -> Result<void> {
         *scope = admit_by_file(path, claim, facts, now);
         return {};
       }},
      [scope, shared_verdict](const JobReport&) {
        if (!*scope) {
          SWARMLINE_MARK("guard.invite_refused");
          return (*shared_verdict)(std::unexpected(scope->error()));
        }
        (*shared_verdict)(Admission{.as = std::string(to_string(**scope)), .answer = {}});
      });
  if (!submitted)
    (*shared_verdict)(fail(ErrorCode::kIo, "too many come at once; it may come again"));
}

std::string RunGuard::certify(const std::string& run_id, const Seat& seat,
                              const KeyHash& key) const {
  return to_text({.run_id = run_id,
                  .seat = seat,
                  .key = key,
                  .expires = runtime_.wall_seconds() + kSeatCertificateSeconds},
                 run_key_);
}

}  // namespace swarmline
