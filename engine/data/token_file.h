// One file of ready tokens: raw little-endian uint16 or uint32 as nanoGPT writes, or llm.c's .bin
// (256 int32: magic 20240520, version 1, number of tokens, zeros; then uint16 tokens).
//   Ownership: the view borrows `file`. Thread: pure. Errors: kUserMistake, one sentence naming
//   `path`. Source:    llm.c dev/data/data_common.py; nanoGPT data/*/prepare.py.
#pragma once

#include <cstdint>
#include <string>

#include "base/bytes.h"
#include "base/result.h"
#include "engine/config/run_config.h"

namespace swarmline {

inline constexpr std::int32_t kLlmcMagic = 20240520;
inline constexpr std::int32_t kLlmcVersion = 1;
inline constexpr std::size_t kLlmcHeaderBytes = 256 * sizeof(std::int32_t);

struct TokenFileView {
  BytesView tokens;                // little-endian, `token_bytes` each
  std::uint32_t token_bytes = 2;   // 2 | 4
  std::uint64_t header_bytes = 0;  // before the tokens in the file
  std::uint64_t count() const { return tokens.size() / token_bytes; }
};

// kAuto: by llm.c's magic, else by extension: .u32.bin is uint32, other .bin uint16.
Result<TokenFileView> view_token_file(BytesView file, TokenFormat format, const std::string& path);

}  // namespace swarmline
