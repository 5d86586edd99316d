// One end of a simulated connection.
//   What:      frames leave over the wire in order and arrive at the other end, its twin. An end
//              breaks at once here, and there when the news arrives.
//   Half open: where bytes vanish, or what has no power is at the other end, each end breaks alone
//              once nothing of the other has been heard for SimNetworkOptions::user_timeout, what
//              it sends and the kernel's questions included. What reaches an end that is over is
//              reset.
//   Ownership: the wire holds it until it is closed. Neither end keeps the other alive.
//   Thread:    that of the SimRuntime.
//   Bounds:    SimNetworkOptions::queue_bytes_max unsent bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "engine/net/message_pieces.h"
#include "engine/net/network.h"
#include "sim/doors/sim_link.h"
#include "sim/doors/sim_wire.h"
#include "sim/doors/sim_words.h"

namespace swarmline {

class SimConnection final : public Connection, public std::enable_shared_from_this<SimConnection> {
 public:
  SimConnection(std::shared_ptr<SimWire> wire, std::uint64_t id, SimRoute route,
                std::string remote);
  void join(const std::shared_ptr<SimConnection>& twin);

  void start(Handlers handlers) override;
  void send(Frame frame) override;
  void believe(const ConnectionBounds& bounds) override;
  void close() override;
  std::uint64_t unsent_bytes() const override;
  Counters counters() const override { return counters_; }
  std::string remote() const override { return remote_; }
  bool is_relayed() const override { return is_relayed_; }
  std::optional<KeyHash> peer_key() const override { return peer_key_; }
  std::string admitted_as() const override { return admitted_as_; }

  // ---- Before it is anybody's: words between its ends, in order (sim_handshake.h) ----
  struct Greeting {
    std::function<void(const SimWords&)> on_words;
    std::function<void(const Error&)> on_ended;  // once at most, and nothing after it
  };
  void greet(Greeting greeting);
  void say(SimWords words);
  void end_greeting() { greeting_.reset(); }
  void secure(const KeyHash& key, std::string admitted_as);

  SimRoute route() const { return route_; }
  SimNodeId node() const { return route_.first; }
  void be_relayed() { is_relayed_ = true; }
  void not_before(Instant when) { last_arrival_ = std::max(last_arrival_, when); }

  // Lets what a filter holds go. Returns how many frames that were.
  std::size_t release();
  // Sends what waits, unless a filter or a blocked direction holds it still.
  std::size_t flush();
  // Both ends see the end of the connection: this one at once, the other one when the news arrives.
  void break_off(Error error);
  // The process is gone: no callback here.
  void abandon();
  // The same, and the other end hears nothing of it.
  void lose_power();
  // From now on what this end sends is lost on the way, its end included.
  void vanish();
  // Nothing is heard of the other end, from now on; no news where it is.
  void unheard();
  // The way is open again: what was sent is acknowledged, or there is nobody to do so.
  void acknowledged();

 private:
  // What both ends know of the connection, by side.
  struct Pipe {
    bool vanishes[2] = {false, false};  // what that side sends
    bool over[2] = {false, false};      // that side has ended, and its twin was not told
  };
  struct Item {
    std::optional<Frame> frame;
    std::optional<SimWords> words;
    Duration delay{};
    bool damaged = false;  // beyond what a receiver takes

    bool is_end() const { return !frame && !words; }  // of the stream
  };
  struct Sent {
    Instant departure;
    std::uint64_t bytes;
    std::shared_ptr<Instant> cutoff;  // what leaves later is lost
  };

  SimEventSource socket() const { return socket_of(id_); }
  bool has_room_for(std::uint64_t bytes);
  void send_now(Frame frame);
  void send_later();
  void put(Item item);
  void flip_a_bit(Frame& frame);
  void launch(Item item);
  void arrive_in_parts(Frame& frame, Instant leaves, Instant arrives);
  std::uint64_t bytes_of(const Item& item) const;
  void arrived(Item item);
  void hear();
  void arriving(const Frame& frame, std::uint64_t bytes);
  void drain();
  bool has_room(const Frame& frame) const;
  void deliver(Frame frame);
  void notify_twin();
  void time_out();
  void be_reset(Instant when);
  bool is_heard() const { return !vanishes() && wire_->is_heard(route_); }
  bool vanishes() const { return pipe_->vanishes[0] || pipe_->vanishes[1]; }
  void finish(const Error& error);

  std::shared_ptr<SimWire> wire_;
  const std::uint64_t id_;
  std::weak_ptr<SimConnection> twin_;
  SimEventSource twin_socket_ = kSimSocketMin;
  const SimRoute route_;                                 // this node, the other one
  const std::shared_ptr<SimWire::Delivered> delivered_;  // its other node may be forgotten first
  const std::string remote_;
  std::optional<KeyHash> peer_key_;
  std::string admitted_as_;
  std::optional<Greeting> greeting_;
  Handlers handlers_;
  ConnectionBounds bounds_;
  bool started_ = false, ending_ = false, closed_ = false, delivering_ = false, holding_ = false;
  std::deque<Item> inbox_;   // arrived
  std::deque<Item> held_;    // behind a frame that a filter holds
  std::deque<Frame> later_;  // pieces, and what was sent after them: not on their way yet
  std::uint64_t later_bytes_ = 0;
  bool waits_ = false;  // for the piece before to leave
  PieceJoiner joiner_;
  mutable std::deque<Sent> in_flight_;
  mutable std::uint64_t in_flight_bytes_ = 0;
  std::shared_ptr<Instant> cutoff_ = std::make_shared<Instant>(Instant::max());
  Instant last_arrival_;
  Instant last_stream_arrival_{};  // of what stands for many; others pass it, but not the end
  std::shared_ptr<Pipe> pipe_ = std::make_shared<Pipe>();
  bool is_relayed_ = false;
  std::size_t side_ = 0;
  bool awaits_ = false;  // an acknowledgement, until the timer
  TimerId user_timer_;
  std::optional<Error> early_end_;  // the connection ended before start()
  Connection::Counters counters_;
};

}  // namespace swarmline
