#include "pipeline/stage/common/piece_fetch.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/hash.h"
#include "base/limits.h"
#include "engine/checkpoint/sha256.h"

namespace swarmline {

PieceFetch::PieceFetch(std::uint64_t bytes, std::vector<std::string> hashes)
    : buffer_(bytes), hashes_(std::move(hashes)) {
  const std::uint64_t pieces = (bytes + Limits::state_piece_bytes - 1) / Limits::state_piece_bytes;
  for (std::uint32_t piece = 0; piece < pieces; ++piece) asks_.want(piece);
}

std::uint64_t PieceFetch::length(std::uint32_t piece) const {
  const std::uint64_t first = std::uint64_t{piece} * Limits::state_piece_bytes;
  return std::min<std::uint64_t>(Limits::state_piece_bytes, buffer_.size() - first);
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
  std::memcpy(buffer_.data() + std::uint64_t{piece} * Limits::state_piece_bytes, bytes.data(),
              bytes.size());
  asks_.here(from, piece);
  return true;
}

}  // namespace swarmline
