// Runs the rounds of one peer: one per (phase, group), over whatever carries frames.
//   Ownership: a round's input and output are borrowed until it is done or retired.
//   Thread:    control thread. on_done is called inside start() or on_chunk().
//   Errors:    on_chunk: kCorrupt or kIncompatible for bytes that do not fit: the caller
//              disconnects the sender, as it does when start() says so of a chunk that was early.
//   Bounds:    chunks that arrive before this peer was told to seal are kept: kEarlyChunksMax and
//              kEarlyBytesMax in all, a window of each of two groups from one sender; strangers'
//              are dropped when the round starts.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/callback_guard.h"
#include "base/ids.h"
#include "engine/collective/butterfly.h"
#include "engine/collective/island.h"
#include "engine/net/frame.h"
#include "pipeline/protocol/messages.pb.h"

namespace swarmline {

struct RoundKey {
  Phase phase;
  GroupId group;
  RoundAttempt attempt;
  auto operator<=>(const RoundKey&) const = default;
};

class StageAverager {
 public:
  static constexpr std::size_t kEarlyChunksMax =
      ButterflyAllReduce::kWindowChunksMin * std::size_t{ButterflyAllReduce::kRanksMax};
  static constexpr std::uint64_t kEarlyBytesMax = 8 * kGiB;
  // Of two groups, and two attempts.
  static constexpr std::size_t kEarlyChunksOfOneMax = 4 * ButterflyAllReduce::kWindowChunksMax;

  struct Round {
    RoundKey key;
    std::vector<Seat> members;  // in rank order
    // Where some speak for others: `spec` is of those who speak. None: each speaks for itself.
    std::optional<IslandRanks> islands = {};
    ButterflySpec spec;
    BytesView input;
    MutableBytes output;
    Residual residual;  // empty: no error feedback
    // Where a device has the values: what is sent of them, by number of the chunk, and who hears of
    // each sum (ButterflyAllReduce). Without islands.
    std::vector<SharedBytes> parts = {};
    ButterflyAllReduce::OnSum on_sum = {};
    std::function<void(std::uint64_t bytes_sent)> on_done;
  };

  // `send`: of a frame whose payload is lent until its round is over (Connection::send_lent). Input
  // and output of a round are read until on_done, or until the round is ended otherwise.
  // `shares_memory`: what is sent to that member needs no checksums; empty: nobody does.
  // `later`: calls soon, from this thread, so that what else waits for it comes between the chunks
  // that are encoded; empty: all are at once.
  StageAverager(std::function<void(const Seat& to, Frame)> send,
                std::function<void(const Seat& from, const Error&)> disconnect,
                std::function<bool(const Seat& member)> shares_memory = {},
                std::function<void(std::function<void()>)> later = {});
  // Ends earlier attempts at the same group's round.
  Result<void> start(Round round);
  // Of codecs to those who share memory with this peer; start() does, too.
  void leave_out_checksums(Round& round) const;
  static Result<void> check(const Round& round);
  Result<void> on_chunk(const Seat& from, const Frame& frame);
  void retire(const Phase& phase);
  // Ends unfinished rounds of the phase (of one group): their members are not those any more.
  void abandon(const Phase& phase, std::optional<GroupId> group = {});
  bool reducing() const;
  // Unfinished rounds in which chunks go between this peer and `peer`.
  std::vector<RoundKey> waiting_for(const Seat& peer) const;

 private:
  struct Running {
    Round round;
    std::unique_ptr<AllReduce> reduce;
    Lender lender = {};  // of input and output
    bool announced = false;
  };
  struct Early {
    Seat from;
    Frame frame;
  };
  Result<void> feed_early(Running& running, const Early& early);
  Result<void> feed(Running& running, const Seat& from, const wire::ReduceChunk& chunk,
                    const Frame& frame);
  static std::unique_ptr<AllReduce> reduce_of(Round& round);
  // Chunks for as long as there are any, a few at a time.
  void hand_out(const RoundKey& key);
  void dispatch(Running& running, const ChunkSend& send);
  void announce(Running& running);
  void forget_early(const std::vector<Early>& early);
  void forget_before(const RoundKey& key);

  std::function<void(const Seat&, Frame)> send_;
  std::function<void(const Seat&, const Error&)> disconnect_;
  std::function<bool(const Seat&)> shares_memory_;
  std::function<void(std::function<void()>)> later_;
  std::map<RoundKey, Running> running_;
  std::map<RoundKey, std::vector<Early>> early_;
  std::size_t early_chunks_ = 0;
  std::uint64_t early_bytes_ = 0;
  std::map<PeerId, std::size_t> early_of_;
  std::map<PhaseKind, std::uint64_t> retired_below_;
  std::map<std::pair<Phase, GroupId>, RoundAttempt> attempts_;  // of a group, the newest
  CallbackGuard guard_;
};

}  // namespace swarmline
