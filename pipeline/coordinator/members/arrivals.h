// Peers that say hello: newcomers, those that lost a seat, and those that still have one.
//   What:      checks what they say, gives each a seat (or takes it back to the one it has), and
//              welcomes it. While nobody knows how the run goes on, they wait for the answer.
//   Ownership: what it is made with outlives it. Thread: control thread.
//   Errors:    who speaks another protocol, says too much, or finds the run full is refused with
//              its reason.
//   Bounds:    kHellosMax wait; more of them ask again. kTextBytesMax of each text.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "engine/net/rpc.h"
#include "pipeline/coordinator/members/failure_detector.h"
#include "pipeline/coordinator/members/gathering.h"
#include "pipeline/coordinator/members/membership.h"
#include "pipeline/coordinator/members/outbox.h"
#include "pipeline/coordinator/members/relocation.h"
#include "pipeline/coordinator/run/alarms.h"
#include "pipeline/coordinator/run/era_beginning.h"
#include "pipeline/coordinator/run/event_log.h"
#include "pipeline/coordinator/run/recovery.h"
#include "pipeline/coordinator/run/run_identity.h"
#include "pipeline/coordinator/run/run_journal.h"
#include "pipeline/coordinator/run/run_lifecycle.h"
#include "pipeline/coordinator/run/run_sequence.h"
#include "pipeline/coordinator/run/run_shape.h"
#include "pipeline/coordinator/states/state_transfer.h"
#include "pipeline/coordinator/states/takeovers.h"

namespace swarmline {

class Arrivals {
 public:
  static constexpr std::size_t kHellosMax = static_cast<std::size_t>(Limits::peers_max);
  static constexpr std::size_t kTextBytesMax = 1024;
  struct Needs {  // services, and parts below it
    const RunShape& shape;
    const RunIdentity& identity;
    const RunLifecycle& life;
    const RunSequence& sequence;
    Alarms& alarms;
    RunJournal& journal;
    SessionTable& sessions;
    Membership& members;
    FailureDetector& detector;
    Recovery& recovery;
    const EraBeginning& beginning;
    StateTransfer& states;
    Takeovers& takeovers;
    const Relocation& relocation;
    Outbox& outbox;
    EventLog& events;
    Rulings& rulings;
  };
  // `cut_off`: the links to this seat are all that its stage has, and may have broken on this side.
  Arrivals(const Needs& needs, std::function<bool(const Seat&)> cut_off)
      : in_(needs), cut_off_(std::move(cut_off)) {}

  void on_hello(const SessionPtr& session, const Frame& frame, RpcChannel::Respond respond);
  bool is_due() const { return !fresh_.empty(); }
  void admit();
  void wake();  // those that wait may be answered now
  void refuse_all(const std::string& why);

 private:
  struct Arrival {
    SessionPtr session;
    Frame frame;
    RpcChannel::Respond respond;
  };
  enum class Outcome : std::uint8_t { kAnswered, kWaits, kAfterLosses };
  Outcome admit_one(const Arrival& arrival);
  Result<wire::Hello> checked(const Arrival& arrival) const;
  bool knows_another_coordinator(const wire::Hello& hello);
  bool takes_newcomers(const wire::Hello& hello) const;
  void resume(const Arrival& arrival, const wire::Hello& hello);
  void seat(const Arrival& arrival, const wire::Hello& hello);
  wire::Welcome welcome_to(const SessionPtr& session) const;  // of a seat
  bool keeps_followed(const wire::Hello& hello, const Seat& seat) const;
  void check_reign();
  void send_away(const Arrival& arrival, const std::string& why);

  Needs in_;
  std::function<bool(const Seat&)> cut_off_;
  std::vector<Arrival> fresh_;
  std::vector<Arrival> waiting_;
};

}  // namespace swarmline
