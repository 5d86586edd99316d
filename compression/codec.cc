#include "compression/codec.h"

#include <algorithm>
#include <array>
#include <vector>

#include "compression/wire.h"

namespace swarmline {
namespace {

constexpr std::array<std::string_view, 4> kNames = {"none", "fp16", "bf16",
                                                    "int8"};  // by CodecKind

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0]++;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t change = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, change});
    }
  }
  return row.back();
}

std::string_view nearest_name(std::string_view name) {
  return *std::ranges::min_element(
      kNames, {}, [&](std::string_view known) { return edit_distance(name, known); });
}

}  // namespace

Result<CodecSpec> parse_codec(std::string_view name, std::uint32_t block) {
  const auto known = std::ranges::find(kNames, name);
  if (known == kNames.end()) {
    return fail(ErrorCode::kUserMistake, "unknown codec \"" + std::string(name) +
                                             "\": expected none, fp16, bf16 or "
                                             "int8; did you mean \"" +
                                             std::string(nearest_name(name)) + "\"?");
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
