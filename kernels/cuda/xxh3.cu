#include "kernels/cuda/kernels.cuh"
#include "kernels/cuda/team_launch.cuh"
#include "kernels/cuda/xxh3_body.cuh"

namespace swarmline::kernels::cuda {
namespace {

// One warp: pieces are few, and blocks go to multiprocessors of their own while there are any.
constexpr unsigned kBlockThreads = kTeamWarp;
constexpr unsigned kPiecesPerBlock = kBlockThreads / xxh3::kLanes;

__global__ void hash_pieces_kernel(const HashPieces args) {
  hash_pieces_body(Team(), args, blockIdx.x);
}

cudaError_t hash_pieces(const HashPieces& args, cudaStream_t stream) {
  const std::uint64_t blocks = (pieces_of(args) + kPiecesPerBlock - 1) / kPiecesPerBlock;
  return launch(hash_pieces_kernel, static_cast<unsigned>(blocks), kBlockThreads, stream, args);
}

}  // namespace

std::size_t digest_workspace(std::uint64_t bytes) {
  return static_cast<std::size_t>(bytes / kDigestPiece) + 2;
}

cudaError_t digest(const void* data, std::uint64_t bytes, std::uint64_t* workspace,
                   std::uint64_t* result, cudaStream_t stream) {
  const DigestSteps steps =
      digest_steps(static_cast<const std::byte*>(data), bytes, workspace, result);
  const cudaError_t status = hash_pieces(steps.pieces, stream);
  return status == cudaSuccess ? hash_pieces(steps.all, stream) : status;
}

}  // namespace swarmline::kernels::cuda
