#include "engine/checkpoint/stage_file_image.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "base/check.h"
#include "base/limits.h"
#include "engine/checkpoint/safetensors.h"
#include "engine/checkpoint/sha256.h"

namespace swarmline {

StageFileImage::StageFileImage(const std::vector<ArenaPart>& parts,
                               const std::map<std::string, std::string>& metadata) {
  std::vector<TensorInfo> tensors;
  std::vector<BytesView> contents;
  for (const ArenaPart& part : parts) {
    SWARMLINE_CHECK(part.arena.size() == part.layout.bytes());
    const std::size_t element_bytes = swarmline::size_bytes(part.layout.dtype);
    for (const ParameterSlot& slot : part.layout.slots) {
      if (!part.with_tied && slot.offset >= part.layout.tied_offset) continue;
      tensors.push_back(TensorInfo{
          .name = part.prefix + slot.name, .dtype = part.layout.dtype, .shape = slot.shape});
      contents.push_back(
          part.arena.subspan(slot.offset * element_bytes, slot.elements * element_bytes));
    }
  }

  *this = StageFileImage(std::move(tensors), contents, metadata);
}

StageFileImage::StageFileImage(std::vector<TensorInfo> tensors,
                               const std::vector<BytesView>& contents,
                               const std::map<std::string, std::string>& metadata) {
  SWARMLINE_CHECK(tensors.size() == contents.size());
  SafetensorsLayout layout = lay_out_safetensors(std::move(tensors), metadata);
  header_ = std::move(layout.header);
  size_bytes_ = layout.bytes;
  for (std::size_t i = 0; i < contents.size(); ++i) {
    SWARMLINE_CHECK_MSG(contents[i].size() == layout.tensors[i].bytes, layout.tensors[i].name);
    if (contents[i].empty()) continue;
    spans_.push_back(
        Span{.offset = header_.size() + layout.tensors[i].offset, .bytes = contents[i]});
  }
}

void StageFileImage::read(std::uint64_t offset_bytes, MutableBytes out) const {
  SWARMLINE_CHECK(offset_bytes <= size_bytes_ && out.size() <= size_bytes_ - offset_bytes);
  const auto take = [&](std::uint64_t start, BytesView from) {
    const BytesView rest = from.subspan(offset_bytes - start);
    const std::size_t count = std::min(rest.size(), out.size());
    std::memcpy(out.data(), rest.data(), count);
    out = out.subspan(count);
    offset_bytes += count;
  };
  if (!out.empty() && offset_bytes < header_.size()) take(0, as_bytes(header_));
  if (out.empty()) return;
  auto span = std::ranges::upper_bound(spans_, offset_bytes, {}, &Span::offset) - 1;
  for (; !out.empty(); ++span) take(span->offset, span->bytes);
}

Buffer StageFileImage::piece(std::uint64_t offset_bytes, std::uint64_t size_bytes_max) const {
  SWARMLINE_CHECK(offset_bytes <= size_bytes_);
  Buffer buffer(std::min(size_bytes_max, size_bytes_ - offset_bytes));
  read(offset_bytes, buffer.bytes());
  return buffer;
}

std::string StageFileImage::sha256() const {
  Sha256 hash;
  hash.update(as_bytes(header_));
  for (const Span& span : spans_) hash.update(span.bytes);
  return hash.finish_hex();
}

}  // namespace swarmline
