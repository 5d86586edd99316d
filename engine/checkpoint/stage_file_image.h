// The bytes of a stage's safetensors file as they would lie on disk, without making them: a small
// header and views of the flat arenas. Peers send it in pieces, tools write it.
//   Ownership: the arenas are borrowed and must not change while the image is used (a frozen
//   snapshot). Thread:    const calls from any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "engine/checkpoint/safetensors.h"
#include "engine/model/model_spec.h"

namespace swarmline {

// One arena of a stage.
struct ArenaPart {
  std::string prefix;  // before each tensor's name
  ParameterLayout layout;
  BytesView arena;        // layout.bytes()
  bool with_tied = true;  // false: the slots from tied_offset on are stored by the other stage
};

class StageFileImage {
 public:
  // `contents[i]` are the bytes of `tensors[i]`; its offset and bytes are filled in.
  StageFileImage(std::vector<TensorInfo> tensors, const std::vector<BytesView>& contents,
                 const std::map<std::string, std::string>& metadata = {{"format", "pt"}});
  explicit StageFileImage(const std::vector<ArenaPart>& parts,
                          const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

  std::uint64_t size_bytes() const { return size_bytes_; }
  // Fills `out` from offset_bytes on; the range must lie within the file.
  void read(std::uint64_t offset_bytes, MutableBytes out) const;
  Buffer piece(std::uint64_t offset_bytes, std::uint64_t size_bytes_max) const;
  std::string sha256() const;  // of the whole file; reads it once a call

 private:
  struct Span {
    std::uint64_t offset;  // in the file
    BytesView bytes;
  };
  std::string header_;
  std::vector<Span> spans_;  // by offset, without gaps; the header is not among them
  std::uint64_t size_bytes_ = 0;
};

}  // namespace swarmline
