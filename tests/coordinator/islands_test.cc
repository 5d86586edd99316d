// Which members of a group sum on their host first.
#include "pipeline/coordinator/steps/islands.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "engine/collective/island.h"
#include "tests/harness/mark_expected.h"

namespace swarmline {
namespace {

using Hosts = std::vector<std::string>;
using Speakers = std::vector<std::uint32_t>;

TEST(IslandsTest, TheLowestRankOfAHostSpeaks) {
  const MarkExpected formed("islands.formed");
  EXPECT_EQ(islands_of(Hosts{"a", "b", "a", "b", "c"}), (Speakers{0, 1, 0, 1, 4}));
  EXPECT_EQ(islands_of(Hosts{"a", "a", "b"}), (Speakers{0, 0, 2}));
}

TEST(IslandsTest, NobodySpeaksForOthersWhereThatGainsNothing) {
  EXPECT_EQ(islands_of(Hosts{}), Speakers{});
  EXPECT_EQ(islands_of(Hosts{"a"}), Speakers{});
  EXPECT_EQ(islands_of(Hosts{"a", "b", "c"}), Speakers{}) << "no two are on one";
  EXPECT_EQ(islands_of(Hosts{"a", "a", "a"}), Speakers{}) << "nothing leaves the host";
  EXPECT_EQ(islands_of(Hosts(2 * kIslandMembersMax, "a")), Speakers{});
}

TEST(IslandsTest, WhoSaysNoHostIsAlone) {
  EXPECT_EQ(islands_of(Hosts{"", "", ""}), Speakers{});
  EXPECT_EQ(islands_of(Hosts{"", "a", "", "a"}), (Speakers{0, 1, 2, 1}));
}

TEST(IslandsTest, AHostOfManyHasSeveralIslands) {
  Hosts hosts(kIslandMembersMax + 2, "a");
  hosts.push_back("b");
  const Speakers speakers = islands_of(hosts);
  EXPECT_EQ(speakers[kIslandMembersMax - 1], 0U);
  EXPECT_EQ(speakers[kIslandMembersMax], kIslandMembersMax);
  EXPECT_EQ(speakers[kIslandMembersMax + 1], kIslandMembersMax);
}

// Whatever members say, what comes out is taken by those who average.
TEST(IslandsTest, AnyWordsMakeIslandsThatFit) {
  Rng rng(5);
  for (int round = 0; round < 300; ++round) {
    Hosts hosts;
    for (std::uint64_t n = rng.below(60); n > 0; --n)
      hosts.push_back(rng.below(4) == 0 ? "" : std::to_string(rng.below(1 + rng.below(20))));
    const Speakers speakers = islands_of(hosts);
    if (speakers.empty()) continue;
    const auto rank = static_cast<std::uint32_t>(rng.below(hosts.size()));
    const IslandRanks ranks{.rank = rank, .speakers = speakers};
    const auto speaking = ranks.speaking();
    const auto own = std::ranges::find(speaking, speakers[rank]);
    const auto count = static_cast<std::uint32_t>(speaking.size());
    std::vector<std::uint64_t> bounds(count, 0);
    bounds.push_back(1);
    const Buffer in = Buffer::zeroed(4), out = Buffer::zeroed(4);
    EXPECT_TRUE(check_islands(ranks,
                              {.rank = static_cast<std::uint32_t>(own - speaking.begin()),
                               .ranks = count,
                               .elements = 1,
                               .bounds = bounds,
                               .scatter = std::vector<CodecSpec>(count)},
                              in.bytes(), out.bytes()));
  }
}

}  // namespace
}  // namespace swarmline
