// The GPUs that CUDA would show this process, counted without opening any: a program that only
// starts others needs none of CUDA.
//   What:   CUDA_VISIBLE_DEVICES, where it is set; else those that NVIDIA's driver lists.
//   Errors: none; what can't be read is no GPU. Thread: any.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace swarmline {

inline constexpr const char* kNvidiaDriverList = "/proc/driver/nvidia/gpus";

// `visible`: the value of CUDA_VISIBLE_DEVICES; null: not set. Of a list of numbers or names, those
// before the first one that is neither.
std::uint32_t count_gpus(const char* visible, const std::string& driver_list);
std::uint32_t visible_gpus();

// "cuda:0", "cuda:1", ... for so many peers, in turns. Empty where there is no choice.
std::vector<std::string> spread_over_gpus(std::uint32_t peers, std::uint32_t gpus);

}  // namespace swarmline
