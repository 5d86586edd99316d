// What the stages of a run take of memory, for people and as JSON (docs/formats/memory.md): what
// `swarmline memory` prints.
//   Thread: any; pure. Errors: none.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/config/run_config.h"
#include "engine/model/model_spec.h"
#include "node/stage_table.h"

namespace swarmline {

// GPUs that people rent. A stage fits where it leaves kCardReserve of the memory to the driver's
// context and to libtorch's allocator.
struct Card {
  std::string_view name;
  std::uint64_t bytes = 0;
};
const std::vector<Card>& common_cards();                   // the smallest first
inline constexpr Card kSpotCard{"T4 16 GB", 15ULL << 30};  // the cheapest that clouds have many of
inline constexpr double kCardReserve = 0.08;
bool fits(const Card& card, std::uint64_t device_bytes);

std::string memory_text(const RunConfig& config, const std::vector<StageHolding>& stages);
std::string memory_json(const RunConfig& config, const ModelSpec& model,
                        const std::vector<StageHolding>& stages);

}  // namespace swarmline
