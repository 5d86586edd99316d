#include "compression/codec.h"

#include <algorithm>
#include <array>

#include "compression/wire.h"
#include "engine/config/nearest.h"

namespace swarmline {
namespace {

// In the order of CodecKind.
constexpr std::array<std::string_view, 4> kNames = {"none", "fp16", "bf16", "int8"};

std::string did_you_mean(std::string_view name) {
  const std::string_view known = nearest(name, kNames);
  return known.empty() ? "" : "; did you mean \"" + std::string(known) + "\"?";
}

}  // namespace

Result<CodecSpec> parse_codec(std::string_view name, std::uint32_t block) {
  const auto known = std::ranges::find(kNames, name);
  if (known == kNames.end()) {
    return fail(ErrorCode::kUserMistake, "unknown codec \"" + std::string(name) +
                                             "\": expected none, fp16, bf16 or int8" +
                                             did_you_mean(name));
  }
  CodecSpec codec{.kind = static_cast<CodecKind>(known - kNames.begin())};
  if (codec.kind != CodecKind::kInt8) return codec;
  if (!is_int8_block(block)) {
    return fail(ErrorCode::kUserMistake, "codec block is " + std::to_string(block) +
                                             ": expected a power of two from " +
                                             std::to_string(kInt8BlockMin) + " to " +
                                             std::to_string(kInt8BlockMax) + ", for example 256");
  }
  codec.block = block;
  return codec;
}

std::string to_string(const CodecSpec& codec) {
  std::string name(kNames[static_cast<std::size_t>(codec.kind)]);
  if (codec.kind == CodecKind::kInt8) name += "/" + std::to_string(codec.block);
  return name;
}

}  // namespace swarmline
