// A guard that lets in whoever its test wants: everybody, unless told otherwise.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/net/link_guard.h"

namespace swarmline {

class OpenGuard final : public LinkGuard {
 public:
  OpenGuard() : OpenGuard(Identity::make()) {}
  explicit OpenGuard(Identity identity) : identity_(std::move(identity)) {}
  void become(Identity identity) { identity_ = std::move(identity); }

  const Identity& identity() const override { return identity_; }
  std::string vouchers() const override { return says_beside; }
  std::optional<KeyHash> pinned(const Address&) override { return pin; }
  bool vouched(const KeyHash&, const KeyHash&, const std::string& vouchers) const override {
    return !vouchers.empty() && vouchers == believes;
  }
  std::string opening(const Address&, const LinkFacts& facts) override {
    dialled.push_back(facts);
    return says;
  }
  Result<std::string> judge(const Address&, const LinkFacts&, const std::string& answer) override {
    if (judges) return judges(answer);
    return answer;
  }
  void admit(const LinkFacts& facts, const std::string& opening, Verdict verdict) override {
    accepted.push_back(facts);
    openings.push_back(opening);
    if (holds) return held.push_back(std::move(verdict));
    if (!refusal.empty()) return verdict(fail(ErrorCode::kRefused, refusal));
    verdict(Admission{.as = takes_for, .answer = answers});
  }

  std::optional<KeyHash> pin;
  std::string says_beside, believes;  // vouchers
  std::string says = "hello";
  std::string takes_for = "dialler", answers = "listener";
  std::string refusal;  // empty: it admits
  bool holds = false;   // its verdicts wait in `held`
  std::function<Result<std::string>(const std::string&)> judges;
  std::vector<LinkFacts> dialled, accepted;
  std::vector<std::string> openings;
  std::vector<Verdict> held;

 private:
  Identity identity_;
};

}  // namespace swarmline
