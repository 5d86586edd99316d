// Whom a peer takes links from and dials, by the string that it joined with: the holder of the
// run's key, or of one that came after it (run_trust.h), and peers that show a seat that it signed.
//   To the run's coordinators it proves its invite, and shows its seat, which outlives that; at the
//   addresses of the join string nobody else is greeted. To peers it shows its own seat, of which
//   each welcome brings word.
//   Ownership: the runtime outlives it. Thread: control thread.
//   Errors:    kRefused with a sentence; kDeadline where an end has no seat yet, or shows the key
//              that was the run's as the link began: to come again.
//   Bounds:    none of its own.
#pragma once

#include <optional>
#include <string>

#include "engine/net/link_guard.h"
#include "engine/runtime/runtime.h"
#include "node/admission/join_string.h"
#include "node/admission/run_trust.h"

namespace swarmline {

class PeerGuard final : public LinkGuard {
 public:
  PeerGuard(Identity own, JoinString join, Runtime& runtime);

  // From the run's coordinator: of its own seat, as it is to be shown.
  void take_certificate(const std::string& certificate);

  const Identity& identity() const override { return own_; }
  std::optional<KeyHash> pinned(const Address& dialled) override;
  bool vouched(const KeyHash& pinned, const KeyHash& shown,
               const std::string& vouchers) const override;
  std::string opening(const Address& dialled, const LinkFacts& facts) override;
  Result<std::string> judge(const Address& dialled, const LinkFacts& facts,
                            const std::string& answer) override;
  void admit(const LinkFacts& facts, const std::string& opening, Verdict verdict) override;

 private:
  bool is_run(const LinkFacts& facts);
  bool was_run(const LinkFacts& facts) const;
  Result<std::string> seat_of(const LinkFacts& facts, const std::string& certificate);

  Identity own_;
  JoinString join_;
  Runtime& runtime_;
  RunTrust trust_;
  std::string certificate_;  // of its own seat
};

}  // namespace swarmline
