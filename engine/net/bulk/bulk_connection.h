// A Connection of which payloads may go by a bulk link, and everything else as before. A frame
// whose payload goes that way travels as a ticket: the same frame, with kFrameFlagBulk and
// kBulkTicketBytes in the payload's place, that say how long the payload is, which of them it is,
// and, where the link wants it, its XXH3-64. At the other end the frame waits for its payload, and
// what came behind it waits, too: frames are delivered in the order in which they were sent.
//   Measured:  where both ends say so in offer and answer (BulkPolicy::measures), each sends the
//              other one trials, frames with kFrameFlagBulkTrial that carry a payload either way
//              (bulk_trial.h). They are frames like others, but that nobody above sees them: this
//              end answers each when its turn has come and its payload is here, with a frame of
//              both kFrameFlagBulkTrial and kFrameFlagReply. They leave while nothing else of this
//              end waits to. Until there is a verdict payloads go with their frames, and after it
//              as it says, in that direction alone. A verdict is kept for other connections to that
//              host; those that are made before it is there use their links. After kBulkTrialsTime
//              what is known decides, for this connection alone: a link whose trial was not
//              answered is not used, since 1 MiB takes no such time on one that works; any other
//              is.
//   Ownership: holds the connection beneath, which holds it until on_closed.
//   Thread:    control thread.
//   Errors:    as of a Connection. kCorrupt: a ticket that is none, of a payload for which that
//              kind has no room, or without a link. kPeerGone: a payload was lost with its link.
//              A link that ends and takes nothing along is done without. kCorrupt: a trial of an
//              end to which none was offered, and what bulk_trial.h says.
//   Bounds:    a payload's memory is taken when it is its turn, of what the kind has room for.
//              kBulkAheadBytesMax of frames and kBulkTicketsMax payloads are sent ahead of one
//              that has not left; the rest waits, and counts as unsent. At most
//              kBulkWaitingBytesMax, kBulkWaitingFramesMax wait for a payload here; beyond, and
//              where none of one has come for BulkDoorOptions::stalled_max, the connection ends.
//              A trial counts as any payload of the kind that this end named for it.
//   Streams:   an accepted connection whose first frame has kFrameFlagBulkStream belongs to the
//              link whose secret it says: its user hears on_closed(kStopped), and the link has it.
//   Close:     takes up to twice as long as beneath, where payloads are on their way.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "engine/net/bulk/bulk_door.h"
#include "engine/net/bulk/bulk_ticket.h"
#include "engine/net/network.h"

