// docs/config.md is made from the table of keys; this test says when it is not.
// SWARMLINE_UPDATE_DOCS=1 in the environment writes it anew.

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include <gtest/gtest.h>

#include "engine/config/load.h"
#include "engine/config/schema.h"

namespace swarmline {
namespace {

const std::string kPage = std::string(SWARMLINE_SOURCE_DIR) + "/docs/config.md";

TEST(ConfigReference, ThePageIsUpToDate) {
  if (const char* update = std::getenv("SWARMLINE_UPDATE_DOCS"); update && *update == '1') {
    std::ofstream(kPage, std::ios::binary) << config_reference();
  }
  std::ifstream file(kPage, std::ios::binary);
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  EXPECT_EQ(page, config_reference())
      << "run config_test with SWARMLINE_UPDATE_DOCS=1 to write it anew";
}

TEST(ConfigReference, EveryKeyHasASentence) {
  for (const auto keys : {run_keys(), peer_keys()}) {
    for (const KeySpec& spec : keys) {
      EXPECT_TRUE(spec.doc.ends_with('.')) << spec.section << "." << spec.key;
      EXPECT_NE(config_reference().find("| `" + std::string(spec.key) + "` |"), std::string::npos);
    }
  }
}

TEST(ConfigReference, KeysAreDistinctAndSectionsContiguous) {
  for (const auto keys : {run_keys(), peer_keys()}) {
    std::size_t changes = 0;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      EXPECT_EQ(find_key(keys, keys[i].section, keys[i].key), &keys[i]);
      if (i == 0 || keys[i].section != keys[i - 1].section) ++changes;
    }
    EXPECT_EQ(changes, section_names(keys).size());
  }
}

}  // namespace
}  // namespace swarmline
