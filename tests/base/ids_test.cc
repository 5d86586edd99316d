#include "base/ids.h"

#include <gtest/gtest.h>

namespace swarmline {
namespace {

constexpr Seat seat(std::uint32_t peer, std::uint16_t stage, std::uint32_t incarnation) {
  return {PeerId{peer}, StageId{stage}, Incarnation{incarnation}};
}

TEST(Seat, IsOverWithALaterOneOfItsPeerWhateverTheStage) {
  EXPECT_TRUE(is_over_with(seat(3, 1, 2), seat(3, 1, 2)));
  EXPECT_TRUE(is_over_with(seat(3, 1, 2), seat(3, 0, 4)));
  EXPECT_FALSE(is_over_with(seat(3, 1, 2), seat(3, 1, 1)));
  EXPECT_FALSE(is_over_with(seat(3, 1, 2), seat(4, 1, 2)));
}

}  // namespace
}  // namespace swarmline