namespace swarmline {

inline constexpr std::uint64_t kBulkAheadBytesMax = 16 * kMiB;
inline constexpr std::size_t kBulkTicketsMax = 256;
inline constexpr std::uint16_t kBulkKindMax = 255;  // kinds are looked at up to this one
inline constexpr std::uint64_t kBulkWaitingBytesMax = 256 * kMiB;
inline constexpr std::size_t kBulkWaitingFramesMax = std::size_t{1} << 18U;
// A link that breaks with its process says so before the connection does.
inline constexpr Duration kBulkBrokenGrace = std::chrono::seconds(1);
inline constexpr Duration kBulkTrialsTime = std::chrono::seconds(5);        // for all of them
inline constexpr Duration kBulkTrialPause = std::chrono::milliseconds(10);  // to look again

class BulkConnection final : public Connection,
                             public std::enable_shared_from_this<BulkConnection> {
 public:
  BulkConnection(std::shared_ptr<BulkDoor::Shared> shared, std::shared_ptr<Connection> beneath);
  ~BulkConnection() override;

  // ---- How a link comes to be, said over the connection by who uses it ----
  // The end that dialled: what it offers; empty: nothing. Over a connection that leaves this
  // machine only where both ends have shown keys.
  std::string offer();
  // The end that was dialled: what it answers; empty: nothing. An offer that is none is counted,
  // and is nothing.
  std::string answer(std::string_view offered);
  // The end that dialled. kCorrupt: it is no answer to the offer.
  Result<void> take_answer(std::string_view answered);
  // The name of the way that payloads go; empty: with their frames.
  std::string way() const { return goes_over_link() ? way_ : std::string(); }

  void start(Handlers handlers) override;
  void believe(const ConnectionBounds& bounds) override;
  void send(Frame frame) override;
  void send_lent(Frame frame) override;
  void close() override;
  void abandon();  // what its door does with it when it ends
  std::uint64_t unsent_bytes() const override;
  Counters counters() const override;
  std::string remote() const override { return beneath_->remote(); }
  std::optional<KeyHash> peer_key() const override { return beneath_->peer_key(); }
  std::string admitted_as() const override { return beneath_->admitted_as(); }
  bool is_relayed() const override { return beneath_->is_relayed(); }
  bool shares_memory() const override { return goes_over_link() && !link_->needs_checksums(); }
  std::string local_host() const override { return beneath_->local_host(); }
  Ends ends() const override { return beneath_->ends(); }

 private:
  struct Leaving {
    std::uint64_t bytes;      // of the payload
    std::uint64_t ahead = 0;  // of frames that were sent after it and before the next
    bool is_trial = false;
  };
  struct Waiting {
    Frame frame;
    std::optional<BulkTicket> ticket = {};  // of a payload that is not here
  };

  std::optional<BulkPath> path() const;
  BulkBackend::Made once_made(std::string way);
  void made(const std::string& way, Result<std::shared_ptr<BulkLink>> link);
  void become_stream(const Frame& frame);
  bool is_alone() const;  // nothing goes, or went, another way
  bool may_send_ahead(const Frame& frame) const;
  void pass(Frame frame);
  void pass_beneath(Frame frame);
  void pass_over_link(Frame frame);
  void sent();
  void take(Frame frame);
  bool take_ticket(const Frame& frame);
  bool end_for(std::string what_came);  // false
  void wait_for(Frame frame, std::optional<BulkTicket> ticket);
  void ask_for_next();
  void arrived(std::uint64_t bytes_there);
  void received(Buffer payload);
  void deliver_ready();
  void deliver(Frame frame);
  void watch_stall();
  // Which way payloads go, where both ends measure it: bulk_measuring.cc.
  std::uint16_t kind_for_trials() const;
  bool is_measuring() const;
  bool goes_over_link() const;
  void choose_way();
  void watch_trials();
  void try_next();
  bool admit_trial(const Frame& frame);
  void answer_trial(const Frame& trial);
  void hear_answer(std::uint64_t number);
  void decide();
  void stop_measuring();
  void end_beneath(Error error);
  void end_link(const Error& error);
  void end(Error error);
  void end_later(Error error);
  void finish(Error error);
  Handlers let_go();
  bool is_over() const { return closing_ || closed_; }

  std::shared_ptr<BulkDoor::Shared> shared_;
  std::shared_ptr<Connection> beneath_;
  Handlers handlers_;
  ConnectionBounds bounds_;
  bool is_stranger_ = false;         // until believe()
  std::uint16_t stranger_kind_ = 0;  // in which a stream's first frame may come; 0: none
  bool has_heard_ = false;           // the first frame
  bool is_stream_ = false;           // of another connection's link, which uses it now
  // ---- The link ----
  BulkOffer offered_;
  std::string way_;
  bool meets_ = false;  // it is being made
  bool had_link_ = false;
  std::shared_ptr<BulkLink> link_;
  // ---- Which way payloads go ----
  std::uint16_t own_trial_kind_ = 0, their_trial_kind_ = 0;  // 0: that end takes none
  std::optional<BulkTrials> trials_;                         // of what leaves
  BulkTrialsTaken trials_taken_;                             // of what comes
  SharedBytes trial_payload_;
  std::int64_t trial_pauses_left_ = 0;
  TimerId trial_timer_;
  std::shared_ptr<BulkDoor::Measured> measured_;  // null: the link is taken
  // ---- What leaves ----
  std::deque<Leaving> leaving_;  // payloads that the link has
  std::uint64_t leaving_bytes_ = 0, ahead_bytes_ = 0;
  std::deque<Frame> held_;  // not sent yet, so that not too much is sent ahead
  std::uint64_t held_bytes_ = 0;
  std::uint64_t next_out_ = 0;
  // ---- What comes ----
  std::deque<Waiting> waiting_;  // in order; the first one waits for its payload
  std::uint64_t waiting_bytes_ = 0;
  std::uint64_t next_in_ = 0;
  const std::byte* filling_ = nullptr;  // the buffer that the link has; null: none
  std::uint64_t filled_ = 0, first_filled_ = 0, reported_ = 0;
  std::optional<Instant> filling_since_;
  std::uint64_t seen_filled_ = 0;  // by the stall's timer
  Instant stall_due_{};
  Counters over_link_;  // what the counters beneath don't have
  TimerId stall_timer_, end_timer_;
  std::optional<Error> beneath_ended_;  // and payloads that have left are still to come
  std::optional<Error> ending_;         // why this end ends it
  bool closing_ = false, closed_ = false;
};

}  // namespace swarmline
