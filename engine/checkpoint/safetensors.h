// safetensors, strictly: u64 little-endian length N, N bytes of JSON, then the tensors' bytes back
// to back, row-major little-endian. Everything a header says is checked before it is believed:
// length limit, JSON without repeated keys, known dtypes, shapes whose product is the byte range,
// ranges that cover the data exactly without a gap or an overlap.
//   Ownership: a SafetensorsFile keeps its mapping; views borrow it. Thread: immutable once made.
//   Errors:    kCorrupt (bytes that are no safetensors), kIncompatible (a dtype this engine has
//              not), kNotFound, kIo; the file is in the sentence.
//   Bounds:    Limits::safetensors_header_bytes_max; kTensorRankMax dimensions.
//   Source:    https://huggingface.co/docs/safetensors, format section.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/dtype.h"
#include "base/result.h"
#include "engine/store/files.h"

namespace swarmline {

inline constexpr std::size_t kTensorRankMax = 8;
// The header is padded with spaces so that the data starts on such a boundary.
inline constexpr std::uint64_t kSafetensorsAlignment = 64;

struct TensorInfo {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;  // () is a scalar
  std::uint64_t offset = 0;         // bytes from the start of the data
  std::uint64_t bytes = 0;
};

struct SafetensorsHeader {
  std::uint64_t data_start = 0;                 // bytes from the start of the file
  std::vector<TensorInfo> tensors;              // by offset
  std::map<std::string, std::string> metadata;  // "__metadata__"
};

// `file`: the whole file. `path` is for sentences only.
Result<SafetensorsHeader> parse_safetensors(BytesView file, const std::string& path);

// The first bytes of a file with these tensors in this order; offset and bytes are filled in. Names
// must differ, and the shapes' bytes must not overflow (CHECKed).
struct SafetensorsLayout {
  std::string header;       // length, JSON, padding
  std::uint64_t bytes = 0;  // of the whole file
  std::vector<TensorInfo> tensors;
};
SafetensorsLayout lay_out_safetensors(std::vector<TensorInfo> tensors,
                                      const std::map<std::string, std::string>& metadata);

class SafetensorsFile {
 public:
  static Result<SafetensorsFile> open(const std::string& path);
  const std::vector<TensorInfo>& tensors() const { return header_.tensors; }
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }
  const TensorInfo* find(const std::string& name) const;  // nullptr: none
  BytesView bytes(const TensorInfo& tensor) const;        // one of tensors()
  BytesView file_bytes() const { return file_->bytes(); }
  const std::string& path() const { return file_->path(); }

 private:
  SafetensorsFile() = default;
  std::shared_ptr<const MappedFile> file_;
  SafetensorsHeader header_;
  std::map<std::string, std::size_t> by_name_;
};

}  // namespace swarmline
