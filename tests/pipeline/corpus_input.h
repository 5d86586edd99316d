// One input of a fuzzer's corpus, again. A test that names what it reaches shows that it still
// does: bytes that mean something else after a change reach nothing, and fail nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <gtest/gtest.h>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace swarmline {

// `path`: below tests/pipeline.
inline void replay(const std::string& path) {
  std::ifstream file(SWARMLINE_SOURCE_DIR "/tests/pipeline/" + path, std::ios::binary);
  ASSERT_TRUE(file) << path;
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
}

}  // namespace swarmline
