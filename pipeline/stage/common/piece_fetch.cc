#include "pipeline/stage/common/piece_fetch.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/hash.h"
#include "engine/checkpoint/sha256.h"
#include "pipeline/protocol/knobs.h"

namespace swarmline {

PieceFetch::PieceFetch(std::uint64_t bytes, std::vector<std::string> hashes)
    : buffer_(std::make_shared<Buffer>(bytes)), hashes_(std::move(hashes)) {
  const std::uint64_t pieces = (bytes + knobs().state_piece_bytes - 1) / knobs().state_piece_bytes;
  for (std::uint32_t piece = 0; piece < pieces; ++piece) asks_.want(piece);
}

std::uint64_t PieceFetch::length(std::uint32_t piece) const {
  const std::uint64_t first = std::uint64_t{piece} * knobs().state_piece_bytes;
  return std::min<std::uint64_t>(knobs().state_piece_bytes, buffer_->size() - first);
}

bool PieceFetch::on_piece(const Seat& from, std::uint32_t piece, BytesView bytes,
                          std::uint64_t checksum) {
  if (!asks_.takes(from, piece)) return false;
  if (bytes.size() != length(piece) || xxh3(bytes) != checksum) {
    asks_.damaged(from, piece);
    return false;
  }
  if (!hashes_.empty() && sha256_hex(bytes) != hashes_[piece]) {
    asks_.wrong(from, piece);
    return false;
  }
  std::memcpy(buffer_->data() + std::uint64_t{piece} * knobs().state_piece_bytes, bytes.data(),
              bytes.size());
  asks_.here(from, piece);
  return true;
}

bool PieceFetch::has_first(std::uint64_t bytes) const {
  const std::uint64_t size = knobs().state_piece_bytes;
  return asks_.has_below(static_cast<std::uint32_t>((bytes + size - 1) / size));
}

}  // namespace swarmline
