// Whom a run's coordinator takes links from, and what it shows itself: the run's key.
//   Who:       whoever holds the run's key, as "run"; who proves an invite's secret (invites.h), as
//              the invite's scope says, "peer", "observer" or "admin". An invite's first use by a
//              key is in the file of invites before it is admitted.
//   Dialling:  peers, who show a seat that this run's key has signed; one that has none yet is a
//              newcomer, of whom the key alone is known.
//   Ownership: runtime and worker outlive it. Thread: control thread; the file is read and written
//              by the worker, a device of its own.
//   Errors:    kRefused with a sentence; kIo where the file can't be written now: to come again.
//   Bounds:    those of invites.h, and of the worker's queue.
#pragma once

#include <memory>
#include <string>

#include "base/ids.h"
#include "engine/device/device.h"
#include "engine/net/link_guard.h"
#include "engine/runtime/runtime.h"
#include "node/admission/invites.h"
#include "node/admission/join_string.h"

namespace swarmline {

// LinkFacts of who holds the run's key are admitted as this; the others as their invite says.
inline constexpr std::string_view kRunLink = "run";
inline constexpr std::string_view kNewcomerLink = "newcomer";

class RunGuard final : public LinkGuard {
 public:
  // `invites`: the path of the file.
  RunGuard(Identity run_key, std::string invites, Runtime& runtime, Device& worker);

  const Identity& identity() const override { return run_key_; }
  std::optional<KeyHash> pinned(const Address&) override { return std::nullopt; }
  std::string opening(const Address&, const LinkFacts&) override { return {}; }
  Result<std::string> judge(const Address& dialled, const LinkFacts& facts,
                            const std::string& answer) override;
  void admit(const LinkFacts& facts, const std::string& opening, Verdict verdict) override;

  // What a peer shows of its seat.
  std::string certify(const std::string& run_id, const Seat& seat, const KeyHash& key) const;

 private:
  Identity run_key_;
  const std::string invites_;
  Runtime& runtime_;
  Device& worker_;
};

// Of a tool that holds the run's key: it asks the run's coordinator, and answers nobody.
class OwnerGuard final : public LinkGuard {
 public:
  explicit OwnerGuard(Identity run_key) : run_key_(std::move(run_key)) {}
  const Identity& identity() const override { return run_key_; }
  std::optional<KeyHash> pinned(const Address&) override { return run_key_.hash(); }
  std::string opening(const Address&, const LinkFacts&) override { return {}; }
  Result<std::string> judge(const Address&, const LinkFacts&, const std::string&) override {
    return std::string(kRunLink);
  }
  void admit(const LinkFacts&, const std::string&, Verdict verdict) override {
    verdict(fail(ErrorCode::kRefused, "this end answers nobody"));
  }

 private:
  Identity run_key_;
};

// Of a tool that came by an invite: the same, with a key that is made for it.
class InviteGuard final : public LinkGuard {
 public:
  explicit InviteGuard(JoinString join) : own_(Identity::make()), join_(std::move(join)) {}
  const Identity& identity() const override { return own_; }
  std::optional<KeyHash> pinned(const Address&) override { return join_.run_key; }
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
};

// What who joins by an invite says first.
std::string invite_opening(const std::string& id, const std::string& secret,
                           const LinkFacts& facts);

}  // namespace swarmline
