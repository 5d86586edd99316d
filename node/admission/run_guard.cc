#include "node/admission/run_guard.h"

#include <utility>

#include <fmt/format.h>

#include "base/marks.h"
#include "node/admission/seat_certificate.h"

namespace swarmline {
namespace {

constexpr std::string_view kJoin = "join ";
constexpr std::size_t kProofBytes = 32;

struct Claim {
  std::string id;
  std::string proof;
};

// What stands behind the claim's line: the seat that it says it has.
std::string seat_in(std::string_view opening) {
  const std::size_t end = opening.find('\n');
  return end == std::string_view::npos ? std::string() : std::string(opening.substr(end + 1));
}

Result<Claim> parse_claim(std::string_view opening) {
  opening = opening.substr(0, opening.find('\n'));
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
Result<InviteScope> admit_by(const AddInviteLine& invites, const Claim& claim,
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
  SWARMLINE_TRY(invites(line));
  return scope;
}

}  // namespace

AddInviteLine to_invite_file(std::string path) {
  return [path = std::move(path)](const NextLine& line) {
    return append_secret_line(path, kInviteFileBytesMax, line);
  };
}

std::string invite_opening(const std::string& id, const std::string& secret, const LinkFacts& facts,
                           const std::string& seat) {
  const std::string claim = fmt::format("{}{} {}", kJoin, to_hex(as_bytes(id)),
                                        to_hex(as_bytes(invite_proof(secret, facts.binding))));
  return seat.empty() ? claim : claim + '\n' + seat;
}

std::string InviteGuard::opening(const Address&, const LinkFacts& facts) {
  return invite_opening(join_.invite_id, join_.secret, facts);
}

bool InviteGuard::vouched(const KeyHash& pinned, const KeyHash& shown,
                          const std::string& vouchers) const {
  return RunTrust(join_.run, pinned).vouches(shown, vouchers, now_);
}

RunGuard::RunGuard(RunKey run_key, std::string run, AddInviteLine invites, Runtime& runtime,
                   Device& worker)
    : run_key_(std::move(run_key)),
      run_(std::move(run)),
      invites_(std::move(invites)),
      runtime_(runtime),
      worker_(worker),
      trust_(run_, run_key_.identity.hash()) {
  trust_own_key();
}

void RunGuard::take_key(RunKey next) {
  run_key_ = std::move(next);
  trust_ = RunTrust(run_, run_key_.identity.hash());
  trust_own_key();
}

void RunGuard::trust_own_key() {
  trust_.follow(run_key_.identity.public_key(), {}, runtime_.wall_seconds());
  trust_.hear_of_former(vouchers(), runtime_.wall_seconds());
}

std::string RunGuard::vouchers() const {
  return vouchers_of(run_key_.handovers, runtime_.wall_seconds());
}

Result<std::string> RunGuard::judge(const Address&, const LinkFacts& facts,
                                    const std::string& answer) {
  if (answer.empty()) return std::string(kNewcomerLink);
  RunTrust trust = trust_;  // nobody tells a run which key is its own
  const auto seat = check_shown_seat(answer, trust, facts.key, runtime_.wall_seconds());
  if (!seat) return std::unexpected(Error{ErrorCode::kCorrupt, seat.error().what});
  return to_string(seat->seat);
}

void RunGuard::admit(const LinkFacts& facts, const std::string& opening, Verdict verdict) {
  if (facts.key == run_key_.identity.hash())
    return verdict(Admission{.as = std::string(kRunLink), .answer = {}});
  RunTrust trust = trust_;
  if (const std::string seat = seat_in(opening);
      !seat.empty() && check_shown_seat(seat, trust, facts.key, runtime_.wall_seconds())) {
    SWARMLINE_MARK("guard.came_by_its_seat");
    return verdict(Admission{.as = std::string(to_string(InviteScope::kPeer)), .answer = {}});
  }
  auto claim = parse_claim(opening);
  if (!claim) {
    SWARMLINE_MARK("guard.no_invite");
    return verdict(std::unexpected(std::move(claim).error()));
  }
  auto scope = std::make_shared<Result<InviteScope>>(fail(ErrorCode::kIo, "not looked up"));
  auto shared_verdict = std::make_shared<Verdict>(std::move(verdict));
  const auto submitted = worker_.submit(
      {.estimate = {},
       .body = [scope, invites = invites_, claim = std::move(*claim), facts,
                now = runtime_.wall_seconds()]() -> Result<void> {
         *scope = admit_by(invites, claim, facts, now);
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

std::string RunGuard::certify(const std::string& run_id, const Seat& seat, const KeyHash& key) {
  const SeatCertificate certificate{.run_id = run_id,
                                    .seat = seat,
                                    .key = key,
                                    .expires = runtime_.wall_seconds() + kSeatCertificateSeconds};
  certified_.gave(seat, run_key_.identity.hash(), certificate.expires);
  return vouchers() + to_text(certificate, run_key_.identity);
}

std::string RunGuard::certify_anew(const std::string& run_id, const Seat& seat,
                                   const KeyHash& key) {
  if (!certified_.is_due(seat, run_key_.identity.hash(), runtime_.wall_seconds())) return {};
  return certify(run_id, seat, key);
}

}  // namespace swarmline
