// The program's CUDA side, libswarmline_cuda.so: opened when a device is asked for, so that the
// program starts where neither CUDA nor a GPU is.
//   What:      the library has entries, constants of C linkage: a function, or a table of them. The
//              type and the name of each stand beside the interface that it makes.
//   Where:     as the loader looks: LD_LIBRARY_PATH, the program's RUNPATH, the system's folders.
//              What it needs itself (libcudart, libcublasLt) is found in the same way, unless
//              libtorch's CUDA side has loaded it before.
//   Ownership: it stays open until the process ends, so that what its entries made may, too.
//   Thread:    any. Errors: kDevice: one sentence on what is missing, and what to install.
//   Agreement: both sides are built from the same headers by the same compiler, or it is refused.
#pragma once

#include <string>

#include "base/result.h"

namespace swarmline {

inline constexpr const char* kCudaLibrary = "libswarmline_cuda.so";

class CudaLibrary {
 public:
  // `file`: a path, or a name that the loader looks for. `build_id`: what it must say of itself.
  static Result<CudaLibrary> open(const std::string& file, const std::string& build_id);
  // Null: it has no such entry.
  const void* find(const char* entry) const;

 private:
  explicit CudaLibrary(void* handle) : handle_(handle) {}
  void* handle_;
};

// The program's own. Opened once; whoever asks again hears the same.
Result<CudaLibrary> cuda_library();

// An entry of the program's own library.
template <typename Entry>
Result<const Entry*> cuda_entry(const char* name) {
  const Result<CudaLibrary> library = cuda_library();
  if (!library) return std::unexpected(library.error());
  const void* const found = library->find(name);
  if (found == nullptr)
    return fail(ErrorCode::kDevice, std::string(kCudaLibrary) + " has no entry " + name);
  return static_cast<const Entry*>(found);
}

}  // namespace swarmline
