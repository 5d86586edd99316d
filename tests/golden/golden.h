// Files under tests/golden, which fix a format byte for byte. Header-only.
//   SWARMLINE_UPDATE_GOLDEN=1: what is compared is written first; review the difference like code.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "tests/store/temp_folder.h"

namespace swarmline {

// `name`: below tests/golden.
inline std::string golden_path(std::string_view name) {
  return std::string(SWARMLINE_SOURCE_DIR) + "/tests/golden/" + std::string(name);
}

inline std::string read_golden(std::string_view name) {
  const std::string path = golden_path(name);
  EXPECT_TRUE(std::filesystem::is_regular_file(path)) << path;
  return slurp(path);
}

inline void expect_golden(std::string_view name, std::string_view bytes) {
  if (const char* update = std::getenv("SWARMLINE_UPDATE_GOLDEN");
      update != nullptr && std::string_view(update) == "1") {
    const std::filesystem::path path = golden_path(name);
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << bytes;
  }
  EXPECT_EQ(bytes, read_golden(name)) << golden_path(name);
}

}  // namespace swarmline
