#include "engine/data/token_file.h"

#include <gtest/gtest.h>

#include "tests/data/token_bytes.h"

namespace swarmline {
namespace {

TEST(TokenFileTest, RawWidths) {
  const std::string bytes = raw_tokens<std::uint16_t>({1, 2, 3, 4});
  const auto narrow = view_token_file(as_bytes(bytes), TokenFormat::kUint16, "a");
  ASSERT_TRUE(narrow) << narrow.error().what;
  EXPECT_EQ(narrow->count(), 4U);
  EXPECT_EQ(narrow->token_bytes, 2U);
  const auto wide = view_token_file(as_bytes(bytes), TokenFormat::kUint32, "a");
  ASSERT_TRUE(wide) << wide.error().what;
  EXPECT_EQ(wide->count(), 2U);
  EXPECT_EQ(wide->token_bytes, 4U);
}

TEST(TokenFileTest, LlmcByNameAndByHeader) {
  const std::string bytes = llmc_file({7, 8, 50256}, 3);
  for (const TokenFormat format : {TokenFormat::kLlmC, TokenFormat::kAuto}) {
    const auto view = view_token_file(as_bytes(bytes), format, "train.dat");
    ASSERT_TRUE(view) << view.error().what;
    EXPECT_EQ(view->count(), 3U);
    EXPECT_EQ(view->header_bytes, 1024U);
    EXPECT_EQ(as_text(view->tokens), raw_tokens<std::uint16_t>({7, 8, 50256}));
  }
}

TEST(TokenFileTest, AutoTakesOtherBinFilesAsUint16) {
  const std::string bytes = raw_tokens<std::uint16_t>({1, 2});
  const auto view = view_token_file(as_bytes(bytes), TokenFormat::kAuto, "val.bin");
  ASSERT_TRUE(view) << view.error().what;
  EXPECT_EQ(view->count(), 2U);
  EXPECT_EQ(view->header_bytes, 0U);
}

}  // namespace
}  // namespace swarmline
