#include "sim/cluster/sim_checkpoints.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/checkpoint/safetensors.h"
#include "engine/checkpoint/sha256.h"

namespace swarmline {

namespace {

constexpr const char* kToken = "simulated";

class SimPartWriter final : public PartWriter {
 public:
  SimPartWriter(SimCheckpoints& kept, const PartFolder::Place& place)
      : kept_(kept), place_(place) {}
  Result<void> append(BytesView bytes) override {
    bytes_ += as_text(bytes);
    return {};
  }
  Result<void> finish() override {
    kept_.written()[{place_.attempt, {place_.stage, place_.part}}] = std::move(bytes_);
    return {};
  }

 private:
  SimCheckpoints& kept_;
  PartFolder::Place place_;
  std::string bytes_;
};

}  // namespace

// ---- What is kept -------------------------------------------------------------------------------

std::string SimCheckpoints::add(Checkpoint checkpoint) {
  if (complete_.size() == kKeptMax) complete_.pop_front();
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
  for (const auto& [part, file] : newest->files) {
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

void SimCheckpointSink::write_piece(CheckpointPart part, std::uint64_t offset, SharedBytes bytes,
                                    Done done) {
  after(DiskUse::kWrite, bytes.size(),
        [part, offset, bytes, done = std::move(done)](auto& open, Result<void> went) {
          if (!went) return done(went);
          std::string& file = open.files[part];
          if (file.size() < offset + bytes.size()) file.resize(offset + bytes.size());
          if (!bytes.empty()) std::memcpy(file.data() + offset, bytes.data(), bytes.size());
          done({});
        });
}

void SimCheckpointSink::finish_part(CheckpointPart part, std::uint64_t size,
                                    const std::string& sha256, Done done) {
  after(DiskUse::kSync, 0,
        [part, size, sha256, done = std::move(done)](auto& open, Result<void> went) {
          if (!went) return done(went);
          const std::string& file = open.files[part];
          if (file.size() != size || sha256_hex(as_bytes(file)) != sha256)
            return done(fail(ErrorCode::kCorrupt, "a stage file came damaged"));
          open.hashes[part] = sha256;
          done({});
        });
}

void SimCheckpointSink::adopt_part(CheckpointPart part, std::uint64_t size,
                                   const std::string& sha256, Done done) {
  after(DiskUse::kRead, 0,
        [this, part, size, sha256, done = std::move(done)](auto& open, Result<void> went) {
          if (!went) return done(went);
          const auto found = kept_.written().find({open.description.attempt, part});
          if (found == kept_.written().end() || found->second.size() != size)
            return done(fail(ErrorCode::kCorrupt, "a part is not what was written"));
          open.files[part] = std::move(found->second);
          open.hashes[part] = sha256;
          kept_.written().erase(found);
          done({});
        });
}

std::optional<CheckpointSink::Shared> SimCheckpointSink::shared() const {
  return Shared{.path = "memory:", .token = kToken};
}

void SimCheckpointSink::commit(Committed done) {
  after(DiskUse::kSync, 0, [this, done = std::move(done)](auto& open, Result<void> went) {
    if (!went) return done(std::unexpected(std::move(went).error()));
    done(kept_.add(std::move(open)));
  });
}

// ---- Written by peers ---------------------------------------------------------------------------

void SimPartFolder::run(std::function<Result<void>()> body,
                        std::function<void(Result<void>)> done) {
  const Instant when = kept_.disk().done_at(DiskUse::kSync, 0, runtime_.now());
  runtime_.call_at(when, [this, body = std::move(body), done = std::move(done)] {
    Result<void> went = sees_ ? kept_.disk().outcome(DiskUse::kWrite, runtime_.now()) : body();
    done(went && sees_ ? body() : std::move(went));
  });
}

Result<void> SimPartFolder::prove(const Place& place) {
  if (!sees_ || place.token != kToken) return fail(ErrorCode::kNotFound, "another folder");
  return {};
}

Result<std::unique_ptr<PartWriter>> SimPartFolder::create(const Place& place) {
  return std::make_unique<SimPartWriter>(kept_, place);
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
