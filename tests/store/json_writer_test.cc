#include "engine/store/json_writer.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace swarmline {
namespace {

TEST(JsonWriterTest, PutsCommasAndBracketsWhereTheyBelong) {
  JsonWriter json;
  json.begin_object().member("a", 1).key("b").begin_array().value("x").value(2.5).end_array();
  json.key("c").begin_object().end_object().key("d").begin_array().end_array();
  json.member("e", true).key("f").null().end_object();
  EXPECT_EQ(json.take(), R"({"a":1,"b":["x",2.5],"c":{},"d":[],"e":true,"f":null})");
}

TEST(JsonWriterTest, WhatIsNotThereIsNull) {
  JsonWriter json;
  json.begin_object().member("a", std::optional(2.5)).member("b", std::optional<double>());
  json.member("c", std::optional(7U)).member("d", std::optional<bool>(false)).end_object();
  EXPECT_EQ(json.take(), R"({"a":2.5,"b":null,"c":7,"d":false})");
}

TEST(JsonWriterTest, Indented) {
  JsonWriter json(2);
  json.begin_object().member("a", 1).key("b").begin_array().value(2).value(3).end_array();
  json.end_object();
  EXPECT_EQ(json.take(), "{\n  \"a\": 1,\n  \"b\": [\n    2,\n    3\n  ]\n}");
}

std::string text(std::string_view content) {
  return JsonWriter().value(content).take();
}

TEST(JsonWriterTest, EscapesText) {
  EXPECT_EQ(text("a\"b\\c\n\x01\x7F"), "\"a\\\"b\\\\c\\n\\u0001\x7F\"");
  EXPECT_EQ(text("gr\xC3\xBC\xC3\x9F \xF0\x9F\x90\x9D"), "\"gr\xC3\xBC\xC3\x9F \xF0\x9F\x90\x9D\"");
}

TEST(JsonWriterTest, BytesThatAreNoUtf8BecomeReplacements) {
  const std::string bad = "\xEF\xBF\xBD";
  EXPECT_EQ(text("a\xFF z"), "\"a" + bad + " z\"");
  EXPECT_EQ(text("\xC3"), "\"" + bad + "\"");                                // cut short
  EXPECT_EQ(text("\xC0\xAF"), "\"" + bad + bad + "\"");                      // overlong
  EXPECT_EQ(text("\xED\xA0\x80"), "\"" + bad + bad + bad + "\"");            // a surrogate
  EXPECT_EQ(text("\xF4\x90\x80\x80"), "\"" + bad + bad + bad + bad + "\"");  // beyond U+10FFFF
}

std::string number(double value) {
  return JsonWriter().value(value).take();
}

TEST(JsonWriterTest, NumbersReadBackTheSame) {
  EXPECT_EQ(number(0.1), "0.1");
  EXPECT_EQ(number(-0.0), "-0.0");
  EXPECT_EQ(number(1e300), "1e+300");
  EXPECT_EQ(std::stod(number(0.1 + 0.2)), 0.1 + 0.2);
  EXPECT_EQ(JsonWriter().value(UINT64_MAX).take(), "18446744073709551615");
  EXPECT_EQ(JsonWriter().value(INT64_MIN).take(), "-9223372036854775808");
  EXPECT_EQ(number(std::nan("")), "null");
  EXPECT_EQ(number(-std::numeric_limits<double>::infinity()), "null");
}

TEST(JsonWriterDeathTest, MisuseIsABrokenInvariant) {
  EXPECT_DEATH(JsonWriter().begin_object().value(1), "");
  EXPECT_DEATH(JsonWriter().begin_array().key("a"), "");
  EXPECT_DEATH(JsonWriter().begin_array().end_object(), "");
  EXPECT_DEATH(JsonWriter().begin_array().take(), "");
}

}  // namespace
}  // namespace swarmline
