#include "base/nearest.h"

#include <string>

#include <gtest/gtest.h>

namespace swarmline {
namespace {

TEST(EditDistance, CountsInsertionsDeletionsSubstitutionsAndSwaps) {
  EXPECT_EQ(edit_distance("", ""), 0);
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("stages", "stage"), 1);
  EXPECT_EQ(edit_distance("stages", "stagse"), 1);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
}

TEST(Nearest, OffersOnlyWhatCanBeMeant) {
  constexpr std::string_view kWords[] = {"layers", "heads", "lr"};
  EXPECT_EQ(nearest("layrs", kWords), "layers");
  EXPECT_EQ(nearest("Heads", kWords), "heads");
  EXPECT_EQ(nearest("lt", kWords), "lr");
  EXPECT_EQ(nearest("xy", kWords), "");
  EXPECT_EQ(nearest("vocabulary", kWords), "");
  EXPECT_EQ(nearest(std::string(100'000, 'l'), kWords), "");
}

TEST(Nearest, TakesTheFirstOfEquals) {
  constexpr std::string_view kWords[] = {"bac", "bad"};
  EXPECT_EQ(nearest("bax", kWords), "bac");
}

}  // namespace
}  // namespace swarmline
