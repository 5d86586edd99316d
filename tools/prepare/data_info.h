// What a prepared folder, a file of tokens or a text is, for people.
//   Errors: kUserMistake with the path; with `verify` also where a hash differs (kCorrupt).
//   Thread: one; it reads what it tells of, of a text and of tokens without a manifest all of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"

namespace swarmline {

struct DataInfo {
  std::string path;
  std::string kind;    // "prepared folder", "token file", "text", "JSONL"
  std::string format;  // "uint16", "llm.c, uint16", "gzip", ...
  std::uint64_t files = 1;
  std::uint64_t bytes = 0;  // of the files
  std::optional<std::uint64_t> tokens;
  std::optional<std::uint64_t> documents;
  std::optional<std::uint64_t> text_bytes;
  std::optional<std::uint32_t> vocab;    // of its tokenizer
  std::optional<std::uint32_t> largest;  // token that is there
  std::optional<std::uint32_t> document_begin, document_end;
  std::string tokenizer;  // what it is, and its name
  std::string sample;     // how it begins
  bool verified = false;  // all hashes were compared
};

struct DataInfoOptions {
  bool verify = false;
  std::string text_key = "text";
};

Result<DataInfo> look_at_data(const std::string& path, const DataInfoOptions& options);

std::string to_text(const DataInfo& info);
std::string to_json(const DataInfo& info);  // docs/formats/prepared.md

}  // namespace swarmline
