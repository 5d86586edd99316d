// The string that joins: what it holds comes back, and nothing else than what was written is one.
#include "node/admission/join_string.h"

#include <algorithm>
#include <string>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace swarmline {
namespace {

JoinString sample() {
  JoinString join{.run = "quickstart",
                  .run_key = {},
                  .invite_id = "\x01\x02\x03\x04\x05\x06\x07\x08",
                  .secret = std::string(kInviteSecretBytes, '\xff'),
                  .addresses = {{"192.0.2.7", 7400}, {"node-3.example.org", 1}, {"::1", 65535}}};
  for (std::size_t i = 0; i < KeyHash::kBytes; ++i)
    join.run_key.bytes[i] = static_cast<std::uint8_t>(7 * i);
  return join;
}

JoinString drawn(Rng& rng) {
  JoinString join;
  join.run = std::string(1 + rng.next_u32() % 40, 'r');
  for (auto& byte : join.run_key.bytes) byte = static_cast<std::uint8_t>(rng.next_u32());
  for (std::size_t i = 0; i < kInviteIdBytes; ++i)
    join.invite_id.push_back(static_cast<char>(rng.next_u32()));
  for (std::size_t i = 0; i < kInviteSecretBytes; ++i)
    join.secret.push_back(static_cast<char>(rng.next_u32()));
  for (std::uint32_t i = 0; i <= rng.next_u32() % 3; ++i)
    join.addresses.push_back(
        {"10.0.0." + std::to_string(i), static_cast<std::uint16_t>(1 + rng.next_u32() % 65535)});
  return join;
}

void expect_refused(const std::string& text) {
  const auto join = parse_join_string(text);
  ASSERT_FALSE(join.has_value()) << text;
  EXPECT_EQ(join.error().code, ErrorCode::kUserMistake);
  EXPECT_TRUE(join.error().what.starts_with("this is no join string: ")) << join.error().what;
}

TEST(JoinString, WhatItHoldsComesBack) {
  const auto text = to_text(sample());
  ASSERT_TRUE(text.has_value());
  EXPECT_TRUE(text->starts_with("swarm1"));
  EXPECT_TRUE(text->ends_with("@192.0.2.7:7400,node-3.example.org:1,[::1]:65535")) << *text;
  EXPECT_EQ(text->find_first_of(" '\"\\$\n"), std::string::npos) << "a shell would read it";
  const auto join = parse_join_string(*text);
  ASSERT_TRUE(join.has_value()) << join.error().what;
  EXPECT_EQ(*join, sample());
}

TEST(JoinString, AnyThatWasWrittenIsRead) {
  Rng rng(19);
  for (int i = 0; i < 2000; ++i) {
    const JoinString join = drawn(rng);
    const auto text = to_text(join);
    ASSERT_TRUE(text.has_value()) << text.error().what;
    const auto read = parse_join_string(*text);
    ASSERT_TRUE(read.has_value()) << read.error().what;
    EXPECT_EQ(*read, join);
  }
}

// Every single change of one byte, every byte left out, doubled or exchanged with its neighbour,
// every beginning and every end.
TEST(JoinString, NoChangedOneIsTaken) {
  const std::string text = *to_text(sample());
  std::size_t tried = 0;
  const auto refuse = [&](const std::string& changed) {
    if (changed == text) return;
    ++tried;
    expect_refused(changed);
  };
  for (std::size_t at = 0; at < text.size(); ++at) {
    for (int byte = 0; byte < 256; ++byte) {
      std::string changed = text;
      changed[at] = static_cast<char>(byte);
      refuse(changed);
    }
    refuse(text.substr(0, at));
    refuse(text.substr(at + 1));
    refuse(text.substr(0, at) + text.substr(at + 1));
    refuse(text.substr(0, at) + text[at] + text.substr(at));
    std::string swapped = text;
    std::swap(swapped[at], swapped[std::min(at + 1, text.size() - 1)]);
    refuse(swapped);
  }
  for (const char* added : {" ", "\n", ",", ":1", "a", "@192.0.2.7:7400"}) {
    refuse(text + added);
    refuse(added + text);
  }
  std::string upper = text;
  std::ranges::transform(upper, upper.begin(),
                         [](char c) { return static_cast<char>(toupper(c)); });
  refuse(upper);
  EXPECT_GT(tried, 256 * text.size());
}

TEST(JoinString, PartsOfTwoMakeNone) {
  Rng rng(7);
  const std::string text = *to_text(sample());
  for (int i = 0; i < 50; ++i) {
    const std::string other = *to_text(drawn(rng));
    const std::size_t at = 6 + rng.next_u32() % (std::min(text.size(), other.size()) - 7);
    expect_refused(text.substr(0, at) + other.substr(at));
    expect_refused(text.substr(0, text.find('@')) + other.substr(other.find('@')));
  }
}

TEST(JoinString, GarbageIsRefusedAndNothingElse) {
  Rng rng(3);
  for (int i = 0; i < 20'000; ++i) {
    std::string text = i % 2 == 0 ? "swarm1" : "";
    const std::uint32_t size = rng.next_u32() % 200;
    constexpr std::string_view kLikely = "abcxyz27@:,.[]0 ";
    for (std::uint32_t at = 0; at < size; ++at)
      text.push_back(i % 3 == 0 ? static_cast<char>(rng.next_u32())
                                : kLikely[rng.next_u32() % kLikely.size()]);
    expect_refused(text);
  }
  expect_refused("swarm1" + std::string(kJoinStringBytesMax, 'a'));
}

TEST(JoinString, SentencesSayWhatIsWrong) {
  const auto why = [](const std::string& text) { return parse_join_string(text).error().what; };
  const std::string text = *to_text(sample());
  EXPECT_NE(why("127.0.0.1:7400").find("does not begin with swarm1"), std::string::npos);
  EXPECT_NE(why("swarm2" + text.substr(6)).find("another version"), std::string::npos);
  EXPECT_NE(why(text.substr(0, 40)).find("no @"), std::string::npos);
  EXPECT_NE(why(text.substr(0, 30) + text.substr(40)).find("too short"), std::string::npos);
  EXPECT_NE(why(text + "1").find("address"), std::string::npos);
  EXPECT_NE(why(text.substr(0, text.size() - 1) + "4").find("checksum"), std::string::npos);
  const std::string secret = text.substr(80, 30);
  EXPECT_EQ(why(text.substr(0, text.size() - 1) + "4").find(secret), std::string::npos);
}

TEST(JoinString, WhatNoStringCanHoldIsRefused) {
  const auto refused = [](auto&& change) {
    JoinString join = sample();
    change(join);
    return !to_text(join).has_value();
  };
  EXPECT_TRUE(refused([](JoinString& join) { join.run.clear(); }));
  EXPECT_TRUE(refused([](JoinString& join) { join.run = "two words"; }));
  EXPECT_TRUE(refused([](JoinString& join) { join.run = std::string(kRunNameBytesMax + 1, 'x'); }));
  EXPECT_TRUE(refused([](JoinString& join) { join.secret.pop_back(); }));
  EXPECT_TRUE(refused([](JoinString& join) { join.addresses.clear(); }));
  EXPECT_TRUE(refused([](JoinString& join) { join.addresses[0].port = 0; }));
  EXPECT_TRUE(refused([](JoinString& join) { join.addresses[0].host = "a b"; }));
  EXPECT_TRUE(refused(
      [](JoinString& join) { join.addresses.assign(kJoinAddressesMax + 1, {"10.0.0.1", 1}); }));
}

}  // namespace
}  // namespace swarmline
