#include "engine/model/find_device.h"

#include <dlfcn.h>
#include <link.h>

#include "engine/model/device_kernels.h"

namespace swarmline {
namespace {

constexpr const char* kTorchCuda = "libtorch_cuda.so";

// Where the libtorch lies that this program computes with.
std::string torch_folder() {
  void* const handle = ::dlopen("libtorch_cpu.so", RTLD_NOW | RTLD_NOLOAD);
  link_map* map = nullptr;
  std::string path;
  if (handle != nullptr && ::dlinfo(handle, RTLD_DI_LINKMAP, static_cast<void*>(&map)) == 0)
    path = map->l_name;
  if (handle != nullptr) ::dlclose(handle);
  return path.substr(0, path.rfind('/'));
}

// libtorch's CUDA side tells its CPU side of itself when it is loaded: before libtorch is first
// asked for a device.
Result<void> open_torch_cuda() {
  if (::dlopen(kTorchCuda, RTLD_NOW | RTLD_LOCAL) != nullptr) return {};
  const std::string loader = ::dlerror();
  const bool absent = loader.starts_with(kTorchCuda);
  return fail(ErrorCode::kUserMistake,
              (absent ? "the PyTorch in " + torch_folder() + " is for CPUs, it has no CUDA side (" +
                            kTorchCuda + ")"
                      : "PyTorch's CUDA side does not open: " + loader) +
                  "; install the PyTorch 2.11 that PyPI has, or use \"cpu\"");
}

Result<void> open_cuda() {
  SWARMLINE_TRY(open_torch_cuda());
  if (const auto kernels = device_kernels(); !kernels)
    return fail(ErrorCode::kUserMistake, kernels.error().what);
  if (!torch::cuda::is_available()) {
    return fail(ErrorCode::kUserMistake,
                "this machine has no CUDA device, or no NVIDIA driver for CUDA 13 (nvidia-smi says "
                "what it finds); use \"cpu\"");
  }
  return {};
}

}  // namespace

Result<at::Device> find_device(const std::string& name) {
  if (name == "cpu") return at::Device(at::kCPU);
  const bool cuda = name == "cuda" || name.starts_with("cuda:");
  const std::string number = name.size() > 5 ? name.substr(5) : "0";
  const bool numbered =
      number.size() <= 3 && number.find_first_not_of("0123456789") == std::string::npos;
  if (!cuda || !numbered || name == "cuda:") {
    return fail(ErrorCode::kUserMistake,
                "device = \"" + name + "\": expected \"cpu\", \"cuda\" or \"cuda:N\"");
  }
  if (const auto opened = open_cuda(); !opened) {
    return fail(opened.error().code, "device = \"" + name + "\": " + opened.error().what);
  }
  const int index = std::stoi(number);
  if (index >= static_cast<int>(torch::cuda::device_count())) {
    return fail(ErrorCode::kUserMistake, "device = \"" + name + "\": this machine has " +
                                             std::to_string(torch::cuda::device_count()) +
                                             " CUDA devices");
  }
  const auto kernels = device_kernels();
  if (const char* const error = kernels ? (*kernels)->choose_device(index) : nullptr)
    return fail(ErrorCode::kUserMistake, "device = \"" + name + "\": CUDA says: " + error);
  return at::Device(at::kCUDA, static_cast<at::DeviceIndex>(index));
}

}  // namespace swarmline
