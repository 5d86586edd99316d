// Makes tokens of text: a folder that a run trains on (docs/prepare.md, docs/formats/prepared.md).
//   What:    reads, encodes and writes at once, on several threads; the files are the same whatever
//            their number, and whether it was interrupted: the same call goes on behind the last
//            file that is whole.
//   Thread:  one; it blocks until it is done.
//   Errors:  kUserMistake, kIo; what is whole stays. kRefused: another process prepares the folder.
//   Bounds:  a batch of kBatchBytesPerThread of text for each thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/data/prepared_manifest.h"
#include "engine/tokenizer/tokenizer.h"
#include "tools/prepare/block_encoder.h"
#include "tools/prepare/text_blocks.h"

namespace swarmline {

inline constexpr std::uint64_t kBatchBytesPerThread = 4 * kMiB;
inline constexpr std::uint64_t kShardTokens = 1U << 25;

struct PrepareProgress {
  std::uint64_t bytes = 0;      // of the inputs themselves
  std::uint64_t bytes_all = 0;  // 0: not known
  std::uint64_t text_bytes = 0;
  std::uint64_t documents = 0;
  std::uint64_t tokens = 0;
};

struct PrepareOptions {
  std::vector<TextInput> inputs;
  std::string folder;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::string tokenizer_name;  // for people
  DocumentRules rules;
  std::uint64_t shard_tokens = kShardTokens;
  std::string python = "python3";  // that reads Parquet
  std::uint32_t threads = 1;
  std::uint64_t batch_bytes = kBatchBytesPerThread;      // of text for each thread
  std::function<void(const PrepareProgress&)> progress;  // after each batch
  std::function<void(const std::string&)> warn;          // one line for people
};

struct Prepared {
  PreparedManifest manifest;
  bool was_there = false;         // nothing was left to do
  std::uint64_t kept_tokens = 0;  // that an earlier process had made
  std::uint64_t replaced = 0;     // bytes that were no UTF-8, of what was made now
  std::uint64_t skipped = 0;      // lines and rows that were left out
};

Result<Prepared> prepare_data(const PrepareOptions& options);

}  // namespace swarmline
