#include "sim/cluster/sim_checkpoints.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/checkpoint/safetensors.h"
#include "engine/checkpoint/sha256.h"

namespace swarmline {

// ---- What is kept -------------------------------------------------------------------------------

std::string SimCheckpoints::add(Checkpoint checkpoint) {
  complete_.push_back(std::move(checkpoint));
  return "memory:" + complete_.back().description.name;
}

Result<std::optional<CheckpointSource::Saved>> SimCheckpoints::open_newest(
    std::map<std::string, BytesView>& tensors) const {
  tensors.clear();
  const auto whole = [](const Checkpoint& checkpoint) {
    return checkpoint.description.optimizer_state &&
           std::ranges::all_of(checkpoint.files, [&](const auto& file) {
             return sha256_hex(as_bytes(file.second)) == checkpoint.hashes.at(file.first);
           });
  };
  const auto newest = std::find_if(complete_.rbegin(), complete_.rend(), whole);
  if (newest == complete_.rend()) return std::nullopt;
  for (const auto& [stage, file] : newest->files) {
    const BytesView bytes = as_bytes(file);
    auto header = parse_safetensors(bytes, "memory");
    if (!header) return std::unexpected(std::move(header).error());
    for (const TensorInfo& tensor : header->tensors)
      tensors[tensor.name] = bytes.subspan(header->data_start + tensor.offset, tensor.bytes);
  }
  return CheckpointSource::Saved{.version = newest->description.version,
                                 .updates = newest->description.updates,
                                 .path = "memory:" + newest->description.name};
}

void SimCheckpoints::damage_newest() {
  complete_.back().files.rbegin()->second.back() ^= 1;
}

// ---- Writing ------------------------------------------------------------------------------------

void SimCheckpointSink::after(DiskUse use, std::uint64_t bytes,
                              std::function<void(SimCheckpoints::Checkpoint&, Result<void>)> then) {
  const Instant done = kept_.disk().done_at(use, bytes, runtime_.now());
  runtime_.call_at(done, [this, use, open = writing_, then = std::move(then)] {
    then(*open, kept_.disk().outcome(use, runtime_.now()));
  });
}

void SimCheckpointSink::begin(const Description& description, Done done) {
  writing_ = std::make_shared<SimCheckpoints::Checkpoint>();
  writing_->description = description;
  after(DiskUse::kWrite, 0, [done = std::move(done)](auto&, Result<void> went) { done(went); });
}

void SimCheckpointSink::write_piece(StageId stage, std::uint64_t offset, SharedBytes bytes,
                                    Done done) {
  after(DiskUse::kWrite, bytes.size(),
        [stage, offset, bytes, done = std::move(done)](auto& open, Result<void> went) {
          if (!went) return done(went);
          std::string& file = open.files[stage];
          if (file.size() < offset + bytes.size()) file.resize(offset + bytes.size());
          if (!bytes.empty()) std::memcpy(file.data() + offset, bytes.data(), bytes.size());
          done({});
        });
}

void SimCheckpointSink::finish_stage(StageId stage, std::uint64_t size, const std::string& sha256,
                                     Done done) {
  after(DiskUse::kSync, 0,
        [stage, size, sha256, done = std::move(done)](auto& open, Result<void> went) {
          if (!went) return done(went);
          const std::string& file = open.files[stage];
          if (file.size() != size || sha256_hex(as_bytes(file)) != sha256)
            return done(fail(ErrorCode::kCorrupt, "a stage file came damaged"));
          open.hashes[stage] = sha256;
          done({});
        });
}

void SimCheckpointSink::commit(Committed done) {
  after(DiskUse::kSync, 0, [this, done = std::move(done)](auto& open, Result<void> went) {
    if (!went) return done(std::unexpected(std::move(went).error()));
    done(kept_.add(std::move(open)));
  });
}

// ---- Reading ------------------------------------------------------------------------------------

void SimCheckpointSource::open_newest(Opened done) {
  runtime_.call_after(reading_, [this, done = std::move(done)] {
    if (auto read = kept_.disk().outcome(DiskUse::kRead, runtime_.now()); !read)
      return done(std::unexpected(std::move(read).error()));
    done(kept_.open_newest(tensors_));
  });
}

Result<BytesView> SimCheckpointSource::tensor(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) return fail(ErrorCode::kNotFound, "no tensor " + name);
  return found->second;
}

}  // namespace swarmline
