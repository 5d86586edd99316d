#include "pipeline/stage/state/frozen_state.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/marks.h"
#include "engine/checkpoint/sha256.h"
#include "pipeline/protocol/knobs.h"
#include "pipeline/protocol/message_kinds.h"

namespace swarmline {

Result<void> FrozenState::freeze(std::uint64_t version, Version committed) {
  if (version != committed.value)
    return fail(ErrorCode::kIncompatible,
                fmt::format("asked to freeze version {}, has {}", version, committed.value));
  auto frozen = std::make_shared<Copy>();
  frozen->version = committed;
  auto copy = std::make_shared<Buffer>();
  jobs_.run(
      [this, copy]() -> Result<void> {
        auto made = context_.state.save();
        if (!made) return std::unexpected(std::move(made).error());
        *copy = std::move(*made);
        return {};
      },
      [this, frozen, copy] {
        frozen->bytes = SharedBytes(std::move(*copy));
        hash_next(frozen);
      });
  return {};
}

void FrozenState::hash_next(const std::shared_ptr<Copy>& copy) {
  const std::uint64_t first = copy->hashes.size() * knobs().state_piece_bytes;
  if (first >= copy->bytes.size()) return is_here(copy);
  const std::uint64_t size =
      std::min<std::uint64_t>(knobs().state_piece_bytes, copy->bytes.size() - first);
  auto hash = std::make_shared<std::string>();
  jobs_.run(
      [copy, first, size, hash]() -> Result<void> {
        *hash = sha256_hex(copy->bytes.view().subspan(first, size));
        return {};
      },
      [this, copy, hash] {
        copy->hashes.push_back(*hash);
        hash_next(copy);
      });
}

void FrozenState::is_here(const std::shared_ptr<Copy>& copy) {
  here_ = copy;
  used_ = context_.runtime.now();
  expire();
  wire::StateFrozen done;
  *done.mutable_seat() = to_wire(context_.self);
  done.set_version(copy->version.value);
  done.set_bytes(copy->bytes.size());
  for (const std::string& hash : copy->hashes) done.add_hashes(hash);
  context_.notify_coordinator(make_frame(MessageKind::kStateFrozen, done));
}

void FrozenState::expire() {
  context_.runtime.call_after(knobs().frozen_idle, guard_.wrap([this, frozen = here_] {
    if (here_ != frozen) return;
    if (context_.runtime.now() - used_ < knobs().frozen_idle) return expire();
    SWARMLINE_MARK("state.frozen_let_go");
    here_.reset();
  }));
}

BytesView FrozenState::use() {
  if (!here_) return {};
  used_ = context_.runtime.now();
  return here_->bytes.view();
}

void FrozenState::check_invariants() const {
  if (!here_) return;
  SWARMLINE_CHECK(here_->hashes.size() * knobs().state_piece_bytes >= here_->bytes.size());
}

}  // namespace swarmline
