// Tokens into the files of a prepared folder, each with its SHA-256; what is whole stays when the
// process ends, however.
//   What:    a file ends with the block at which it has as many tokens as asked for; then it is
//            renamed into place and the folder's state is written.
//   Thread:  one. Errors: kIo with the path. Bounds: one block in memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/checkpoint/sha256.h"
#include "engine/store/files.h"
#include "tools/prepare/block_encoder.h"
#include "tools/prepare/prepare_state.h"

namespace swarmline {

class TokenShards {
 public:
  // `state`: of an earlier process, or a new one with everything but the files.
  TokenShards(std::string folder, std::uint64_t shard_tokens, PrepareState state);

  Result<void> add(const EncodedBlock& block, const InputPlace& after);
  // Ends the last file, and puts the manifest into place.
  Result<PreparedManifest> finish();
  const PreparedManifest& made() const { return state_.made; }

 private:
  Result<void> end_file(const InputPlace& after);

  std::string folder_;
  std::uint64_t shard_tokens_;
  PrepareState state_;
  std::optional<AtomicFile> file_;
  PreparedFile open_;  // what is in it
  std::uint64_t open_text_bytes_ = 0;
  Sha256 hash_;
  InputPlace after_;
};

}  // namespace swarmline
