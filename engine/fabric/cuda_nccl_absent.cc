// Where NCCL's header was not there when this was built.
#include "engine/fabric/cuda_calls.h"

namespace swarmline::cuda {

Result<std::unique_ptr<NcclApi>> make_nccl(int) {
  return fail(
      ErrorCode::kDevice,
      "this Swarmline was built without NCCL's header: build where nccl.h is beside CUDA's, "
      "or scripts/bootstrap has fetched PyTorch's CUDA side");
}

}  // namespace swarmline::cuda
