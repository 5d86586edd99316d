// What a link to this coordinator is like, for a machine whose user asks before it joins
// (swarmline doctor).
//   What:      answers with its clock, where the link comes from and, if that is wanted, what peers
//              are told of the run and whether the asker's own address takes connections: it is
//              dialled once, and only at the host that the link comes from. Bytes of filler either
//              way tell how fast the link is.
//   Ownership: what it is made with outlives it. Thread: control thread.
//   Errors:    kCorrupt: no such request.
//   Bounds:    knobs().probe_time for a dial; one of a link and kDialsMax in all at a time (whoever
//              else asks is told "unknown"); kFillerBytesMax in an answer.
#pragma once

#include <cstddef>
#include <set>

#include "pipeline/coordinator/members/data_desk.h"
#include "pipeline/coordinator/members/outbox.h"
#include "pipeline/coordinator/run/alarms.h"
#include "pipeline/coordinator/run/run_shape.h"
#include "pipeline/protocol/trial.h"

namespace swarmline {

class LinkTrial {
 public:
  static constexpr std::size_t kDialsMax = 64;

  struct Needs {
    Network& network;
    Alarms& alarms;
    const RunShape& shape;
    const DataDesk& data;
    Outbox& outbox;
  };
  explicit LinkTrial(const Needs& needs) : in_(needs) {}

  void on_request(const SessionPtr& session, const Frame& frame, RpcChannel::Respond respond);

 private:
  wire::TrialReply answer_to(const Session& session, const wire::TrialRequest& request) const;
  void dial(const SessionPtr& session, const Address& address, wire::TrialReply answer,
            RpcChannel::Respond respond);

  Needs in_;
  std::set<SessionPtr> dialled_;  // whose address is being dialled
};

}  // namespace swarmline
