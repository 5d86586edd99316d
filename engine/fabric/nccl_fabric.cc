#include "engine/fabric/nccl_fabric.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "base/callback_guard.h"
#include "base/check.h"
#include "engine/fabric/fabric_turns.h"

namespace swarmline {
namespace {

constexpr std::array<char, 4> kIdWord{'N', 'c', 'I', '1'};
constexpr Duration kFinalizePause = std::chrono::milliseconds(1);

Buffer id_word(const NcclId& id) {
  Buffer word(kIdWord.size() + id.size());
  std::memcpy(word.data(), kIdWord.data(), kIdWord.size());
  std::ranges::copy(id, word.data() + kIdWord.size());
  return word;
}

std::optional<NcclId> id_in(BytesView word) {
  NcclId id;
  if (word.size() != kIdWord.size() + id.size() ||
      std::memcmp(word.data(), kIdWord.data(), kIdWord.size()) != 0)
    return std::nullopt;
  std::ranges::copy(word.subspan(kIdWord.size()), id.begin());
  return id;
}

// What the group's thread works on; only jobs touch it.
class NcclMember {
 public:
  NcclMember(std::shared_ptr<NcclApi> api, std::uint32_t rank, std::uint32_t ranks,
             Duration patience)
      : api_(std::move(api)), rank_(rank), ranks_(ranks), patience_(patience) {}

  Result<void> prepare() {
    SWARMLINE_TRY(api_->choose_device());
    auto stream = api_->make_stream();
    if (!stream) return std::unexpected(stream.error());
    stream_ = std::move(*stream);
    return {};
  }

  Result<NcclId> make_id() {
    auto id = api_->make_id();
    if (id) waits_ = *id;
    return id;
  }

  // Errors and what is cancelled leave no communicator, and nothing in the stream.
  Result<void> join(FabricThread& thread, const NcclId& id) {
    if (!stream_) return {};  // whose error has been said
    const Result<void> joined =
        settled(thread, api_->init(communicator_, id, rank_, ranks_), /*in_stream=*/false);
    if (!joined) quit(thread);
    if (joined) waits_.reset();
    return joined;
  }

  // False: none of an earlier job's errors is said twice.
  bool is_well() const { return communicator_ != nullptr; }

  Result<void> exchange(FabricThread& thread, const std::vector<FabricTransfer>& transfers) {
    const Result<void> exchanged = settled(thread, ask_for(transfers), /*in_stream=*/true);
    if (!exchanged) quit(thread);
    return exchanged;
  }

  void close(FabricThread& thread) {
    if (communicator_ && !has_finalized(thread)) abort();
    end_waiting(thread);
    stream_.reset();
  }

 private:
  Result<NcclState> ask_for(const std::vector<FabricTransfer>& transfers) {
    SWARMLINE_TRY(api_->group_start());
    Result<void> asked;
    for (const FabricTransfer& transfer : transfers) {
      if (asked)
        asked = transfer.way == FabricTransfer::Way::kSend
                    ? api_->send(communicator_, *stream_, transfer.with, transfer.memory,
                                 transfer.bytes)
                    : api_->receive(communicator_, *stream_, transfer.with, transfer.memory,
                                    transfer.bytes);
    }
    const Result<NcclState> ended = api_->group_end(communicator_);
    return asked ? ended : std::unexpected(asked.error());
  }

  // Waits for what was asked for; kStopped: cancelled.
  Result<void> settled(FabricThread& thread, Result<NcclState> state, bool in_stream) {
    const auto is_ready = [&] {
      if (state && *state == NcclState::kUnderWay) state = api_->state(communicator_);
      return !state || *state == NcclState::kDone;
    };
    if (!poll(thread, is_ready)) return cancelled();
    if (!state) return std::unexpected(state.error());
    if (!in_stream) return {};
    // What a lost member leaves undone shows in the communicator's state, not in the stream.
    Result<bool> ended = false;
    const auto has_ended = [&] {
      ended = stream_->has_ended();
      if (!ended || *ended) return true;
      state = api_->state(communicator_);
      return !state;
    };
    if (!poll(thread, has_ended)) return cancelled();
    if (!ended) return std::unexpected(ended.error());
    return state ? Result<void>() : std::unexpected(state.error());
  }

  static Result<void> cancelled() { return fail(ErrorCode::kStopped, "the group was dropped"); }

  void abort() {
    if (communicator_) (void)api_->abort(std::exchange(communicator_, nullptr));
  }

  // Nothing is in the stream any more. Who waits for this has a limit.
  void quit(FabricThread& thread) {
    abort();
    for (;;) {
      const Result<bool> ended = stream_->has_ended();
      if (!ended || *ended) return;
      thread.rest(kFinalizePause);
    }
  }

  bool has_finalized(FabricThread& thread) {
    return has_settled(thread, api_->finalize(communicator_)) &&
           api_->destroy(std::exchange(communicator_, nullptr));
  }

  // NCCL listens on a thread of its own until as many ranks have come as the first of them says,
  // and has no call that ends it. Who comes as the only rank is all of them; where others came
  // before it contradicts them, and NCCL stops listening, too, but does not answer (bootstrap.cc).
  void end_waiting(FabricThread& thread) {
    const std::optional<NcclId> id = std::exchange(waits_, std::nullopt);
    if (!id) return;
    has_settled(thread, api_->init(communicator_, *id, 0, 1));
    abort();
  }

