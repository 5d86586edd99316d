// Who hears what all hear.
//   Ownership: outbox, sessions and members outlive it. Thread: control thread.
#pragma once

#include "pipeline/coordinator/members/membership.h"
#include "pipeline/coordinator/members/outbox.h"

namespace swarmline {

class Audience {
 public:
  Audience(const SessionTable& sessions, const Membership& members, Outbox& outbox)
      : sessions_(sessions), members_(members), outbox_(outbox) {}

  // To all that serve now.
  void tell_serving(const Frame& frame) {
    tell(frame, [this](const Seat& seat) { return members_.serves(seat); });
  }
  // ... and to those that follow their stage until they have a seat that serves.
  void tell_following(const Frame& frame) {
    tell(frame,
         [this](const Seat& seat) { return members_.serves(seat) || members_.follows(seat); });
  }
  void tell_everybody(const Frame& frame) {
    tell(frame, [](const Seat&) { return true; });
  }

 private:
  void tell(const Frame& frame, auto&& hears) {
    for (const auto& [peer, session] : sessions_.seated())
      if (hears(session->seat)) outbox_.send(session, frame);
  }

  const SessionTable& sessions_;
  const Membership& members_;
  Outbox& outbox_;
};

}  // namespace swarmline
