#include "engine/model/find_device.h"

namespace swarmline {

Result<at::Device> find_device(const std::string& name) {
  if (name == "cpu") return at::Device(at::kCPU);
  const bool cuda = name == "cuda" || name.starts_with("cuda:");
  const std::string number = name.size() > 5 ? name.substr(5) : "0";
  const bool numbered =
      number.size() <= 3 && number.find_first_not_of("0123456789") == std::string::npos;
  if (!cuda || !numbered || name == "cuda:") {
    return fail(ErrorCode::kUserMistake,
                "device = \"" + name + "\": expected \"cpu\", \"cuda\" or \"cuda:N\".");
  }
  if (!at::hasCUDA() || !torch::cuda::is_available()) {
    return fail(ErrorCode::kUserMistake,
                "device = \"" + name +
                    "\": this build or machine has no CUDA; use \"cpu\", or build with "
                    "-DSWARMLINE_CUDA=ON on a machine with an NVIDIA GPU.");
  }
  const int index = std::stoi(number);
  if (index >= static_cast<int>(torch::cuda::device_count())) {
    return fail(ErrorCode::kUserMistake, "device = \"" + name + "\": this machine has " +
                                             std::to_string(torch::cuda::device_count()) +
                                             " CUDA devices.");
  }
  return at::Device(at::kCUDA, static_cast<at::DeviceIndex>(index));
}

}  // namespace swarmline