  bool has_settled(FabricThread& thread, Result<NcclState> state) {
    for (Duration waited{}; state && *state == NcclState::kUnderWay; waited += kFinalizePause) {
      if (waited >= patience_) return false;
      thread.rest(kFinalizePause);
      state = api_->state(communicator_);
    }
    return state.has_value();
  }

  const std::shared_ptr<NcclApi> api_;
  const std::uint32_t rank_, ranks_;
  const Duration patience_;  // with NCCL's closing
  std::unique_ptr<DeviceStream> stream_;
  NcclCommunicator communicator_ = nullptr;
  std::optional<NcclId> waits_;  // made here; not all have come to it yet
};

class NcclGroup final : public FabricGroup {
 public:
  NcclGroup(Runtime& runtime, std::shared_ptr<NcclApi> api, FabricThreadKeeper& keeper,
            std::uint32_t rank, std::uint32_t ranks, Duration patience, Fabric::SendWord send_word)
      : runtime_(runtime),
        keeper_(keeper),
        rank_(rank),
        ranks_(ranks),
        send_word_(std::move(send_word)),
        member_(std::make_shared<NcclMember>(std::move(api), rank, ranks,
                                             std::min(patience, kNcclFinalizePatience))),
        thread_(std::make_unique<FabricThread>()),
        turns_(runtime, rank, ranks, patience,
               {.begin = [this](const auto& transfers) { begin(transfers); },
                .give_up = [this] { thread_->let_go(); }}) {
    // Copied by the thread, called on the control thread.
    on_id_ = guard_.wrap([this](const NcclId& id) { send_id(id); });
    on_turn_end_ = guard_.wrap([this](std::uint64_t turn) {
      if (!turns_.failure() && turns_.turn() == turn) turns_.end_turn();
    });
    on_error_ = guard_.wrap([this](Error error) { turns_.fail(std::move(error)); });
    thread_->run([this_thread = thread_.get(), member = member_, post = posts(), rank] {
      const Result<void> prepared = member->prepare();
      if (!prepared) return post.error(prepared.error());
      if (rank > 0 || this_thread->is_cancelled()) return;
      const Result<NcclId> id = member->make_id();
      if (!id) return post.error(id.error());
      post.id(*id);
    });
  }

  ~NcclGroup() override {
    thread_->let_go();
    thread_->finish([thread = thread_.get(), member = member_] { member->close(*thread); });
    keeper_.keep(std::move(thread_));
  }

  void exchange(std::vector<FabricTransfer> transfers, Done done) override {
    turns_.exchange(std::move(transfers), std::move(done));
  }

  Result<void> on_word(std::uint32_t from, BytesView word) override {
    const auto id = id_in(word);
    if (from != 0 || rank_ == 0 || !id || has_id_)
      return fail(ErrorCode::kCorrupt, "it is no word of this group over NCCL");
    join(*id);
    return {};
  }

 private:
  // How the thread says what has become of its jobs.
  struct Posts {
    Runtime& runtime;
    std::function<void(NcclId)> on_id;
    std::function<void(std::uint64_t)> on_turn_end;
    std::function<void(Error)> on_error;

    void id(const NcclId& id) const {
      runtime.post([on_id = on_id, id] { on_id(id); });
    }
    void turn_end(std::uint64_t turn) const {
      runtime.post([on_turn_end = on_turn_end, turn] { on_turn_end(turn); });
    }
    void error(Error error) const {
      if (error.code == ErrorCode::kStopped) return;
      runtime.post([on_error = on_error, error = std::move(error)] { on_error(error); });
    }
  };
  Posts posts() const {
    return {
        .runtime = runtime_, .on_id = on_id_, .on_turn_end = on_turn_end_, .on_error = on_error_};
  }

  void send_id(const NcclId& id) {
    for (std::uint32_t to = 1; to < ranks_; ++to) send_word_(to, id_word(id));
    join(id);
  }

  void join(const NcclId& id) {
    has_id_ = true;
    if (turns_.failure()) return;
    thread_->run([thread = thread_.get(), member = member_, post = posts(), id] {
      const Result<void> joined = member->join(*thread, id);
      if (!joined) post.error(joined.error());
    });
    if (turns_.has_turn()) begin(turns_.transfers());
  }

  void begin(const std::vector<FabricTransfer>& transfers) {
    if (!has_id_) return;
    thread_->run(
        [thread = thread_.get(), member = member_, post = posts(), transfers,
         turn = turns_.turn()] {
          if (!member->is_well()) return;
          const Result<void> exchanged = member->exchange(*thread, transfers);
          if (!exchanged) return post.error(exchanged.error());
          post.turn_end(turn);
        },
        FabricThread::With::kMemory);
  }

  Runtime& runtime_;
  FabricThreadKeeper& keeper_;
  const std::uint32_t rank_, ranks_;
  const Fabric::SendWord send_word_;
  bool has_id_ = false;
  std::function<void(NcclId)> on_id_;
  std::function<void(std::uint64_t)> on_turn_end_;
  std::function<void(Error)> on_error_;
  std::shared_ptr<NcclMember> member_;
  std::unique_ptr<FabricThread> thread_;
  FabricTurns turns_;
  CallbackGuard guard_;
};

}  // namespace

std::unique_ptr<FabricGroup> make_nccl_group(Runtime& runtime, std::shared_ptr<NcclApi> api,
                                             FabricThreadKeeper& keeper, std::uint32_t rank,
                                             std::uint32_t ranks, Duration patience,
                                             Fabric::SendWord send_word) {
  return std::make_unique<NcclGroup>(runtime, std::move(api), keeper, rank, ranks, patience,
                                     std::move(send_word));
}

}  // namespace swarmline
