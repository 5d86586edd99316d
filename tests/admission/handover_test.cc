// What a run's key says of the one after it.
#include "node/admission/handover.h"

#include <gtest/gtest.h>

#include "engine/net/link_guard.h"
#include "node/admission/invites.h"

namespace swarmline {
namespace {

constexpr double kNow = 1'790'000'000;

class Handovers : public ::testing::Test {
 protected:
  Handover handover(const Identity& from, const Identity& into, double overlap = 3600,
                    double now = kNow) const {
    return make_handover("run", from, into, now, overlap);
  }
  // The last key that is led to.
  static std::optional<KeyHash> heir(const Identity& known, const std::vector<Handover>& said,
                                     double now = kNow, const std::string& run = "run") {
    const auto path = succession(known.hash(), said, run, now);
    return path.empty() ? std::nullopt : std::optional(*hash_of_public_key(path.back().into));
  }

  const Identity first_ = Identity::make(), second_ = Identity::make(), third_ = Identity::make();
};

TEST_F(Handovers, AreReadAsTheyWereWritten) {
  const Handover made = handover(first_, second_), later = handover(second_, third_);
  const std::string text = made.text + later.text + "what follows";
  std::string_view rest = text;
  const auto read = take_handovers(rest);
  ASSERT_TRUE(read.has_value()) << read.error().what;
  ASSERT_EQ(read->size(), 2U);
  EXPECT_EQ(rest, "what follows");
  EXPECT_EQ(read->front().run, "run");
  EXPECT_EQ(read->front().from, first_.public_key());
  EXPECT_EQ(read->front().into, second_.public_key());
  EXPECT_EQ(read->front().made, kNow);
  EXPECT_EQ(read->front().until, kNow + 3600);
  EXPECT_EQ(read->back().text, later.text);
}

TEST_F(Handovers, AnyByteThatIsChangedIsFoundOut) {
  const std::string text = handover(first_, second_).text;
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string changed = text;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    std::string_view rest = changed;
    const auto read = take_handovers(rest);
    EXPECT_FALSE(read.has_value() && !read->empty()) << "byte " << i;
  }
  for (std::size_t size = 21; size < text.size(); ++size) {
    std::string_view rest = std::string_view(text).substr(0, size);
    EXPECT_FALSE(take_handovers(rest)) << size << " bytes of it";
  }
}

TEST_F(Handovers, SomebodyElseCanNotSignOne) {
  Handover forged = handover(first_, second_);
  const std::string signature = to_hex(as_bytes(first_.sign("something else")));
  forged.text.replace(forged.text.size() - signature.size() - 1, signature.size(), signature);
  std::string_view rest = forged.text;
  EXPECT_FALSE(take_handovers(rest));
}

TEST_F(Handovers, LeadFromKeyToKey) {
  const auto one = handover(first_, second_), two = handover(second_, third_);
  EXPECT_EQ(heir(first_, {one, two}), third_.hash());
  EXPECT_EQ(heir(first_, {two, one}), third_.hash()) << "in any order";
  EXPECT_EQ(heir(second_, {one, two}), third_.hash());
  EXPECT_EQ(heir(third_, {one, two}), std::nullopt) << "it is the last";
  EXPECT_EQ(heir(Identity::make(), {one, two}), std::nullopt);
  const auto back = handover(second_, first_);
  EXPECT_LE(succession(first_.hash(), std::vector{one, back}, "run", kNow).size(), 2U)
      << "a circle";
}

TEST_F(Handovers, HoldForTheirTimeOnly) {
  const std::vector<Handover> said = {handover(first_, second_, 3600)};
  EXPECT_TRUE(heir(first_, said, kNow + 3600 + kClockSkewSeconds));
  EXPECT_FALSE(heir(first_, said, kNow + 3601 + kClockSkewSeconds));
  EXPECT_TRUE(heir(first_, said, kNow - kClockSkewSeconds));
  EXPECT_FALSE(heir(first_, said, kNow - kClockSkewSeconds - 1)) << "of a time to come";
  EXPECT_FALSE(heir(first_, {handover(first_, second_, kKeyOverlapMaxSeconds + 1)}))
      << "nobody's word counts for so long";
  EXPECT_EQ(succession(first_.hash(), said, "run", std::nullopt).size(), 1U) << "whenever it was";
  EXPECT_EQ(vouchers_of(said, kNow + 10), said[0].text);
  EXPECT_EQ(vouchers_of(said, kNow + 10'000), "");
}

TEST_F(Handovers, ThoseOfAnotherRunAreNone) {
  EXPECT_FALSE(heir(first_, {handover(first_, second_)}, kNow, "another"));
}

TEST_F(Handovers, FitIntoWhatALinkSaysOfItself) {
  const std::string name(kRunNameBytesMax, 'n');
  const Handover longest = make_handover(name, first_, second_, kNow, kKeyOverlapMaxSeconds);
  EXPECT_LE(longest.text.size(), kHandoverBytesMax);
  EXPECT_LE(kHandoversMax * kHandoverBytesMax, kLinkVouchersMax);
  std::string_view rest = longest.text;
  EXPECT_TRUE(take_handovers(rest));
  // By a clock that was set back more hold than there were to be at a time.
  std::vector<Handover> many;
  for (int i = 0; i < 3; ++i)
    for (const Identity* key : {&first_, &second_, &third_})
      many.push_back(make_handover(name, *key, *key, kNow + i, 3600));
  const std::string told = vouchers_of(many, kNow + 10);
  EXPECT_LE(told.size(), kLinkVouchersMax);
  EXPECT_TRUE(told.ends_with(many[7].text + many[8].text));
}

}  // namespace
}  // namespace swarmline
