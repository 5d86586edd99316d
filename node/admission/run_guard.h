// Whom a run's coordinator takes links from, and what it shows itself: the run's key.
//   Who:       whoever holds the run's key, as "run"; who proves an invite's secret (invites.h), as
//              the invite's scope says, "peer", "observer" or "admin". An invite's first use by a
//              key is in the file of invites before it is admitted.
//              Who shows a seat of this run needs no invite any more.
//   The key:   may change while it lives (handover.h): links from then on show the new one, with
//              what the one before has said, and seats are certified anew.
//   Dialling:  peers, who show a seat that this run's key has signed; one that has none yet is a
//              newcomer, of whom the key alone is known.
//   Ownership: runtime and worker outlive it. Thread: control thread; the file is read and written
//              by the worker, a device of its own.
//   Errors:    kRefused with a sentence; kIo where the file can't be written now: to come again.
//   Bounds:    those of invites.h, and of the worker's queue.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/ids.h"
#include "engine/device/device.h"
#include "engine/net/link_guard.h"
#include "engine/runtime/runtime.h"
#include "engine/store/secret_file.h"
#include "node/admission/certified_seats.h"
#include "node/admission/invites.h"
#include "node/admission/join_string.h"
#include "node/admission/run_key.h"
#include "node/admission/run_trust.h"

namespace swarmline {

// LinkFacts of who holds the run's key are admitted as this; the others as their invite says.
inline constexpr std::string_view kRunLink = "run";
inline constexpr std::string_view kNewcomerLink = "newcomer";

// Adds to the run's invites what `line` makes of them, and a line's end, as append_secret_line()
// does; what it returns, that returned. Called by the worker.
using AddInviteLine = std::function<Result<void>(const NextLine& line)>;
AddInviteLine to_invite_file(std::string path);

class RunGuard final : public LinkGuard {
 public:
  // `run`: its name.
  RunGuard(RunKey run_key, std::string run, AddInviteLine invites, Runtime& runtime,
           Device& worker);

  const RunKey& key() const { return run_key_; }
  void take_key(RunKey next);
  // What a peer shows of its seat; and what of one that it has been given, empty while that is
  // good.
  std::string certify(const std::string& run_id, const Seat& seat, const KeyHash& key);
  std::string certify_anew(const std::string& run_id, const Seat& seat, const KeyHash& key);

  const Identity& identity() const override { return run_key_.identity; }
  std::string vouchers() const override;
  std::optional<KeyHash> pinned(const Address&) override { return std::nullopt; }
  std::string opening(const Address&, const LinkFacts&) override { return {}; }
  Result<std::string> judge(const Address& dialled, const LinkFacts& facts,
                            const std::string& answer) override;
  void admit(const LinkFacts& facts, const std::string& opening, Verdict verdict) override;

 private:
  void trust_own_key();

  RunKey run_key_;
  const std::string run_;
  const AddInviteLine invites_;
  Runtime& runtime_;
  Device& worker_;
  RunTrust trust_;
  CertifiedSeats certified_;
};

// Of a tool that holds the run's key: it asks the run's coordinator, and answers nobody.
class OwnerGuard final : public LinkGuard {
 public:
  // `again`: the key as it is now, asked for at each link; none: it does not change.
  using Again = std::function<Result<Identity>()>;
  explicit OwnerGuard(Identity run_key, Again again = {})
      : run_key_(std::move(run_key)), again_(std::move(again)) {}
  const Identity& identity() const override {
    if (again_)
      if (auto now = again_()) run_key_ = std::move(*now);
    return run_key_;
  }
  std::optional<KeyHash> pinned(const Address&) override { return run_key_.hash(); }
  std::string opening(const Address&, const LinkFacts&) override { return {}; }
  Result<std::string> judge(const Address&, const LinkFacts&, const std::string&) override {
    return std::string(kRunLink);
  }
  void admit(const LinkFacts&, const std::string&, Verdict verdict) override {
    verdict(fail(ErrorCode::kRefused, "this end answers nobody"));
  }

 private:
  mutable Identity run_key_;
  Again again_;
};

// Of a tool that came by an invite: the same, with a key that is made for it.
class InviteGuard final : public LinkGuard {
 public:
  // `now`: seconds since 1970; 0: it follows no other key than the string's.
  explicit InviteGuard(JoinString join, double now = 0)
      : own_(Identity::make()), join_(std::move(join)), now_(now) {}
  const Identity& identity() const override { return own_; }
  std::optional<KeyHash> pinned(const Address&) override { return join_.run_key; }
  bool vouched(const KeyHash& pinned, const KeyHash& shown,
               const std::string& vouchers) const override;
  std::string opening(const Address&, const LinkFacts& facts) override;
  Result<std::string> judge(const Address&, const LinkFacts&, const std::string&) override {
    return std::string(kRunLink);
  }
  void admit(const LinkFacts&, const std::string&, Verdict verdict) override {
    verdict(fail(ErrorCode::kRefused, "this end answers nobody"));
  }

 private:
  Identity own_;
  JoinString join_;
  double now_;  // a tool lives shortly
};

// What who joins by an invite says first; `seat`: what it shows of its seat, if it has one.
std::string invite_opening(const std::string& id, const std::string& secret, const LinkFacts& facts,
                           const std::string& seat = {});

}  // namespace swarmline
