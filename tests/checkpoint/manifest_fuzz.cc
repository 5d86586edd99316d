// parse_manifest() on any bytes: no crash, and what it accepts is written and read back the same.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "engine/checkpoint/manifest.h"

namespace {

// Boost.JSON 1.81 reads long numbers to within an ulp or two; within that they count as the same.
void take_if_close(double& value, double original) {
  constexpr double kRoundings = 4 * 2.3e-16;
  if (std::abs(value - original) <= kRoundings * std::abs(original)) value = original;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto manifest = swarmline::parse_manifest(
      std::string_view(reinterpret_cast<const char*>(data), size), "fuzz");
  if (!manifest) return 0;
  const std::string text = swarmline::to_json(*manifest);
  auto again = swarmline::parse_manifest(text, "again");
  if (!again) std::abort();
  take_if_close(again->model.dropout, manifest->model.dropout);
  take_if_close(again->model.norm_eps, manifest->model.norm_eps);
  take_if_close(again->model.rope_theta, manifest->model.rope_theta);
  take_if_close(again->model.init_std, manifest->model.init_std);
  if (swarmline::to_json(*again) != text) std::abort();
  return 0;
}
