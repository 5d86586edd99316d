// Who leads a run: taking the lead of a control store, waiting for it, and keeping it.
//   Ownership: runtime and store outlive it. Destroying it asks and renews no more; the store keeps
//              the lead until it is released or its lease ends.
//   Thread:    control thread; calls block as the store's do.
//   Errors:    kIo while standing by is logged, and tried again; any other error ends it.
//   Bounds:    asks every kStandbyPeriod; renews every renewal_period() of the store.
//   Source:    as engine/store/control_store.h.
#pragma once

#include <functional>
#include <string>

#include "base/callback_guard.h"
#include "base/result.h"
#include "engine/runtime/runtime.h"
#include "engine/store/control_store.h"

namespace swarmline {

// A standby asks so often who leads.
inline constexpr Duration kStandbyPeriod = std::chrono::milliseconds(500);

// "HOST, process PID": what others see of who leads.
std::string own_name();

class Leadership {
 public:
  // `on_deposed`: another leads by now; the journal is its.
  Leadership(Runtime& runtime, ControlStore& store, std::string who,
             std::function<void(const std::string& why)> on_deposed);

  // The journal, once this process leads; null while another does.
  Result<Journal*> try_lead();
  // Asks until it leads; `on_lead` comes once, never inside this call. Destroying this ends it.
  void stand_by(std::function<void(Result<Journal*>)> on_lead);

 private:
  void ask(const std::function<void(Result<Journal*>)>& on_lead);
  void renew_later();

  Runtime& runtime_;
  ControlStore& store_;
  std::string who_;
  std::function<void(const std::string&)> on_deposed_;
  CallbackGuard guard_;
};

}  // namespace swarmline
