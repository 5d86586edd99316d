#include "engine/fabric/ipc_fabric.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "base/callback_guard.h"
#include "base/check.h"
#include "engine/fabric/fabric_turns.h"
#include "engine/fabric/ipc_member.h"
#include "engine/fabric/ipc_words.h"

namespace swarmline {
namespace {

using Way = FabricTransfer::Way;

class IpcGroup final : public FabricGroup {
 public:
  IpcGroup(Runtime& runtime, std::shared_ptr<IpcApi> api, FabricThreadKeeper& keeper,
           std::uint32_t rank, std::uint32_t ranks, Duration patience, Fabric::SendWord send_word)
      : runtime_(runtime),
        keeper_(keeper),
        rank_(rank),
        send_word_(std::move(send_word)),
        others_(ranks),
        member_(std::make_shared<IpcMember>(std::move(api))),
        thread_(std::make_unique<FabricThread>()),
        turns_(runtime, rank, ranks, patience,
               {.begin = [this](const auto& transfers) { begin(transfers); },
                .give_up = [this] { thread_->let_go(); }}) {
    on_error_ = guard_.wrap([this](Error error) { turns_.fail(std::move(error)); });
    on_shared_ = guard_.wrap([this](const std::vector<SharedMemory>& shared) { offer(shared); });
    on_copied_ = guard_.wrap([this](std::uint32_t from) { copied(from); });
    run([member = member_](const Posts& post) {
      if (const auto prepared = member->prepare(); !prepared) post.error(prepared.error());
    });
  }

  ~IpcGroup() override {
    thread_->let_go();
    thread_->finish([member = member_] { member->close(); });
    keeper_.keep(std::move(thread_));
  }

  void exchange(std::vector<FabricTransfer> transfers, Done done) override {
    for (std::uint32_t with = 0; with < others_.size(); ++with)
      SWARMLINE_CHECK(std::ranges::count(transfers, with, &FabricTransfer::with) <=
                      std::ptrdiff_t{kIpcTransfersMax});
    turns_.exchange(std::move(transfers), std::move(done));
  }

  Result<void> on_word(std::uint32_t from, BytesView word) override {
    const auto parsed = parse_ipc_word(word);
    if (from >= others_.size() || from == rank_ || !parsed) return corrupt();
    if (const auto* const taken = std::get_if<IpcTaken>(&*parsed)) return on_taken(from, *taken);
    return on_offer(from, std::get<IpcOffer>(*parsed));
  }

 private:
  // How the thread says what has become of its jobs.
  struct Posts {
    Runtime& runtime;
    std::function<void(Error)> on_error;
    std::function<void(std::vector<SharedMemory>)> on_shared;
    std::function<void(std::uint32_t)> on_copied;

    void error(const Error& error) const {
      if (error.code == ErrorCode::kStopped) return;
      runtime.post([on_error = on_error, error] { on_error(error); });
    }
    void shared(std::vector<SharedMemory> shared) const {
      runtime.post(
          [on_shared = on_shared, shared = std::move(shared)] { on_shared(std::move(shared)); });
    }
    void copied(std::uint32_t from) const {
      runtime.post([on_copied = on_copied, from] { on_copied(from); });
    }
  };

  // Another member, as this one sees it.
  struct Other {
    std::vector<IpcOffer> offers;   // of one turn; as many as have come
    bool awaits_taken = false;      // of the turn under way: what it is sent is not taken yet
    bool awaits_copy = false;       // ... what it sends is not there yet
    bool copies = false;            // ... is being copied
    std::uint64_t offers_from = 0;  // turns before this one have been offered, or go without
  };

  static Result<void> corrupt() {
    return swarmline::fail(ErrorCode::kCorrupt, "it is no word of this group over CUDA's IPC");
  }

  void run(std::function<void(const Posts&)> job,
           FabricThread::With with = FabricThread::With::kNothing) {
    thread_->run([job = std::move(job), post = Posts{.runtime = runtime_,
                                                     .on_error = on_error_,
                                                     .on_shared = on_shared_,
                                                     .on_copied = on_copied_}] { job(post); },
                 with);
  }

  static std::vector<FabricTransfer> transfers_of(const std::vector<FabricTransfer>& transfers,
                                                  Way way) {
    std::vector<FabricTransfer> found;
    std::ranges::copy_if(transfers, std::back_inserter(found),
                         [way](const auto& transfer) { return transfer.way == way; });
    return found;
  }
  static std::vector<FabricTransfer> transfers_with(const std::vector<FabricTransfer>& transfers,
                                                    Way way, std::uint32_t with) {
    std::vector<FabricTransfer> found = transfers_of(transfers, way);
    std::erase_if(found, [with](const auto& transfer) { return transfer.with != with; });
    return found;
  }

