// Codecs as a checked config names them.
#pragma once

#include "compression/codec.h"
#include "engine/config/run_config.h"

namespace swarmline {

CodecOptions codec_options(const CodecSection& section);
// "auto" begins as none.
CodecSpec configured_codec(const std::string& name, const CodecSection& section);

}  // namespace swarmline
