#include "engine/config/configured_codec.h"

#include "base/check.h"

namespace swarmline {

CodecOptions codec_options(const CodecSection& section) {
  return {.block = section.block,
          .scales =
              section.scales == DType::kBF16 ? kernels::ScaleKind::kBf16 : kernels::ScaleKind::kF32,
          .topk = section.topk,
          .checksums = section.checksums != TileChecksums::kNever};
}

CodecSpec configured_codec(const std::string& name, const CodecSection& section) {
  const auto codec = parse_codec(name == "auto" ? "none" : name, codec_options(section));
  SWARMLINE_CHECK_MSG(codec.has_value(), "the config was checked: " + name);
  return *codec;
}

kernels::StochasticKey codec_key(std::uint64_t seed, std::uint64_t step, std::uint32_t index,
                                 std::uint32_t place) {
  constexpr std::uint64_t kOfCodecs = 0x636F6465'63730000ULL;
  return {.seed = seed ^ kOfCodecs, .stream = {static_cast<std::uint32_t>(step), index, place}};
}

}  // namespace swarmline
