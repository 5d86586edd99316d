// XXH3 (64 bits, default secret, no seed), lane by lane: for CUDA and for tests on the host. Eight
// lanes take a word each of every stripe of 64 bytes; sixteen stripes are a block, after which
// lanes are scrambled.
//   Lengths: whole blocks, at least two: padded() ones.
//   Source:  the XXH3 specification (github.com/Cyan4973/xxHash, doc/xxhash_spec.md).
#pragma once

#include <cstdint>

#include "kernels/element.h"

namespace swarmline::kernels::xxh3 {

inline constexpr unsigned kLanes = 8;
inline constexpr unsigned kStripes = 16;  // of a block
inline constexpr std::uint64_t kBlockBytes = 1024;
inline constexpr std::uint64_t kBytesMin = 2 * kBlockBytes;

// With zeros behind them.
SWARMLINE_ELEMENT std::uint64_t padded(std::uint64_t bytes) {
  const std::uint64_t blocks = (bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
  return blocks < kBytesMin ? kBytesMin : blocks;
}

// The default secret, as little-endian words.
inline constexpr unsigned kSecretWords = 24;
struct Secret {
  std::uint64_t word[kSecretWords];
};
inline constexpr Secret kSecret = {
    {0xbe4ba423396cfeb8, 0x1cad21f72c81017c, 0xdb979083e96dd4de, 0x1f67b3b7a4a44072,
     0x78e5c0cc4ee679cb, 0x2172ffcc7dd05a82, 0x8e2443f7744608b8, 0x4c263a81e69035e0,
     0xcb00c391bb52283c, 0xa32e531b8b65d088, 0x4ef90da297486471, 0xd8acdea946ef1938,
     0x3f349ce33f76faa8, 0x1d4f0bc7c7bbdcf9, 0x3159b4cd4be0518a, 0x647378d9c97e9fc8,
     0xc3ebd33483acc5ea, 0xeb6313faffa081c5, 0x49daf0b751dd0d17, 0x9e68d429265516d3,
     0xfca1477d58be162b, 0xce31d07ad1b8f88f, 0x280416958f3acb45, 0x7e404bbbcafbd7af}};

inline constexpr std::uint64_t kPrime32[] = {0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D};
inline constexpr std::uint64_t kPrime64[] = {0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F,
                                             0x165667B19E3779F9, 0x85EBCA77C2B2AE63,
                                             0x27D4EB2F165667C5};
inline constexpr std::uint64_t kAvalanche = 0x165667919E3779F9;

SWARMLINE_ELEMENT std::uint64_t first_sum(unsigned lane) {
  constexpr std::uint64_t kFirst[kLanes] = {kPrime32[2], kPrime64[0], kPrime64[1], kPrime64[2],
                                            kPrime64[3], kPrime32[1], kPrime64[4], kPrime32[0]};
  return kFirst[lane];
}
// `other`: the word of the lane beside, whose number differs in the lowest bit.
SWARMLINE_ELEMENT std::uint64_t accumulated(std::uint64_t sum, std::uint64_t word,
                                            std::uint64_t other, std::uint64_t key) {
  const std::uint64_t keyed = word ^ key;
  return sum + other + (keyed & 0xFFFFFFFFU) * (keyed >> 32);
}
SWARMLINE_ELEMENT std::uint64_t scrambled(std::uint64_t sum, std::uint64_t key) {
  return ((sum ^ (sum >> 47)) ^ key) * 0x9E3779B1U;
}

// Secret bytes from `byte` on, as a word.
SWARMLINE_ELEMENT std::uint64_t secret_at(const Secret& secret, unsigned byte) {
  const unsigned word = byte / 8, shift = 8 * (byte % 8);
  if (shift == 0) return secret.word[word];
  return (secret.word[word] >> shift) | (secret.word[word + 1] << (64 - shift));
}
SWARMLINE_ELEMENT std::uint64_t scramble_key(const Secret& secret, unsigned lane) {
  return secret_at(secret, 128 + 8 * lane);
}
// Of the last stripe of all.
SWARMLINE_ELEMENT std::uint64_t last_key(const Secret& secret, unsigned lane) {
  return secret_at(secret, 121 + 8 * lane);
}

// What lanes 2 `pair` and 2 `pair` + 1 give to the hash.
SWARMLINE_ELEMENT std::uint64_t folded(const Secret& secret, unsigned pair, std::uint64_t even,
                                       std::uint64_t odd) {
  const std::uint64_t a = even ^ secret_at(secret, 11 + 16 * pair);
  const std::uint64_t b = odd ^ secret_at(secret, 19 + 16 * pair);
#if defined(__CUDA_ARCH__)
  return (a * b) ^ __umul64hi(a, b);
#else
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
#endif
}
// `folds`: the sum of all pairs'.
SWARMLINE_ELEMENT std::uint64_t finished(std::uint64_t folds, std::uint64_t bytes) {
  std::uint64_t hash = bytes * kPrime64[0] + folds;
  hash = (hash ^ (hash >> 37)) * kAvalanche;
  return hash ^ (hash >> 32);
}

}  // namespace swarmline::kernels::xxh3
