// What a run's machines cost: by the hour while they are members, by the byte that they send; and
// when that, or the time, is as much as the run may cost. Pure; instants are passed in.
//   What:    docs/money.md says what each number counts, and what none counts.
//   Units:   amounts in the run's currency; prices an hour and a GB (10^9 bytes).
//   Thread:  control thread.
//   Errors:  none: prices were checked when their peers came (price_is_believed()).
//   Bounds:  kSentBytesMax of a report; kWindowSteps steps of what was sent.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "base/units.h"
#include "engine/config/run_config.h"
#include "pipeline/coordinator/run/run_totals.h"
#include "pipeline/protocol/run_status.h"

namespace swarmline {

inline constexpr double kPriceMax = 1e6;  // an hour, or a GB
bool price_is_believed(double price);     // finite, 0 to kPriceMax

class CostMeter {
 public:
  static constexpr std::size_t kWindowSteps = 20;
  static constexpr std::uint64_t kSentBytesMax = 100'000'000'000'000;

  struct Rates {                 // of what is paid by the hour
    double serving = 0;          // peers that serve their stages
    double joining = 0;          // members that do not yet
    std::uint64_t unpriced = 0;  // members that say no price
    bool trains = false;
    bool operator==(const Rates&) const = default;
  };

  explicit CostMeter(const MoneySection& money) : money_(money) {}

  // What coordinators before have counted, or nothing is known of what was before that version.
  void restore(const CostTotals& totals) { totals_ = totals; }
  void nothing_known_before(std::uint64_t version) { totals_.since_version = version; }
  void on_era(std::uint64_t version);

  // Counts by the rates up to now; from now on by those.
  void advance(Instant now);
  void set_rates(const Rates& rates) { rates_ = rates; }

  // A peer has sent that; `price`: of a GB, 0: the run's.
  void sent(std::uint64_t bytes, double price);
  // A joiner or a shadow has its stage's state, which peers at that mean price have sent.
  void state_fetched(std::uint64_t bytes, double price, bool by_shadow);
  // The step before `now` is committed. `again`: it had been before the run went back; `idle`: what
  // its peers cost while their devices computed nothing.
  void on_commit(bool again, double idle, double seconds);
  void on_rollback();  // what is open is lost

  double price_of_gb(double peers) const { return peers > 0 ? peers : money_.egress_price; }
  bool is_known() const;  // somebody says a price
  const CostTotals& totals() const { return totals_; }
  double per_hour() const;  // now: what is sent as in the last steps
  // As it is shown: after `version` steps of `tokens_per_step`. None: nobody says a price.
  std::optional<CostStatus> status(Instant now, std::uint64_t version,
                                   double tokens_per_step) const;

  // Of a run that has trained for so long: "the budget of 20 USD is spent: ..."; none: it is not.
  std::optional<std::string> spent(double trained_seconds) const;
  // ... with what its user can change, for who starts it again.
  std::optional<std::string> refusal(double trained_seconds) const;
  // The same at kWarnedShare of it, said once.
  std::optional<std::string> take_warning(double trained_seconds);
  void warn_no_more(double trained_seconds) { take_warning(trained_seconds); }

 private:
  static constexpr double kWarnedShare = 0.9;
  struct Recent {
    double seconds = 0;
    double egress = 0;
  };

  const MoneySection& money_;
  CostTotals totals_;
  Rates rates_;
  std::optional<Instant> counted_to_;
  double open_ = 0;         // of serving peers, since the newest commit
  double egress_then_ = 0;  // at the newest commit
  std::deque<Recent> recent_;
  bool warned_of_cost_ = false, warned_of_hours_ = false;
};

}  // namespace swarmline
