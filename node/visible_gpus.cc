#include "node/visible_gpus.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <ranges>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

namespace swarmline {
namespace {

// A number, or a name such as GPU-8f2e or MIG-GPU-8f2e. CUDA stops at what is none, such as -1.
bool is_gpu(std::string_view entry) {
  return !entry.empty() && std::isalnum(static_cast<unsigned char>(entry.front())) != 0;
}

std::uint32_t count_named(std::string_view list) {
  std::uint32_t count = 0;
  for (const auto part : std::views::split(list, ',')) {
    const std::string_view entry(part.begin(), part.end());
    const std::size_t first = entry.find_first_not_of(' ');
    if (first == std::string_view::npos || !is_gpu(entry.substr(first))) break;
    ++count;
  }
  return count;
}

}  // namespace

std::uint32_t count_gpus(const char* visible, const std::string& driver_list) {
  if (visible != nullptr) return count_named(visible);
  std::error_code error;
  const std::filesystem::directory_iterator gpus(driver_list, error);
  if (error) return 0;
  return static_cast<std::uint32_t>(std::ranges::distance(gpus));
}

std::uint32_t visible_gpus() {
  return count_gpus(std::getenv("CUDA_VISIBLE_DEVICES"), kNvidiaDriverList);
}

std::vector<std::string> spread_over_gpus(std::uint32_t peers, std::uint32_t gpus) {
  std::vector<std::string> devices;
  if (gpus < 2) return devices;
  for (std::uint32_t peer = 0; peer < peers; ++peer)
    devices.push_back(fmt::format("cuda:{}", peer % gpus));
  return devices;
}

}  // namespace swarmline
