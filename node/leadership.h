// Who leads a run: taking the lead of a control store, waiting for it, and keeping it.
//   Ownership: runtime and store outlive it. Destroying it asks and renews no more; the store keeps
//              the lead until it is released or its lease ends.
//   Lease:     where the lead has to be renewed and could not be for the store's lease_time(), by
//              this process's own clock, another may lead by now: it ends by itself, before anybody
//              says so.
//   Thread:    control thread; asking for the lead blocks as the store does, renewing does not.
//   Errors:    a standby outlasts whatever passes: only kIncompatible and kUserMistake end it.
//   Bounds:    asks every kStandbyPeriod; renews every renewal_period() of the store.
//   Source:    as engine/store/control_store.h.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/callback_guard.h"
#include "base/result.h"
#include "engine/runtime/runtime.h"
#include "engine/store/control_store.h"

namespace swarmline {

// A standby asks so often who leads.
inline constexpr Duration kStandbyPeriod = std::chrono::milliseconds(500);

std::string host_name();  // this machine's
std::string own_name();   // "HOST, process PID": what others see of who leads

class Leadership {
 public:
  // Once, after try_lead() or stand_by(): the journal is not this process's any more.
  enum class End : std::uint8_t {
    kDeposed,  // the store says that another leads, or that the lease is over
    kExpired,  // the store could not be asked for as long as the lease
  };
  using OnEnd = std::function<void(End, const std::string& why)>;
  Leadership(Runtime& runtime, ControlStore& store, std::string who, OnEnd on_end);

  // The journal, once this process leads; null while another does.
  Result<AsyncJournal*> try_lead();
  // Asks until it leads; `on_lead` comes once, never inside this call. Destroying this ends it.
  using OnLead = std::function<void(Result<AsyncJournal*>)>;
  void stand_by(OnLead on_lead);

 private:
  void ask(const OnLead& on_lead);
  void renew_later();
  void renew();
  void ends_at(Instant when);
  void end(End how, const std::string& why);

  Runtime& runtime_;
  ControlStore& store_;
  std::string who_;
  OnEnd on_end_;
  TimerId renewal_;
  TimerId expiry_;
  CallbackGuard guard_;
};

}  // namespace swarmline