  void begin(const std::vector<FabricTransfer>& transfers) {
    has_offered_ = false;
    for (const FabricTransfer& transfer : transfers) {
      Other& other = others_[transfer.with];
      (transfer.way == Way::kSend ? other.awaits_taken : other.awaits_copy) = true;
    }
    if (auto sends = transfers_of(transfers, Way::kSend); !sends.empty())
      run([member = member_, sends = std::move(sends)](const Posts& post) {
        auto shared = member->share(sends);
        if (!shared) return post.error(shared.error());
        post.shared(std::move(*shared));
      });
    // An offer that does not fit ends the turn.
    for (std::uint32_t from = 0; from < others_.size() && !turns_.failure(); ++from) take(from);
  }

  // What is sent in this turn lies there.
  void offer(const std::vector<SharedMemory>& shared) {
    if (turns_.failure()) return;
    const auto sends = transfers_of(turns_.transfers(), Way::kSend);
    SWARMLINE_CHECK(sends.size() == shared.size());
    has_offered_ = true;
    std::vector<std::uint32_t> indices(others_.size());
    for (std::size_t i = 0; i < sends.size(); ++i) {
      const std::uint32_t to = sends[i].with;
      const auto count =
          static_cast<std::uint32_t>(std::ranges::count(sends, to, &FabricTransfer::with));
      send_word_(to, to_word(IpcOffer{.turn = turns_.turn(),
                                      .index = indices[to]++,
                                      .count = count,
                                      .bytes = sends[i].bytes,
                                      .memory = shared[i]}));
    }
  }

  Result<void> on_offer(std::uint32_t from, const IpcOffer& offer) {
    Other& other = others_[from];
    if (turns_.failure()) return {};
    const bool is_next = other.offers.empty() ? offer.index == 0 && offer.turn >= other.offers_from
                                              : offer.index == other.offers.size() &&
                                                    offer.count == other.offers.front().count &&
                                                    offer.turn == other.offers.front().turn;
    if (!is_next || offer.turn < turns_.turn()) return corrupt();
    other.offers.push_back(offer);
    if (turns_.has_turn()) take(from);
    return {};
  }

  // Copies what a member offers, once all of it is known and this one has the same turn.
  void take(std::uint32_t from) {
    Other& other = others_[from];
    if (other.offers.empty() || other.copies) return;
    const IpcOffer& first = other.offers.front();
    if (first.turn > turns_.turn() || other.offers.size() < first.count) return;
    const auto receives = transfers_with(turns_.transfers(), Way::kReceive, from);
    const bool fit =
        first.turn == turns_.turn() &&
        std::ranges::equal(receives, other.offers, {}, &FabricTransfer::bytes, &IpcOffer::bytes);
    if (!fit)
      return turns_.fail(
          {ErrorCode::kDevice, fmt::format("exchange {} of the fabric's group: rank {} sends other "
                                           "transfers than rank {} receives",
                                           first.turn + 1, from, rank_)});
    std::vector<IpcMember::Copy> copies;
    for (std::size_t i = 0; i < receives.size(); ++i)
      copies.push_back({.from = other.offers[i], .to = receives[i].memory});
    other.copies = true;
    run(
        [thread = thread_.get(), member = member_, copies = std::move(copies),
         from](const Posts& post) {
          const Result<void> copied = member->copy(*thread, copies);
          if (!copied) return post.error(copied.error());
          post.copied(from);
        },
        FabricThread::With::kMemory);
  }

  void copied(std::uint32_t from) {
    if (turns_.failure()) return;
    Other& other = others_[from];
    other.offers.clear();
    other.offers_from = turns_.turn() + 1;
    other.copies = other.awaits_copy = false;
    send_word_(from, to_word(IpcTaken{.turn = turns_.turn()}));
    end_turn_if_done();
  }

  Result<void> on_taken(std::uint32_t from, const IpcTaken& taken) {
    if (turns_.failure()) return {};
    Other& other = others_[from];
    if (!turns_.has_turn() || taken.turn != turns_.turn() || !has_offered_ || !other.awaits_taken)
      return corrupt();
    other.awaits_taken = false;
    end_turn_if_done();
    return {};
  }

  void end_turn_if_done() {
    if (std::ranges::none_of(
            others_, [](const Other& other) { return other.awaits_taken || other.awaits_copy; }))
      turns_.end_turn();
  }

  Runtime& runtime_;
  FabricThreadKeeper& keeper_;
  const std::uint32_t rank_;
  const Fabric::SendWord send_word_;
  std::vector<Other> others_;  // by rank
  bool has_offered_ = false;   // what is sent in the turn under way
  std::function<void(Error)> on_error_;
  std::function<void(std::vector<SharedMemory>)> on_shared_;
  std::function<void(std::uint32_t)> on_copied_;
  std::shared_ptr<IpcMember> member_;
  std::unique_ptr<FabricThread> thread_;
  FabricTurns turns_;
  CallbackGuard guard_;
};

}  // namespace

std::unique_ptr<FabricGroup> make_ipc_group(Runtime& runtime, std::shared_ptr<IpcApi> api,
                                            FabricThreadKeeper& keeper, std::uint32_t rank,
                                            std::uint32_t ranks, Duration patience,
                                            Fabric::SendWord send_word) {
  return std::make_unique<IpcGroup>(runtime, std::move(api), keeper, rank, ranks, patience,
                                    std::move(send_word));
}

}  // namespace swarmline
