#include "compression/configured.h"

#include "engine/base/check.h"

namespace swarmline {

CodecOptions codec_options(const CodecSection& section) {
  return {.block = section.block,
          .scales = section.scales == "bf16" ? kernels::ScaleKind::kBf16 : kernels::ScaleKind::kF32,
          .topk = section.topk};
}

CodecSpec configured_codec(const std::string& name, const CodecSection& section) {
  const auto codec = parse_codec(name == "auto" ? "none" : name, codec_options(section));
  SWARMLINE_CHECK_MSG(codec.has_value(), "the config was checked: " + name);
  return *codec;
}

}  // namespace swarmline
