#include "node/admission/peer_guard.h"

#include <algorithm>
#include <utility>

#include "base/marks.h"
#include "node/admission/run_guard.h"
#include "node/admission/seat_certificate.h"

namespace swarmline {
namespace {

// Another link has told of the next key while this one began.
std::unexpected<Error> changed_meanwhile() {
  SWARMLINE_MARK("guard.key_changed_meanwhile");
  return fail(ErrorCode::kDeadline, "the run has another key by now");
}

}  // namespace

PeerGuard::PeerGuard(Identity own, JoinString join, Runtime& runtime)
    : own_(std::move(own)),
      join_(std::move(join)),
      runtime_(runtime),
      trust_(join_.run, join_.run_key) {}

void PeerGuard::take_certificate(const std::string& certificate) {
  certificate_ = certificate;
  trust_.learn(certificate_, runtime_.wall_seconds());
  trust_.hear_of_former(certificate_, runtime_.wall_seconds());
}

std::optional<KeyHash> PeerGuard::pinned(const Address& dialled) {
  const bool of_run = std::ranges::find(join_.addresses, dialled) != join_.addresses.end();
  return of_run ? std::optional(trust_.key()) : std::nullopt;
}

bool PeerGuard::vouched(const KeyHash& pinned, const KeyHash& shown,
                        const std::string& vouchers) const {
  if (shown == trust_.key()) return true;  // another link has told meanwhile
  return pinned == trust_.key() && trust_.vouches(shown, vouchers, runtime_.wall_seconds());
}

bool PeerGuard::is_run(const LinkFacts& facts) {
  return trust_.follow(facts.public_key, facts.vouchers, runtime_.wall_seconds());
}

bool PeerGuard::was_run(const LinkFacts& facts) const {
  return trust_.was(facts.key, runtime_.wall_seconds());
}

// To what was the run's key as this link began, too: whoever has it would refuse a peer without an
// invite for good. judge() takes it for nobody's.
std::string PeerGuard::opening(const Address&, const LinkFacts& facts) {
  if (!is_run(facts) && !was_run(facts)) return certificate_;
  return invite_opening(join_.invite_id, join_.secret, facts, certificate_);
}

Result<std::string> PeerGuard::judge(const Address&, const LinkFacts& facts,
                                     const std::string& answer) {
  if (is_run(facts)) return std::string(kRunLink);
  if (was_run(facts)) return changed_meanwhile();
  return seat_of(facts, answer);
}

void PeerGuard::admit(const LinkFacts& facts, const std::string& opening, Verdict verdict) {
  if (is_run(facts)) return verdict(Admission{.as = std::string(kRunLink), .answer = certificate_});
  if (was_run(facts)) return verdict(changed_meanwhile());
  if (certificate_.empty()) {
    SWARMLINE_MARK("guard.no_seat_yet");
    return verdict(fail(ErrorCode::kDeadline, "this peer has no seat yet"));
  }
  auto seat = seat_of(facts, opening);
  if (!seat) {
    SWARMLINE_MARK("guard.no_seat_shown");
    return verdict(std::unexpected(std::move(seat).error()));
  }
  verdict(Admission{.as = std::move(*seat), .answer = certificate_});
}

Result<std::string> PeerGuard::seat_of(const LinkFacts& facts, const std::string& certificate) {
  const double now = runtime_.wall_seconds();
  auto theirs = check_shown_seat(certificate, trust_, facts.key, now);
  if (!theirs) return std::unexpected(std::move(theirs).error());
  const auto own = check_shown_seat(certificate_, trust_, own_.hash(), now);
  if (own && own->run_id != theirs->run_id)
    return fail(ErrorCode::kRefused, "it has a seat of another run");
  return to_string(theirs->seat);
}

}  // namespace swarmline
