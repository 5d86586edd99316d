// Codecs as a checked config names them. Pure.
#pragma once

#include "compression/codec.h"
#include "engine/config/run_config.h"

namespace swarmline {

// With checksums unless it says "never": "auto" is for whoever knows its links to make that of it.
CodecOptions codec_options(const CodecSection& section);
// "auto" begins as none.
CodecSpec configured_codec(const std::string& name, const CodecSection& section);

// Key of stochastic rounding: what is rounded is named by step, index and place (a boundary; for
// averaging a group and no place), so that a contribution depends on nothing else. One seed gives
// codecs other draws than dropout.
kernels::StochasticKey codec_key(std::uint64_t seed, std::uint64_t step, std::uint32_t index,
                                 std::uint32_t place);

}  // namespace swarmline
