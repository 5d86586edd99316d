#include "engine/store/json_value.h"

#include <gtest/gtest.h>

namespace swarmline {
namespace {

TEST(Json, ReadsEveryKind) {
  auto json = parse_json(R"( {"a": [1, -2.5e3, true, false, null], "b\n": {"c": "x\u00e9\"\\"}} )");
  ASSERT_TRUE(json) << json.error().what;
  const auto& items = (*json)["a"].items;
  ASSERT_EQ(items.size(), 5U);
  EXPECT_EQ(items[0].count(), 1U);
  EXPECT_EQ(items[1].number, -2500);
  EXPECT_EQ(items[1].count(), 0U);
  EXPECT_TRUE(items[2].boolean);
  EXPECT_EQ(items[4].kind, JsonValue::Kind::kNull);
  EXPECT_EQ((*json)["b\n"]["c"].string, "xé\"\\");
  EXPECT_EQ((*json)["none"]["deeper"].kind, JsonValue::Kind::kNull);
}

TEST(Json, RefusesWhatIsNone) {
  const std::string deep(100, '[');
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("[1,]"), std::string("{\"a\":}"),
        std::string("nul"), std::string("1 2"), std::string("\"\\x\""), std::string("\"\\u12\""),
        std::string("\"open"), std::string("inf"), std::string("1e999"), std::string("\"\n\""),
        std::string("{1:2}"), std::string("+1"), deep}) {
    EXPECT_FALSE(parse_json(text)) << text;
  }
}

TEST(Json, CountsAreClamped) {
  EXPECT_EQ(parse_json("1e300")->count(), std::uint64_t{1} << 53);
  EXPECT_EQ(parse_json("-1")->count(), 0U);
  EXPECT_EQ(parse_json("\"7\"")->count(), 0U);
}

}  // namespace
}  // namespace swarmline
