// A peer's way to its coordinator: the first that answers, the next when that one is gone, and back
// to the same one for another seat.
//   What:      dials the addresses it knows in turn, says hello, hands on the welcome and what the
//              coordinator says; sends heartbeats, as often as the coordinator asks, and leaves
//              one that is silent for another address, where there is one. Who waits for its
//              welcome says that it lives, too: it may have a seat, and not have heard of it.
//   Patience:  a search ends with Hooks::on_end after so long. Each welcome costs the coordinator
//              records: who was welcomed more than kWelcomesInARow times, each soon after the one
//              before, dials again after pauses that double (knobs: rejoin_calm, rejoin_pause_max).
//   Terms:     of one run only the highest it has heard of counts; one that says less does not know
//              that its reign is over, and is left.
//   Ownership: owns the channel, the addresses, and which run and term it belongs to.
//   Thread:    control thread. Errors: those of the connection, to on_closed and on_end.
//   Bounds:    kCoordinatorsMax addresses; one connection at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/callback_guard.h"
#include "base/ids.h"
#include "base/limits.h"
#include "engine/data/data_manifest.h"
#include "engine/net/rpc.h"
#include "pipeline/protocol/message_kinds.h"

namespace swarmline {

class CoordinatorLink {
 public:
  static constexpr std::size_t kCoordinatorsMax = 16;
  static constexpr std::uint32_t kWelcomesInARow = 4;

  struct Hooks {
    std::function<wire::Hello()> hello;  // without run and term
    std::function<void(const wire::Welcome&, bool same_run)> on_welcome;
    // Before it gives a seat, it wants to know of the run's data.
    std::function<void(DataManifest)> on_data_wanted;
    std::function<void(const Frame&)> on_message;
    // The connection is gone. Whoever has no seat goes on with try_next().
    std::function<void(const Error&)> on_closed;
    std::function<void(int exit_code, const std::string& why)> on_end;  // the search is over
    std::function<wire::Heartbeat()> heartbeat;
    // What shows its seat to other peers, before on_welcome; may be empty.
    std::function<void(const std::string&)> on_certificate = {};
  };

  CoordinatorLink(Runtime& runtime, Network& network, Hooks hooks);

  void add_address(const Address& address);
  void set_patience(Duration patience) { patience_ = patience; }
  // From now on somebody is searched for, because of that, for as long as its patience lasts.
  void search(const std::string& why);
  void connect();
  void connect_again();               // after a pause
  void try_next(const Error& error);  // this one does not answer
  void leave_address() { ++tried_; }  // the next one is dialled first
  // Closes the connection unheard.
  void drop();
  void close();
  // What it says from now on is heard of nobody but the coordinator's end.
  void finish();

  void notify(Frame frame);
  // Without a coordinator the answer is kPeerGone.
  void call(Frame request, RpcChannel::Reply reply);
  void begin_heartbeats(Duration usual);  // zero: as before
  // The coordinator has not said another period than the usual one, or is to hear soon: one now.
  void beat_as_usual();
  void end_heartbeats() {
    ++beats_;
    beating_ = false;
    period_ = usual_;
  }

  bool connected() const { return channel_ != nullptr; }
  // Counts connections: what an earlier one says is late.
  std::uint32_t connection() const { return connection_; }
  // Whether the present link is authenticated.
  bool sealed() const { return channel_ && channel_->connection().peer_key().has_value(); }
  const std::string& run_id() const { return run_id_; }
  Term term() const { return term_; }
  Duration patience() const { return patience_; }
  void check_invariants() const;

 private:
  const Address& next_address() const { return addresses_[tried_ % addresses_.size()]; }
  void say_hello();
  void beat_until_answered(std::uint32_t connection);
  void on_welcome(const wire::Welcome& welcome);
  void on_data_wanted(const Frame& reply);
  void on_hello_failed(const Error& error);
  void on_message(const Frame& frame);
  void on_closed(const Error& error);
  void on_ack(const Frame& frame);
  void beat();
  void say_beat(const wire::Heartbeat& message);
  bool silent();
  Duration rejoin_pause() const;

  Runtime& runtime_;
  Network& network_;
  Hooks hooks_;
  std::vector<Address> addresses_;  // tried in turn
  std::size_t tried_ = 0;
  std::shared_ptr<RpcChannel> channel_;
  std::uint32_t connection_ = 0;
  bool awaits_welcome_ = false;
  bool finished_ = false;
  std::string run_id_;
  Term term_;  // the highest of this run
  // ---- Searching ----
  Duration patience_{};
  Instant search_until_{};
  std::string why_searching_;
  Instant welcomed_{};
  std::uint32_t welcomes_in_a_row_ = 0;
  // ---- Heartbeats ----
  Duration usual_ = Limits::heartbeat_period;
  Duration period_ = usual_;  // longer, where the coordinator asked for fewer
  bool spreads_ = false;      // the next one comes early: who is asked at once beats not at once
  std::uint32_t beats_ = 0;   // counts their beginnings and ends
  bool beating_ = false;
  Instant beat_due_{};
  Instant heard_{};
  CallbackGuard guard_;
};

}  // namespace swarmline
