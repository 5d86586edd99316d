// One piece is hashed by the eight lanes of a quarter of a warp; a block's words are loaded while
// those of the block before are added.

#include "kernels/cuda/kernels.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/format/xxh3.h"

namespace swarmline::kernels::cuda {
namespace {

constexpr unsigned kAllLanes = 0xFFFFFFFF;
constexpr unsigned kPiecesPerBlock = kThreads / xxh3::kLanes;

struct Words {
  std::uint64_t of[xxh3::kStripes];
};

__device__ Words load(const std::uint64_t* block, unsigned lane) {
  Words words;
#pragma unroll
  for (unsigned s = 0; s < xxh3::kStripes; ++s) words.of[s] = block[s * xxh3::kLanes + lane];
  return words;
}

__device__ std::uint64_t add(std::uint64_t sum, std::uint64_t word, std::uint64_t key) {
  return xxh3::accumulated(sum, word, __shfl_xor_sync(kAllLanes, word, 1), key);
}

// Lanes of one warp take the same number of turns: a piece beyond the last is the last once more.
__global__ void hash_pieces_kernel(const std::uint64_t* __restrict__ data,
                                   std::uint64_t piece_bytes, std::size_t pieces,
                                   std::uint64_t* __restrict__ hashes) {
  const unsigned lane = threadIdx.x % xxh3::kLanes;
  const std::size_t own =
      static_cast<std::size_t>(blockIdx.x) * kPiecesPerBlock + threadIdx.x / xxh3::kLanes;
  const std::size_t piece = own < pieces ? own : pieces - 1;
  constexpr unsigned kBlockWords = xxh3::kStripes * xxh3::kLanes;
  const std::uint64_t* block = data + piece * (piece_bytes / sizeof(std::uint64_t));
  const std::uint64_t blocks = piece_bytes / xxh3::kBlockBytes;
  constexpr xxh3::Secret secret = xxh3::kSecret;
  std::uint64_t key[xxh3::kStripes];
#pragma unroll
  for (unsigned s = 0; s < xxh3::kStripes; ++s) key[s] = secret.word[s + lane];

  std::uint64_t sum = xxh3::first_sum(lane);
  Words words = load(block, lane);
  for (std::uint64_t b = 1; b < blocks; ++b) {
    const Words next = load(block + b * kBlockWords, lane);
#pragma unroll
    for (unsigned s = 0; s < xxh3::kStripes; ++s) sum = add(sum, words.of[s], key[s]);
    sum = xxh3::scrambled(sum, xxh3::scramble_key(secret, lane));
    words = next;
  }
#pragma unroll
  for (unsigned s = 0; s + 1 < xxh3::kStripes; ++s) sum = add(sum, words.of[s], key[s]);
  sum = add(sum, words.of[xxh3::kStripes - 1], xxh3::last_key(secret, lane));

  const std::uint64_t odd = __shfl_xor_sync(kAllLanes, sum, 1);
  std::uint64_t folds = lane % 2 == 0 ? xxh3::folded(secret, lane / 2, sum, odd) : 0;
  for (unsigned step = xxh3::kLanes / 2; step > 0; step /= 2)
    folds += __shfl_down_sync(kAllLanes, folds, step, xxh3::kLanes);
  if (lane == 0 && own < pieces) hashes[own] = xxh3::finished(folds, piece_bytes);
}

}  // namespace

cudaError_t hash_pieces(const void* data, std::uint64_t piece_bytes, std::size_t pieces,
                        std::uint64_t* hashes, cudaStream_t stream) {
  if (pieces == 0) return cudaSuccess;
  const auto grid = static_cast<unsigned>((pieces + kPiecesPerBlock - 1) / kPiecesPerBlock);
  hash_pieces_kernel<<<grid, kThreads, 0, stream>>>(static_cast<const std::uint64_t*>(data),
                                                    piece_bytes, pieces, hashes);
  return cudaGetLastError();
}

}  // namespace swarmline::kernels::cuda
