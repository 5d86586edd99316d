// Any words at all to groups of a fabric, of both kinds: they are taken, or refused as corrupt, and
// nothing is read beyond what an allocation has. The first byte says which kind; then each word
// after who it is from and its length.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <vector>

#include "base/byte_ops.h"
#include "base/check.h"
#include "engine/fabric/device_fabric.h"
#include "engine/fabric/ipc_words.h"

namespace swarmline {
namespace {

class IdleStream final : public DeviceStream {
 public:
  void* native() override { return nullptr; }
  Result<bool> has_ended() override { return true; }
};

// Each handle is of an allocation of kBytes bytes.
class FuzzIpc final : public IpcApi {
 public:
  static constexpr std::size_t kBytes = 64;

  Result<void> choose_device() override { return {}; }
  Result<std::unique_ptr<DeviceStream>> make_stream() override {
    return std::make_unique<IdleStream>();
  }
  Result<SharedMemory> share(DeviceAddress, std::uint64_t) override { return SharedMemory{}; }
  Result<MappedMemory> map(const IpcHandle&) override { return MappedMemory{memory_, kBytes}; }
  void unmap(DeviceAddress mapped) override { SWARMLINE_CHECK(mapped == memory_); }
  Result<void> copy(DeviceStream&, DeviceAddress to, DeviceAddress from,
                    std::uint64_t bytes) override {
    SWARMLINE_CHECK(from >= memory_ && bytes <= kBytes &&
                    static_cast<std::size_t>(from - memory_) <= kBytes - bytes);
    std::memcpy(to, from, bytes);
    return {};
  }

 private:
  std::byte memory_[kBytes]{};
};

// Its communicators have been made at once, and what they are asked for never comes.
class FuzzNccl final : public NcclApi {
 public:
  int version() const override { return 22809; }
  Result<void> choose_device() override { return {}; }
  Result<std::unique_ptr<DeviceStream>> make_stream() override {
    return std::make_unique<IdleStream>();
  }
  Result<NcclId> make_id() override { return NcclId{}; }
  Result<NcclState> init(NcclCommunicator& made, const NcclId&, std::uint32_t,
                         std::uint32_t) override {
    made = this;
    return NcclState::kDone;
  }
  Result<NcclState> state(NcclCommunicator) override { return NcclState::kUnderWay; }
  Result<void> group_start() override { return {}; }
  Result<void> send(NcclCommunicator, DeviceStream&, std::uint32_t, DeviceAddress,
                    std::uint64_t) override {
    return {};
  }
  Result<void> receive(NcclCommunicator, DeviceStream&, std::uint32_t, DeviceAddress,
                       std::uint64_t) override {
    return {};
  }
  Result<NcclState> group_end(NcclCommunicator) override { return NcclState::kUnderWay; }
  Result<NcclState> finalize(NcclCommunicator) override { return NcclState::kDone; }
  Result<void> destroy(NcclCommunicator) override { return {}; }
  Result<void> abort(NcclCommunicator) override { return {}; }
};

// Without time: only what is posted runs.
class PostedOnly final : public Runtime {
 public:
  Instant now() const override { return {}; }
  TimerId call_at(Instant, std::function<void()>) override { return {1}; }
  void cancel(TimerId) override {}
  void post(std::function<void()> fn) override {
    const std::lock_guard lock(mutex_);
    posted_.push_back(std::move(fn));
  }
  double wall_seconds() const override { return 0; }

  void run() {
    for (;;) {
      std::unique_lock lock(mutex_);
      if (posted_.empty()) return;
      const auto fn = std::move(posted_.front());
      posted_.pop_front();
      lock.unlock();
      fn();
    }
  }

 private:
  std::mutex mutex_;
  std::deque<std::function<void()>> posted_;
};

void take_words(FabricKind kind, BytesView input) {
  constexpr std::uint32_t kRank = 1, kRanks = 3;
  constexpr std::size_t kBytes = 32;
  std::vector<std::byte> memory(8 * kBytes);
  const auto at = [&](std::size_t i) { return memory.data() + i * kBytes; };
  PostedOnly runtime;
  DeviceFabric fabric(runtime,
                      {.nccl = std::make_shared<FuzzNccl>(), .ipc = std::make_shared<FuzzIpc>()});
  const auto group = fabric.open(kind, kRank, kRanks, [](std::uint32_t to, const Buffer& word) {
    SWARMLINE_CHECK(to < kRanks && to != kRank && word.size() <= kFabricWordBytesMax);
  });
  using Way = FabricTransfer::Way;
  const FabricGroup::Done done = [](const Result<void>& result) {
    SWARMLINE_CHECK(result || result.error().code == ErrorCode::kDevice);
  };
  group->exchange({{Way::kReceive, 0, at(0), kBytes}, {Way::kReceive, 0, at(1), 1}}, done);
  group->exchange({{Way::kSend, 0, at(2), kBytes}, {Way::kReceive, 2, at(3), kBytes}}, done);
  group->exchange({}, done);
  group->exchange({{Way::kReceive, 0, at(4), kBytes}}, done);
  while (input.size() >= 2) {
    const auto from = std::to_integer<std::uint32_t>(input[0]) % 4;
    const std::size_t length =
        std::min<std::size_t>(std::to_integer<std::size_t>(input[1]), input.size() - 2);
    const Result<void> taken = group->on_word(from, input.subspan(2, length));
    SWARMLINE_CHECK(taken || taken.error().code == ErrorCode::kCorrupt);
    input = input.subspan(2 + length);
    runtime.run();
  }
}

}  // namespace
}  // namespace swarmline

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace swarmline;
  if (size == 0) return 0;
  const BytesView input(reinterpret_cast<const std::byte*>(data) + 1, size - 1);
  if (const auto word = parse_ipc_word(input)) {
    const Buffer again = std::visit([](const auto& parsed) { return to_word(parsed); }, *word);
    SWARMLINE_CHECK(same_bytes(again.bytes(), input));
  }
  take_words(data[0] % 2 == 0 ? FabricKind::kIpc : FabricKind::kNccl, input);
  return 0;
}
