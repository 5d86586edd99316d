#include "engine/fabric/fabric_turns.h"

#include <utility>

#include <fmt/format.h>

#include "base/check.h"

namespace swarmline {
namespace {

bool overlap(const FabricTransfer& a, const FabricTransfer& b) {
  return a.memory < b.memory + b.bytes && b.memory < a.memory + a.bytes;
}

void check_transfers(const std::vector<FabricTransfer>& transfers, std::uint32_t rank,
                     std::uint32_t ranks) {
  for (std::size_t i = 0; i < transfers.size(); ++i) {
    const FabricTransfer& transfer = transfers[i];
    SWARMLINE_CHECK_MSG(
        transfer.with < ranks && transfer.with != rank,
        fmt::format("a transfer of rank {} names rank {} of {}", rank, transfer.with, ranks));
    SWARMLINE_CHECK_MSG(transfer.memory != nullptr && transfer.bytes > 0,
                        std::string("a transfer names no memory"));
    if (transfer.way != FabricTransfer::Way::kReceive) continue;
    for (std::size_t other = 0; other < transfers.size(); ++other)
      SWARMLINE_CHECK_MSG(other == i || !overlap(transfer, transfers[other]),
                          std::string("an exchange receives into memory that it names twice"));
  }
}

}  // namespace

FabricTurns::FabricTurns(Runtime& runtime, std::uint32_t rank, std::uint32_t ranks,
                         Duration patience, Backend backend)
    : runtime_(runtime),
      rank_(rank),
      ranks_(ranks),
      patience_(patience),
      backend_(std::move(backend)) {
  SWARMLINE_CHECK(ranks >= 2 && ranks <= kFabricRanksMax && rank < ranks);
}

FabricTurns::~FabricTurns() {
  runtime_.cancel(deadline_);
}

void FabricTurns::exchange(std::vector<FabricTransfer> transfers, FabricGroup::Done done) {
  check_transfers(transfers, rank_, ranks_);
  if (failure_) return say(std::move(done), std::unexpected(*failure_));
  SWARMLINE_CHECK_MSG(waiting_.size() < kFabricExchangesMax,
                      std::string("more exchanges wait than a fabric's group takes"));
  waiting_.push_back({std::move(transfers), std::move(done)});
  begin_next();
}

void FabricTurns::begin_next() {
  while (!in_turn_ && !waiting_.empty()) {
    in_turn_ = true;
    if (!waiting_.front().transfers.empty()) {
      deadline_ = runtime_.call_after(patience_, guard_.wrap([this] {
        fail({ErrorCode::kDeadline,
              fmt::format("exchange {} of the fabric's group has not ended within {:.3g} s",
                          turn_ + 1, to_seconds(patience_))});
      }));
      return backend_.begin(waiting_.front().transfers);
    }
    Exchange empty = std::move(waiting_.front());
    waiting_.pop_front();
    in_turn_ = false;
    ++turn_;
    say(std::move(empty.done), {});
  }
}

void FabricTurns::end_turn() {
  SWARMLINE_CHECK(in_turn_);
  runtime_.cancel(deadline_);
  Exchange ended = std::move(waiting_.front());
  waiting_.pop_front();
  in_turn_ = false;
  ++turn_;
  say(std::move(ended.done), {});
  begin_next();
}

void FabricTurns::fail(Error error) {
  if (failure_) return;
  failure_ = std::move(error);
  runtime_.cancel(deadline_);
  in_turn_ = false;
  backend_.give_up();
  for (Exchange& exchange : std::exchange(waiting_, {}))
    say(std::move(exchange.done), std::unexpected(*failure_));
}

void FabricTurns::say(FabricGroup::Done done, Result<void> result) {
  runtime_.post(guard_.wrap(
      [done = std::move(done), result = std::move(result)]() mutable { done(std::move(result)); }));
}

}  // namespace swarmline
