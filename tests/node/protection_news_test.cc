#include "node/protection_news.h"

#include <gtest/gtest.h>

namespace swarmline {
namespace {

RunStatus run(std::string state, std::string unprotected) {
  RunStatus status;
  status.state = std::move(state);
  status.unprotected = std::move(unprotected);
  return status;
}

TEST(ProtectionNews, SaysOnceThatOnePeerAloneHoldsAStageAndOnceThatNoneDoes) {
  ProtectionNews news;
  EXPECT_EQ(news.of(run("training", "")), std::nullopt) << "as it should be";
  EXPECT_EQ(news.of(run("training", "a of stage 1: it goes back to its beginning")),
            "unprotected: a of stage 1: it goes back to its beginning");
  EXPECT_EQ(news.of(run("training", "a of stage 1: it goes back to step-50")), std::nullopt);
  const auto over = news.of(run("training", ""));
  ASSERT_TRUE(over);
  EXPECT_TRUE(over->starts_with("protected again")) << *over;
  EXPECT_EQ(news.of(run("training", "")), std::nullopt);
}

// A run that doesn't train says nothing of it, which is no protection.
TEST(ProtectionNews, IsOfARunThatTrains) {
  ProtectionNews news;
  EXPECT_EQ(news.of(run("waiting", "")), std::nullopt);
  ASSERT_TRUE(news.of(run("training", "a of stage 1")));
  EXPECT_EQ(news.of(run("collecting", "")), std::nullopt);
  EXPECT_EQ(news.of(run("training", "a of stage 1")), std::nullopt) << "said already";
  EXPECT_EQ(news.of(run("done", "")), std::nullopt);
}

}  // namespace
}  // namespace swarmline
