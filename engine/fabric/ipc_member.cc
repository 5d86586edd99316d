#include "engine/fabric/ipc_member.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace swarmline {
namespace {

constexpr Duration kPause = std::chrono::milliseconds(1);

}  // namespace

Result<void> IpcMember::prepare() {
  SWARMLINE_TRY(api_->choose_device());
  auto stream = api_->make_stream();
  if (!stream) return std::unexpected(stream.error());
  stream_ = std::move(*stream);
  return {};
}

Result<std::vector<SharedMemory>> IpcMember::share(const std::vector<FabricTransfer>& transfers) {
  std::vector<SharedMemory> shared;
  for (const FabricTransfer& transfer : transfers) {
    const auto one = api_->share(transfer.memory, transfer.bytes);
    if (!one) return std::unexpected(one.error());
    shared.push_back(*one);
  }
  return shared;
}

Result<void> IpcMember::copy(FabricThread& thread, const std::vector<Copy>& copies) {
  if (!stream_) return fail(ErrorCode::kStopped, "the group has no stream");
  Result<void> begun;
  for (const Copy& copy : copies)
    if (begun) begun = begin(thread, copy);
  const Result<void> ended = wait_for_copies(thread);
  return begun ? ended : begun;
}

// A copy can't be stopped. Who waits for this has a limit.
Result<void> IpcMember::wait_for_copies(FabricThread& thread) {
  Result<bool> ended = false;
  const bool waited = poll(thread, [&] {
    ended = stream_->has_ended();
    return !ended || *ended;
  });
  for (; ended && !*ended; ended = stream_->has_ended()) thread.rest(kPause);
  if (!ended) return std::unexpected(ended.error());
  return waited ? Result<void>() : fail(ErrorCode::kStopped, "the group was dropped");
}

Result<void> IpcMember::begin(FabricThread& thread, const Copy& copy) {
  const auto& [handle, offset] = copy.from.memory;
  const auto memory = mapped(thread, handle);
  if (!memory) return std::unexpected(memory.error());
  if (offset > memory->bytes || copy.from.bytes > memory->bytes - offset)
    return fail(ErrorCode::kDevice,
                fmt::format("a member of the fabric's group offers {} bytes at {} of an allocation "
                            "of {} bytes",
                            copy.from.bytes, offset, memory->bytes));
  return api_->copy(*stream_, copy.to, memory->memory + offset, copy.from.bytes);
}

Result<MappedMemory> IpcMember::mapped(FabricThread& thread, const IpcHandle& handle) {
  const auto found =
      std::ranges::find_if(mapped_, [&](const Mapped& at) { return at.handle == handle; });
  if (found != mapped_.end()) {
    std::rotate(found, found + 1, mapped_.end());
    return mapped_.back().memory;
  }
  if (mapped_.size() >= kIpcMappedMax) {
    SWARMLINE_TRY(wait_for_copies(thread));  // one of this exchange may read it
    api_->unmap(mapped_.front().memory.memory);
    mapped_.pop_front();
  }
  const auto memory = api_->map(handle);
  if (!memory) return std::unexpected(memory.error());
  mapped_.push_back({handle, *memory});
  return *memory;
}

void IpcMember::close() {
  stream_.reset();
  for (const Mapped& mapped : std::exchange(mapped_, {})) api_->unmap(mapped.memory.memory);
}

}  // namespace swarmline
