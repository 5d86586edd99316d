#include "node/leadership.h"

#include <climits>
#include <cstring>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"

namespace swarmline {

std::string own_name() {
  char host[HOST_NAME_MAX + 1] = {};
  if (::gethostname(host, HOST_NAME_MAX) != 0) std::strcpy(host, "?");
  return fmt::format("{}, process {}", host, ::getpid());
}

Leadership::Leadership(Runtime& runtime, ControlStore& store, std::string who,
                       std::function<void(const std::string&)> on_deposed)
    : runtime_(runtime), store_(store), who_(std::move(who)), on_deposed_(std::move(on_deposed)) {}

Result<Journal*> Leadership::try_lead() {
  const auto leads = store_.try_lead(who_);
  if (!leads) return std::unexpected(leads.error());
  if (!*leads) return nullptr;
  auto journal = store_.journal();
  if (journal) renew_later();
  return journal;
}

void Leadership::stand_by(std::function<void(Result<Journal*>)> on_lead) {
  runtime_.post(guard_.wrap([this, on_lead = std::move(on_lead)] { ask(on_lead); }));
}

void Leadership::ask(const std::function<void(Result<Journal*>)>& on_lead) {
  auto journal = try_lead();
  if (!journal && journal.error().code == ErrorCode::kIo) {
    log(LogLevel::kWarn, "{}", journal.error().what);
    journal = nullptr;
  }
  if (!journal || *journal != nullptr) return on_lead(std::move(journal));
  runtime_.call_after(kStandbyPeriod, guard_.wrap([this, on_lead] { ask(on_lead); }));
}

void Leadership::renew_later() {
  const Duration period = store_.renewal_period();
  if (period <= Duration{}) return;
  runtime_.call_after(period, guard_.wrap([this] {
    const auto renewed = store_.renew();
    if (!renewed) log(LogLevel::kWarn, "{}", renewed.error().what);
    if (!renewed && renewed.error().code == ErrorCode::kRefused)
      return on_deposed_(renewed.error().what);
    renew_later();
  }));
}

}  // namespace swarmline
