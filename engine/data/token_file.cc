#include "engine/data/token_file.h"

#include <bit>
#include <cstring>

#include <fmt/format.h>

namespace swarmline {

namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

std::int32_t header_word(BytesView file, std::size_t index) {
  std::int32_t word = 0;
  std::memcpy(&word, file.data() + index * sizeof word, sizeof word);
  return word;
}

bool starts_like_llmc(BytesView file) {
  return file.size() >= sizeof(std::int32_t) && header_word(file, 0) == kLlmcMagic;
}

Result<TokenFileView> view_llmc(BytesView file, const std::string& path) {
  if (file.size() < kLlmcHeaderBytes) {
    return fail(ErrorCode::kUserMistake,
                fmt::format("{}: {} bytes are too few for llm.c's header of {}: the file was cut "
                            "short, or is not in llm.c's format",
                            path, file.size(), kLlmcHeaderBytes));
  }
  if (const std::int32_t magic = header_word(file, 0); magic != kLlmcMagic) {
    return fail(ErrorCode::kUserMistake,
                fmt::format("{}: not an llm.c token file: it starts with {} instead of the magic "
                            "number {}; set [data] token_format to what it is",
                            path, magic, kLlmcMagic));
  }
  if (const std::int32_t version = header_word(file, 1); version != kLlmcVersion) {
    return fail(ErrorCode::kUserMistake,
                fmt::format("{}: llm.c token file of version {}; only version {} is understood",
                            path, version, kLlmcVersion));
  }
  const std::int32_t count = header_word(file, 2);
  const std::uint64_t bytes = file.size() - kLlmcHeaderBytes;
  if (count < 0 || static_cast<std::uint64_t>(count) * 2 != bytes) {
    return fail(ErrorCode::kUserMistake,
                fmt::format("{}: the header promises {} tokens of 2 bytes, but {} bytes follow it: "
                            "the file was cut short or is damaged",
                            path, count, bytes));
  }
  return TokenFileView{
      .tokens = file.subspan(kLlmcHeaderBytes), .token_bytes = 2, .header_bytes = kLlmcHeaderBytes};
}

Result<TokenFileView> view_raw(BytesView file, std::uint32_t token_bytes, const std::string& path) {
  if (file.size() % token_bytes != 0) {
    return fail(ErrorCode::kUserMistake,
                fmt::format("{}: {} bytes are no whole number of uint{} tokens: the file was cut "
                            "short, or [data] token_format is wrong",
                            path, file.size(), token_bytes * 8));
  }
  return TokenFileView{.tokens = file, .token_bytes = token_bytes};
}

}  // namespace

Result<TokenFileView> view_token_file(BytesView file, TokenFormat format, const std::string& path) {
  if (file.empty()) {
    return fail(ErrorCode::kUserMistake, fmt::format("{}: the file is empty", path));
  }
  switch (format) {
    case TokenFormat::kLlmC:
      return view_llmc(file, path);
    case TokenFormat::kUint16:
      return view_raw(file, 2, path);
    case TokenFormat::kUint32:
      return view_raw(file, 4, path);
    case TokenFormat::kAuto:
      break;
  }
  if (starts_like_llmc(file)) return view_llmc(file, path);
  if (path.ends_with(".u32.bin")) return view_raw(file, 4, path);
  if (path.ends_with(".bin")) return view_raw(file, 2, path);
  return fail(
      ErrorCode::kUserMistake,
      fmt::format("{}: cannot tell the token format (no llm.c header, and not a .bin file): "
                  "set [data] token_format to \"uint16\" or \"uint32\"",
                  path));
}

}  // namespace swarmline
