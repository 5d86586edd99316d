// NCCL on this process's memory: members are threads. What is asked of a communicator is under way
// for a few looks at its state, and what is sent is read until it is received or aborted. An id is
// listened for until all ranks have come, or one that says another number of them.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/check.h"
#include "engine/fabric/fabric.h"
#include "engine/fabric/nccl_api.h"
#include "tests/contract/device_doubles.h"

namespace swarmline {

// What the members of all communicators share.
struct NcclDoubleWorld {
  struct Sent {
    DeviceAddress memory;
    std::uint64_t bytes;
    bool is_taken = false;
  };
  struct Group {
    std::uint32_t ranks = 0, joined = 0;
    bool listens = true;  // for ranks that come
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::deque<std::shared_ptr<Sent>>> sent;
  };
  std::mutex mutex;
  std::condition_variable changed;
  std::map<NcclId, std::shared_ptr<Group>> groups;
  unsigned ids = 0;
  int communicators = 0;  // neither destroyed nor aborted
  int listening = 0;      // for whom ids bring together
};

class NcclDouble final : public NcclApi {
 public:
  explicit NcclDouble(std::shared_ptr<NcclDoubleWorld> world) : world_(std::move(world)) {}

  FailingCalls& calls() { return calls_; }

  int version() const override { return 22809; }
  Result<void> choose_device() override { return calls_.check("choose_device"); }
  Result<std::unique_ptr<DeviceStream>> make_stream() override {
    SWARMLINE_TRY(calls_.check("make_stream"));
    return std::make_unique<DoubleStream>(calls_);
  }

  Result<NcclId> make_id() override {
    SWARMLINE_TRY(calls_.check("make_id"));
    const std::lock_guard lock(world_->mutex);
    NcclId id{};
    id.front() = static_cast<std::byte>(++world_->ids);
    world_->groups[id] = std::make_shared<NcclDoubleWorld::Group>();
    ++world_->listening;
    return id;
  }

  Result<NcclState> init(NcclCommunicator& made, const NcclId& id, std::uint32_t rank,
                         std::uint32_t ranks) override {
    const std::lock_guard lock(world_->mutex);
    const auto found = world_->groups.find(id);
    if (found == world_->groups.end()) return fail(ErrorCode::kDevice, "no such id");
    auto* const communicator = new Communicator{.group = found->second, .rank = rank};
    made = communicator;
    ++world_->communicators;
    SWARMLINE_TRY(calls_.check("init"));
    communicator->looks = kLooks;
    NcclDoubleWorld::Group& group = *communicator->group;
    communicator->is_heard = group.listens && (group.joined == 0 || group.ranks == ranks);
    if (communicator->is_heard) {
      group.ranks = ranks;
      ++group.joined;
    }
    if (group.listens && (!communicator->is_heard || group.joined == ranks)) {
      group.listens = false;
      --world_->listening;
    }
    return NcclState::kUnderWay;
  }

  Result<NcclState> state(NcclCommunicator of) override {
    SWARMLINE_TRY(calls_.check("state"));
    Communicator& communicator = in(of);
    const std::lock_guard lock(world_->mutex);
    if (!communicator.is_heard || communicator.group->joined < communicator.group->ranks)
      return NcclState::kUnderWay;
    if (communicator.looks > 0 && --communicator.looks > 0) return NcclState::kUnderWay;
    if (DoubleStream* const stream = std::exchange(communicator.stream, nullptr))
      stream->put([this, &communicator, work = std::exchange(communicator.asked, {})] {
        exchange(communicator, work);
      });
    return NcclState::kDone;
  }

  Result<void> group_start() override { return calls_.check("group_start"); }
  Result<void> send(NcclCommunicator of, DeviceStream& stream, std::uint32_t to,
                    DeviceAddress memory, std::uint64_t bytes) override {
    SWARMLINE_TRY(calls_.check("send"));
    return ask(in(of), stream, {FabricTransfer::Way::kSend, to, memory, bytes});
  }
  Result<void> receive(NcclCommunicator of, DeviceStream& stream, std::uint32_t from,
                       DeviceAddress memory, std::uint64_t bytes) override {
    SWARMLINE_TRY(calls_.check("receive"));
    return ask(in(of), stream, {FabricTransfer::Way::kReceive, from, memory, bytes});
  }
  Result<NcclState> group_end(NcclCommunicator of) override {
    SWARMLINE_TRY(calls_.check("group_end"));
    in(of).looks = kLooks;
    return NcclState::kUnderWay;
  }

  Result<NcclState> finalize(NcclCommunicator of) override {
    SWARMLINE_TRY(calls_.check("finalize"));
    in(of).looks = kLooks;
    return NcclState::kUnderWay;
  }
  Result<void> destroy(NcclCommunicator of) override {
    abort(of).value();
    return calls_.check("destroy");
  }
  Result<void> abort(NcclCommunicator of) override {
    const std::lock_guard lock(world_->mutex);
    Communicator& communicator = in(of);
    communicator.is_aborted = true;
    --world_->communicators;
    world_->changed.notify_all();
    // What streams still have of it keeps it.
    ended_.emplace_back(&communicator);
    return {};
  }

 private:
  static constexpr int kLooks = 3;
  struct Communicator {
    std::shared_ptr<NcclDoubleWorld::Group> group;
    std::uint32_t rank = 0;
    int looks = 0;
    bool is_heard = false;
    std::vector<FabricTransfer> asked = {};
    DoubleStream* stream = nullptr;
    bool is_aborted = false;  // under the world's mutex
  };
  static Communicator& in(NcclCommunicator of) { return *static_cast<Communicator*>(of); }

  static Result<void> ask(Communicator& communicator, DeviceStream& stream,
                          FabricTransfer transfer) {
    communicator.stream = &static_cast<DoubleStream&>(stream);
    communicator.asked.push_back(transfer);
    return {};
  }

  void exchange(Communicator& communicator, const std::vector<FabricTransfer>& transfers) {
    using Way = FabricTransfer::Way;
    std::unique_lock lock(world_->mutex);
    auto& group = *communicator.group;
    std::vector<std::shared_ptr<NcclDoubleWorld::Sent>> sent;
    for (const FabricTransfer& transfer : transfers) {
      if (transfer.way != Way::kSend) continue;
      sent.push_back(std::make_shared<NcclDoubleWorld::Sent>(transfer.memory, transfer.bytes));
      group.sent[{communicator.rank, transfer.with}].push_back(sent.back());
    }
    world_->changed.notify_all();
    const auto wait = [&](const auto& ready) {
      world_->changed.wait(lock, [&] { return communicator.is_aborted || ready(); });
      return !communicator.is_aborted;
    };
    for (const FabricTransfer& transfer : transfers) {
      if (transfer.way != Way::kReceive) continue;
      auto& from = group.sent[{transfer.with, communicator.rank}];
      if (!wait([&] { return !from.empty(); })) break;
      SWARMLINE_CHECK(from.front()->bytes == transfer.bytes);
      std::memcpy(transfer.memory, from.front()->memory, transfer.bytes);
      from.front()->is_taken = true;
      from.pop_front();
      world_->changed.notify_all();
    }
    for (const auto& one : sent) {
      if (wait([&] { return one->is_taken; })) continue;
      for (auto& [route, waiting] : group.sent)
        std::erase_if(waiting,
                      [&](const auto& at) { return std::ranges::find(sent, at) != sent.end(); });
      return;
    }
  }

  std::shared_ptr<NcclDoubleWorld> world_;
  FailingCalls calls_;
  std::vector<std::unique_ptr<Communicator>> ended_;
};

}  // namespace swarmline
