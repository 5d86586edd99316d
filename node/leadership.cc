#include "node/leadership.h"

#include <climits>
#include <cstring>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"
#include "base/marks.h"

namespace swarmline {

std::string host_name() {
  char host[HOST_NAME_MAX + 1] = {};
  if (::gethostname(host, HOST_NAME_MAX) != 0) std::strcpy(host, "?");
  return host;
}

std::string own_name() {
  return fmt::format("{}, process {}", host_name(), ::getpid());
}

Leadership::Leadership(Runtime& runtime, ControlStore& store, std::string who, OnEnd on_end)
    : runtime_(runtime), store_(store), who_(std::move(who)), on_end_(std::move(on_end)) {}

Result<AsyncJournal*> Leadership::try_lead() {
  const Instant asked = runtime_.now();
  const auto leads = store_.try_lead(who_);
  if (!leads) return std::unexpected(leads.error());
  if (!*leads) return nullptr;
  auto journal = store_.journal();
  if (!journal) return journal;
  ends_at(asked + store_.lease_time());
  renew_later();
  return journal;
}

void Leadership::stand_by(OnLead on_lead) {
  runtime_.post(guard_.wrap([this, on_lead = std::move(on_lead)] { ask(on_lead); }));
}

void Leadership::ask(const OnLead& on_lead) {
  auto journal = try_lead();
  if (!journal && journal.error().code != ErrorCode::kIncompatible &&
      journal.error().code != ErrorCode::kUserMistake) {
    log(LogLevel::kWarn, "{}", journal.error().what);
    journal = nullptr;
  }
  if (!journal || *journal != nullptr) return on_lead(std::move(journal));
  runtime_.call_after(kStandbyPeriod, guard_.wrap([this, on_lead] { ask(on_lead); }));
}

void Leadership::renew_later() {
  const Duration period = store_.renewal_period();
  if (period <= Duration{}) return;
  renewal_ = runtime_.call_after(period, guard_.wrap([this] { renew(); }));
}

void Leadership::renew() {
  const Instant asked = runtime_.now();
  store_.renew(guard_.wrap([this, asked](const Result<void>& renewed) {
    if (!renewed) log(LogLevel::kWarn, "{}", renewed.error().what);
    if (!renewed && renewed.error().code == ErrorCode::kRefused)
      return end(End::kDeposed, renewed.error().what);
    if (renewed) ends_at(asked + store_.lease_time());
    renew_later();
  }));
}

void Leadership::ends_at(Instant when) {
  if (store_.lease_time() <= Duration{}) return;
  runtime_.cancel(expiry_);
  expiry_ = runtime_.call_at(when, guard_.wrap([this] {
    SWARMLINE_MARK("leadership.expired");
    end(End::kExpired, fmt::format("the lead could not be renewed for {:.3g} s: another "
                                   "coordinator may lead now",
                                   to_seconds(store_.lease_time())));
  }));
}

// What was asked before does nothing any more; on_end may destroy this.
void Leadership::end(End how, const std::string& why) {
  runtime_.cancel(expiry_);
  runtime_.cancel(renewal_);
  guard_.drop_callbacks();
  const OnEnd on_end = on_end_;
  on_end(how, why);
}

}  // namespace swarmline
