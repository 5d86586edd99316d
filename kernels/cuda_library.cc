#include "kernels/cuda_library.h"

#include <dlfcn.h>

#include <fmt/format.h>

#include "kernels/cuda_build_id.h"

namespace swarmline {
namespace {

constexpr const char* kBuildIdEntry = "swarmline_cuda_build_id";

// The loader's message begins with the file that it did not find.
std::string why_not_opened(const std::string& file, const std::string& loader) {
  if (loader.starts_with(file + ": cannot open shared object file"))
    return fmt::format(
        "this Swarmline has no CUDA side: {} is neither beside the program nor where the loader "
        "looks; install a package that has it, or build with nvcc (docs/install.md)",
        file);
  return fmt::format(
      "the CUDA side does not open: {}; install PyTorch 2.11 with its CUDA side, or set "
      "LD_LIBRARY_PATH to the folders of its libraries and of CUDA's",
      loader);
}

}  // namespace

Result<CudaLibrary> CudaLibrary::open(const std::string& file, const std::string& build_id) {
  void* const handle = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return fail(ErrorCode::kDevice, why_not_opened(file, ::dlerror()));
  const auto* const found = static_cast<const char*>(::dlsym(handle, kBuildIdEntry));
  if (found == nullptr || build_id != found) {
    const std::string other = found == nullptr ? "none" : found;
    ::dlclose(handle);
    return fail(ErrorCode::kDevice,
                fmt::format("{} is of another build than this program: its build id is {}, "
                            "expected {}; install both from one package",
                            file, other, build_id));
  }
  return CudaLibrary(handle);
}

const void* CudaLibrary::find(const char* entry) const {
  return ::dlsym(handle_, entry);
}

Result<CudaLibrary> cuda_library() {
  static const Result<CudaLibrary> library = CudaLibrary::open(kCudaLibrary, kCudaBuildId);
  return library;
}

}  // namespace swarmline
