// Who has to go when too many connections have not said who they are.
#include "engine/net/tcp/strangers.h"

#include <set>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

constexpr Strangers::Bounds kBounds{.connections_max = 6,
                                    .of_host_max = 3,
                                    .held_bytes_max = 100,
                                    .unsent_bytes_max = 50,
                                    .patience = 10s};

Instant at(Duration since) {
  return Instant{} + since;
}

TEST(Strangers, TheLongestSilentOfAnAddressWithTooManyGoes) {
  Strangers strangers(kBounds);
  const auto first = strangers.add("a", at(1s)).id, second = strangers.add("a", at(2s)).id;
  strangers.add("a", at(3s));
  strangers.heard(first, at(4s));
  const auto fourth = strangers.add("a", at(5s));
  EXPECT_EQ(fourth.crowded_out, second) << "the first has said something since";
  strangers.remove(second);
  EXPECT_EQ(strangers.add("b", at(6s)).crowded_out, std::nullopt) << "another address has room";
  strangers.check_invariants();
}

TEST(Strangers, WhoeverOpensManyCrowdsOutItselfAndNotTheOthers) {
  Strangers strangers(kBounds);
  strangers.add("honest", at(0s));
  const auto oldest = strangers.add("a", at(1s)).id;
  for (int i = 0; i < 2; ++i) strangers.add("a", at(2s));
  for (int i = 0; i < 2; ++i) strangers.add("b", at(3s));
  const auto newest = strangers.add("c", at(4s));
  EXPECT_EQ(newest.crowded_out, oldest) << "not the one of an address that has only one";
}

TEST(Strangers, MemoryIsTheirsTogetherAndComesBack) {
  Strangers strangers(kBounds);
  const auto one = strangers.add("a", at(0s)).id, two = strangers.add("b", at(0s)).id;
  EXPECT_TRUE(strangers.holds(one, 60, 0));
  EXPECT_FALSE(strangers.holds(two, 50, 0));
  EXPECT_TRUE(strangers.holds(two, 0, 40)) << "what gets less is not refused";
  EXPECT_FALSE(strangers.holds(one, 60, 20));
  strangers.remove(two);
  EXPECT_TRUE(strangers.holds(one, 100, 50));
  strangers.check_invariants();
}

TEST(Strangers, AnyOrderOfEventsKeepsItsBounds) {
  Rng rng(7);
  Strangers strangers(kBounds);
  std::set<Strangers::Id> open;
  for (int i = 0; i < 20'000; ++i) {
    const Instant now = at(std::chrono::milliseconds(i));
    const auto added = strangers.add(std::string(1, static_cast<char>('a' + rng.below(5))), now);
    open.insert(added.id);
    if (added.crowded_out) {
      ASSERT_EQ(open.erase(*added.crowded_out), 1U);
      strangers.remove(*added.crowded_out);
    }
    const auto some = *std::next(open.begin(), static_cast<long>(rng.below(open.size())));
    switch (rng.below(3)) {
      case 0:
        strangers.heard(some, now);
        break;
      case 1:
        strangers.holds(some, rng.below(200), rng.below(100));
        break;
      default:
        if (open.erase(some) == 1) strangers.remove(some);
    }
    ASSERT_LE(strangers.count(), kBounds.connections_max);
    strangers.check_invariants();
  }
}

}  // namespace
}  // namespace swarmline
