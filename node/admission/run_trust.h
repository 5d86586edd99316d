// Which key somebody takes for a run's, from the one that its join string names on: the key that
// came after it, too, because the one before has said so (handover.h). Pure.
//   Once:   a key is followed once. Who has taken its successor takes no other for it: of a leaked
//           key, what it says later counts for nothing here.
//   Before: seats that a key has signed count until the time of its handover is over, so that
//           nobody loses a seat while the new ones come.
//   Thread: any, one at a time. Errors: none; what proves nothing is not heard.
//   Bounds: kHandoversMax former keys.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "node/admission/handover.h"

namespace swarmline {

class RunTrust {
 public:
  // `run`: its name. `key`: of its join string, or, of who holds it, its own.
  RunTrust(std::string run, const KeyHash& key) : run_(std::move(run)), key_(key) {}

  const KeyHash& key() const { return key_; }
  // The key itself, or one that these statements lead to from it.
  bool vouches(const KeyHash& shown, std::string_view vouchers, double now) const;
  // The same, and takes it for the run's from now on. `public_key`: raw.
  bool follow(const std::string& public_key, std::string_view vouchers, double now);
  // As far as the statements lead from the key that is known, whoever shows them.
  void learn(std::string_view vouchers, double now);
  // What the run itself says of the keys that it had before. Others are not to be heard of it.
  void hear_of_former(std::string_view vouchers, double now);
  // It was the run's key, and another one has come after it: whoever shows it proves nothing, and
  // may be the run all the same, where the link began before the change.
  bool was(const KeyHash& shown, double now) const;
  // Public keys whose signature under a seat counts.
  std::vector<std::string> signers(double now) const;

 private:
  void add_former(const Handover& handover);

  std::string run_;
  KeyHash key_;
  std::string public_key_;         // of key_; empty: not seen yet
  std::vector<Handover> formers_;  // from keys that were the run's
};

}  // namespace swarmline
