// What a coordinator says, in the order in which it was decided.
//   What:      messages, answers and the ends of connections wait here until the event that caused
//              them has been settled; then flush() hands them to their connections in order. So a
//              part may decide to say something while others have yet to hear of the same event.
//   Durable:   what was decided after something was given to the journal waits until that is
//              durable, and all that was decided later waits behind it. What says nothing of the
//              run's decisions (that this process lives, its status) waits for nothing.
//   Ownership: the sessions outlive it; a message holds its session.
//   Thread:    control thread.
//   Errors:    what is for somebody without a connection is dropped: whoever is not there hears
//              what it missed when it comes. So is what is for a seat that its peer has no more.
//   Bounds:    what one event can cause: a few messages for each seat.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <variant>

#include "base/ids.h"
#include "engine/net/rpc.h"
#include "pipeline/coordinator/members/session_table.h"
#include "pipeline/coordinator/run/journal_progress.h"

namespace swarmline {

class Outbox {
 public:
  Outbox(const SessionTable& sessions, const JournalProgress& journal)
      : sessions_(sessions), journal_(journal) {}

  // To the seat's peer, or to its shadow of another stage, whose name is a seat, too. The same
  // connection leads to both, so what is for a shadow must say so (`addressee`).
  void send(const Seat& to, Frame frame);
  void send(const SessionPtr& to, Frame frame);
  void respond(RpcChannel::Respond respond, Result<Frame> answer);
  void send_freely(const SessionPtr& to, Frame frame);  // before what waits for the journal
  void respond_freely(RpcChannel::Respond respond, Result<Frame> answer);
  void close(const SessionPtr& session);  // after what was said before
  void flush();                           // as far as the journal is durable
  // What waits was never decided; what comes from now on does not wait for the journal.
  void drop_waiting();

  bool empty() const { return entries_.empty() && free_.empty(); }

 private:
  struct Message {
    SessionPtr to;
    Frame frame;
  };
  struct Answer {
    RpcChannel::Respond respond;
    Result<Frame> frame;
  };
  struct Close {
    SessionPtr session;
  };
  static void deliver(Message& message);
  static void deliver(Answer& answer);
  static void deliver(Close& close);

  struct Entry {
    std::variant<Message, Answer, Close> what;
    std::uint64_t after = 0;  // so many records of the journal are durable
  };

  const SessionTable& sessions_;
  const JournalProgress& journal_;
  static void deliver(std::deque<Entry>& entries, std::uint64_t durable);
  std::uint64_t decided() const { return waits_ ? journal_.given : 0; }

  std::deque<Entry> entries_;
  std::deque<Entry> free_;
  bool waits_ = true;
};

}  // namespace swarmline
