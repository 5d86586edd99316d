// XXH3 of pieces that follow each other: one piece is hashed by eight lanes, a team takes as many
// as it has lanes for, and a block's words are loaded while those of the block before are added.
// All lanes take the same number of turns, for the exchanges: a piece beyond the last is the last
// once more, and so is a block.
#pragma once

#include <cstddef>

#include "kernels/cuda/team.cuh"
#include "kernels/digest.h"
#include "kernels/format/xxh3.h"

namespace swarmline::kernels::cuda {

struct HashPieces {
  const std::byte* data = nullptr;  // 8-byte aligned
  std::uint64_t bytes = 0;          // all of them
  std::uint64_t piece_bytes = 0;    // whole blocks, two at least; the last may be shorter
  std::uint64_t* hashes = nullptr;  // as many as pieces_of() says
  bool adds_bytes = false;          // behind the hashes, as a word
};
SWARMLINE_ELEMENT std::uint64_t pieces_of(const HashPieces& args) {
  return args.bytes == 0 ? 1 : (args.bytes + args.piece_bytes - 1) / args.piece_bytes;
}

// kernels::digest() in two steps: of the pieces, then of what those wrote.
struct DigestSteps {
  HashPieces pieces, all;
};
// `words`: one more than there are pieces of kDigestPiece.
SWARMLINE_ELEMENT DigestSteps digest_steps(const std::byte* data, std::uint64_t bytes,
                                           std::uint64_t* words, std::uint64_t* result) {
  const HashPieces pieces{.data = data,
                          .bytes = bytes,
                          .piece_bytes = kDigestPiece,
                          .hashes = words,
                          .adds_bytes = true};
  const std::uint64_t word_bytes = (pieces_of(pieces) + 1) * sizeof(std::uint64_t);
  return {.pieces = pieces,
          .all = {.data = reinterpret_cast<const std::byte*>(words),
                  .bytes = word_bytes,
                  .piece_bytes = xxh3::padded(word_bytes),
                  .hashes = result}};
}

// One of a piece's eight.
struct HashLane {
  unsigned lane;
  const std::byte* data;
  std::uint64_t bytes, blocks;
  std::uint64_t word[xxh3::kStripes], next[xxh3::kStripes], key[xxh3::kStripes];
  std::uint64_t scramble_key;
  std::uint64_t sum;
  std::uint64_t working;  // the sum of the block that is added: dropped where that has ended
  std::uint64_t folds;
};

SWARMLINE_DEVICE std::uint64_t load_word(const std::byte* at) {
#if defined(__CUDA_ARCH__)
  return __ldg(reinterpret_cast<const unsigned long long*>(at));
#else
  std::uint64_t word;
  __builtin_memcpy(&word, at, sizeof word);
  return word;
#endif
}

// Beyond the end of the piece are zeros.
SWARMLINE_DEVICE std::uint64_t load_padded(const std::byte* data, std::uint64_t bytes,
                                           std::uint64_t at) {
  if (at + sizeof(std::uint64_t) <= bytes) return load_word(data + at);
  std::uint64_t word = 0;
  for (std::uint64_t i = at; i < bytes; ++i)
    word |= static_cast<std::uint64_t>(data[i]) << (8 * (i - at));
  return word;
}

SWARMLINE_DEVICE void load_block(const HashLane& l, std::uint64_t block, std::uint64_t* words) {
  const std::uint64_t at = block * xxh3::kBlockBytes + l.lane * sizeof(std::uint64_t);
  constexpr std::uint64_t kStripeBytes = xxh3::kLanes * sizeof(std::uint64_t);
  if ((block + 1) * xxh3::kBlockBytes <= l.bytes) {
    SWARMLINE_UNROLL
    for (unsigned s = 0; s < xxh3::kStripes; ++s)
      words[s] = load_word(l.data + at + s * kStripeBytes);
    return;
  }
  SWARMLINE_UNROLL
  for (unsigned s = 0; s < xxh3::kStripes; ++s)
    words[s] = load_padded(l.data, l.bytes, at + s * kStripeBytes);
}

template <typename Lanes>
SWARMLINE_DEVICE void add_stripes(const Team& team, Lanes& lanes) {
  SWARMLINE_UNROLL
  for (unsigned s = 0; s < xxh3::kStripes; ++s) {
    team.exchange_xor(
        lanes, 1, [s](const HashLane& l) { return l.word[s]; },
        [s](unsigned, HashLane& l, std::uint64_t other) {
          l.working = xxh3::accumulated(l.working, l.word[s], other, l.key[s]);
        });
  }
}

SWARMLINE_DEVICE void hash_pieces_body(const Team& team, const HashPieces& args,
                                       std::uint64_t turn) {
  const std::uint64_t first = turn * (team.threads() / xxh3::kLanes), pieces = pieces_of(args);
  const auto bytes_of = [&args](std::uint64_t piece) {
    const std::uint64_t left = args.bytes - piece * args.piece_bytes;
    return left < args.piece_bytes ? left : args.piece_bytes;
  };
  const auto piece_of = [first, pieces](unsigned thread) {
    const std::uint64_t own = first + thread / xxh3::kLanes;
    return own < pieces ? own : pieces - 1;
  };
  const std::uint64_t turns = xxh3::padded(bytes_of(piece_of(0))) / xxh3::kBlockBytes;
  constexpr xxh3::Secret secret = xxh3::kSecret;
  Team::PerThread<HashLane> lanes;
  team.each(lanes, [&](unsigned thread, HashLane& l) {
    const std::uint64_t piece = piece_of(thread);
    l.lane = thread % xxh3::kLanes;
    l.data = args.data + piece * args.piece_bytes;
    l.bytes = bytes_of(piece);
    l.blocks = xxh3::padded(l.bytes) / xxh3::kBlockBytes;
    SWARMLINE_UNROLL
    for (unsigned s = 0; s < xxh3::kStripes; ++s) l.key[s] = secret.word[s + l.lane];
    l.scramble_key = xxh3::scramble_key(secret, l.lane);
    l.sum = xxh3::first_sum(l.lane);
    load_block(l, 0, l.word);
  });
  for (std::uint64_t b = 1; b < turns; ++b) {
    team.each(lanes, [b](unsigned, HashLane& l) {
      load_block(l, b < l.blocks ? b : l.blocks - 1, l.next);
      l.working = l.sum;
    });
    add_stripes(team, lanes);
    team.each(lanes, [b](unsigned, HashLane& l) {
      if (b < l.blocks) l.sum = xxh3::scrambled(l.working, l.scramble_key);
      SWARMLINE_UNROLL
      for (unsigned s = 0; s < xxh3::kStripes; ++s) l.word[s] = l.next[s];
    });
  }
  team.each(lanes, [&](unsigned, HashLane& l) {
    l.key[xxh3::kStripes - 1] = xxh3::last_key(secret, l.lane);
    l.working = l.sum;
  });
  add_stripes(team, lanes);
  team.exchange_xor(
      lanes, 1, [](const HashLane& l) { return l.working; },
      [&](unsigned, HashLane& l, std::uint64_t odd) {
        l.folds = l.lane % 2 == 0 ? xxh3::folded(secret, l.lane / 2, l.working, odd) : 0;
      });
  for (unsigned mask = 2; mask < xxh3::kLanes; mask *= 2) {
    team.exchange_xor(
        lanes, mask, [](const HashLane& l) { return l.folds; },
        [](unsigned, HashLane& l, std::uint64_t other) { l.folds += other; });
  }
  team.each(lanes, [&](unsigned thread, HashLane& l) {
    const std::uint64_t own = first + thread / xxh3::kLanes;
    if (l.lane != 0 || own >= pieces) return;
    args.hashes[own] = xxh3::finished(l.folds, xxh3::padded(l.bytes));
    if (args.adds_bytes && own + 1 == pieces) args.hashes[pieces] = args.bytes;
  });
}

}  // namespace swarmline::kernels::cuda
