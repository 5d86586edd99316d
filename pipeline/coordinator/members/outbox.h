// What a coordinator says, in the order in which it was decided.
//   What:      messages, answers and the ends of connections wait here until the event that caused
//              them has been settled; then flush() hands them to their connections in order. So a
//              part may decide to say something while others have yet to hear of the same event.
//   Ownership: the sessions outlive it; a message holds its session.
//   Thread:    control thread.
//   Errors:    what is for somebody without a connection is dropped: whoever is not there hears
//              what it missed when it comes.
//   Bounds:    what one event can cause: a few messages for each seat.
#pragma once

#include <functional>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "engine/net/rpc.h"
#include "pipeline/coordinator/members/session_table.h"

namespace swarmline {

class Outbox {
 public:
  explicit Outbox(const SessionTable& sessions) : sessions_(sessions) {}

  // To the seat's peer, or to its shadow of another stage, whose name is a seat, too.
  void send(const Seat& to, Frame frame);
  void send(const SessionPtr& to, Frame frame);
  void respond(RpcChannel::Respond respond, Result<Frame> answer);
  void close(const SessionPtr& session);  // after what was said before
  void flush();

  bool empty() const { return entries_.empty(); }

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

  const SessionTable& sessions_;
  std::vector<std::variant<Message, Answer, Close>> entries_;
};

}  // namespace swarmline
