// Peers that say hello: newcomers, those that lost a seat, and those that still have one.
//   What:      checks what they say, gives each a seat (or takes it back to the one it has), and
//              welcomes it. While nobody knows how the run goes on, they wait for the answer.
//   Ownership: what it is made with outlives it. Thread: control thread.
//   Errors:    who speaks another protocol, says too much or what can't be printed, or finds the
//              run full is refused with its reason, which the run's user is told, too.
//   Bounds:    kHellosMax wait, of Limits::hellos_held_bytes_max; more of them ask again. Texts as
//              Limits::name_bytes_max and address_bytes_max say.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/line_rate.h"
#include "engine/net/rpc.h"
#include "pipeline/coordinator/members/data_desk.h"
#include "pipeline/coordinator/members/failure_detector.h"
#include "pipeline/coordinator/members/first_bits.h"
#include "pipeline/coordinator/members/membership.h"
#include "pipeline/coordinator/members/outbox.h"
#include "pipeline/coordinator/members/reach_desk.h"
#include "pipeline/coordinator/members/refusals.h"
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
#include "pipeline/coordinator/states/kept_heirs.h"
#include "pipeline/coordinator/states/state_transfer.h"
#include "pipeline/coordinator/states/takeovers.h"

namespace swarmline {

class Arrivals {
 public:
  static constexpr std::size_t kHellosMax = static_cast<std::size_t>(Limits::peers_max);
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
    const FirstBits& first_bits;
    const DataDesk& data;
    Refusals& refusals;
    StateTransfer& states;
    Takeovers& takeovers;
    KeptHeirs& kept_heirs;
    const Relocation& relocation;
    ReachDesk& reach;
    Outbox& outbox;
    EventLog& events;
    Rulings& rulings;
  };
  struct Questions {
    std::function<bool()> may_begin_again;
    // The links to this seat are all that its stage has, and may have broken on this side.
    std::function<bool(const Seat&)> cut_off;
  };
  Arrivals(const Needs& needs, Questions questions) : in_(needs), ask_(std::move(questions)) {}

  void on_hello(const SessionPtr& session, const Frame& frame, RpcChannel::Respond respond);
  bool is_due() const { return !fresh_.empty(); }
  bool waits(const SessionPtr& session) const;  // for its answer
  // What one with a seat shows of it from now on; empty: what it has is good.
  std::string certified_anew(const SessionPtr& session) const;
  void admit();
  void wake();  // those that wait may be answered now
  // The run has ended: whoever comes, or has come and waits, hears of it as those with seats do.
  void tell_the_end(const SessionPtr& session, const RpcChannel::Respond& respond,
                    const Frame& shutdown);
  void tell_the_end_to_all(const Frame& shutdown);

 private:
  struct Arrival {
    SessionPtr session;
    wire::Hello hello;
    RpcChannel::Respond respond;
    std::uint64_t bytes = 0;
  };
  enum class Outcome : std::uint8_t { kAnswered, kWaits, kAfterLosses };
  Outcome admit_one(const Arrival& arrival);
  Outcome over_a_new_connection(const Arrival& arrival, const Seat& before);
  Result<wire::Hello> checked(const SessionPtr& session, const Frame& frame) const;
  void disbelieve_unproven(wire::Hello& hello, const SessionPtr& session);
  bool knows_another_coordinator(const wire::Hello& hello);
  bool takes_newcomers(const wire::Hello& hello) const;
  void resume(const Arrival& arrival, const wire::Hello& hello);
  void seat(const Arrival& arrival, const wire::Hello& hello);
  wire::Welcome welcome_to(const SessionPtr& session) const;  // of a seat
  bool keeps_followed(const wire::Hello& hello, const Seat& seat) const;
  void check_reign();
  void refuse(const SessionPtr& session, const wire::Hello& hello,
              const RpcChannel::Respond& respond, const Error& error);
  void send_away(const SessionPtr& session, const RpcChannel::Respond& respond,
                 const std::string& why);

  Needs in_;
  Questions ask_;
  std::vector<Arrival> fresh_;
  std::vector<Arrival> waiting_;
  std::uint64_t held_bytes_ = 0;  // of their hellos
  LineRate unproven_lines_;
};

}  // namespace swarmline
