// Who takes part in a measurement: whoever knows its secret, which the string has that the end that
// listens prints. Both ends of a link prove it, each in its own words, over what only that link's
// ends have; where the string says which key must be there, nothing is said to another one.
//   Thread: any; it never changes. Errors: kRefused with a sentence. Bounds: kLinkWordsMax.
#pragma once

#include <string>
#include <utility>

#include "engine/net/link_guard.h"
#include "node/admission/join_string.h"

namespace swarmline {

class MeetingGuard final : public LinkGuard {
 public:
  MeetingGuard(Identity own, JoinString join) : own_(std::move(own)), join_(std::move(join)) {}

  const Identity& identity() const override { return own_; }
  std::optional<KeyHash> pinned(const Address& dialled) override;
  std::string opening(const Address& dialled, const LinkFacts& facts) override;
  Result<std::string> judge(const Address& dialled, const LinkFacts& facts,
                            const std::string& answer) override;
  void admit(const LinkFacts& facts, const std::string& opening, Verdict verdict) override;

 private:
  std::string proof(std::string_view who, const LinkFacts& facts) const;

  const Identity own_;
  const JoinString join_;
};

}  // namespace swarmline
