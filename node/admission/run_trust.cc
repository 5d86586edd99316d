#include "node/admission/run_trust.h"

#include <algorithm>
#include <utility>

#include "base/marks.h"

namespace swarmline {
namespace {

std::vector<Handover> handovers_in(std::string_view vouchers) {
  return take_handovers(vouchers).value_or(std::vector<Handover>());
}

}  // namespace

bool RunTrust::vouches(const KeyHash& shown, std::string_view vouchers, double now) const {
  if (shown == key_) return true;
  const auto path = succession(key_, handovers_in(vouchers), run_, now);
  return !path.empty() && hash_of_public_key(path.back().into) == shown;
}

bool RunTrust::follow(const std::string& public_key, std::string_view vouchers, double now) {
  const auto shown = hash_of_public_key(public_key);
  if (!shown || !vouches(*shown, vouchers, now)) return false;
  learn(vouchers, now);
  if (*shown == key_) public_key_ = public_key;
  return *shown == key_;
}

void RunTrust::learn(std::string_view vouchers, double now) {
  for (const Handover& handover : succession(key_, handovers_in(vouchers), run_, now)) {
    SWARMLINE_MARK("trust.follows_the_runs_key");
    add_former(handover);
    key_ = *hash_of_public_key(handover.into);
    public_key_ = handover.into;
  }
}

void RunTrust::hear_of_former(std::string_view vouchers, double now) {
  const auto handovers = handovers_in(vouchers);
  for (const Handover& handover : handovers) {
    const auto from = hash_of_public_key(handover.from);
    const auto path = from ? succession(*from, handovers, run_, now) : std::vector<Handover>();
    if (!path.empty() && hash_of_public_key(path.back().into) == key_) add_former(handover);
  }
}

void RunTrust::add_former(const Handover& handover) {
  const auto same = [&](const Handover& known) { return known.from == handover.from; };
  if (std::ranges::any_of(formers_, same)) return;
  if (formers_.size() == kHandoversMax) formers_.erase(formers_.begin());
  formers_.push_back(handover);
}

bool RunTrust::was(const KeyHash& shown, double now) const {
  return std::ranges::any_of(formers_, [&](const Handover& former) {
    return former.holds(now) && hash_of_public_key(former.from) == shown;
  });
}

std::vector<std::string> RunTrust::signers(double now) const {
  std::vector<std::string> keys;
  if (!public_key_.empty()) keys.push_back(public_key_);
  for (const Handover& former : formers_)
    if (former.holds(now)) keys.push_back(former.from);
  return keys;
}

}  // namespace swarmline
