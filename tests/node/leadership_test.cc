// Who leads, over a store that does as it is told and a clock of its own.

#include "node/leadership.h"

#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "sim/doors/sim_runtime.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

class ToldStore final : public ControlStore {
 public:
  Result<bool> try_lead(const std::string& /*who*/) override {
    ++asked;
    if (silent) return fail(ErrorCode::kIo, "no answer");
    if (broken) return fail(ErrorCode::kIncompatible, "of a newer format");
    return free;
  }
  Result<std::optional<std::string>> leader() override { return std::nullopt; }
  Result<void> renew() override {
    ++renewed;
    if (silent) return fail(ErrorCode::kIo, "no answer");
    if (!free) return fail(ErrorCode::kRefused, "another leads");
    return {};
  }
  Duration renewal_period() const override { return period; }
  void release() override {}
  Result<Journal*> journal() override { return journal_.get(); }

  bool free = true, silent = false, broken = false;
  Duration period = 1s;
  int asked = 0, renewed = 0;

 private:
  std::unique_ptr<Journal> journal_ = make_memory_journal();
};

class LeadershipTest : public testing::Test {
 protected:
  void pass(Duration time) {
    clock_.run_until([] { return false; }, time);
  }
  Leadership leadership() {
    return {clock_.node(0), store_, "me", [this](const std::string& why) { why_ = why; }};
  }
  void stand_by(Leadership& leadership) {
    leadership.stand_by([this](Result<Journal*> journal) {
      ++led_;
      journal_ = std::move(journal);
    });
  }

  SimRuntime clock_{1};
  ToldStore store_;
  std::string why_;
  int led_ = 0;
  Result<Journal*> journal_ = nullptr;
};

TEST_F(LeadershipTest, WhoLeadsRenewsUntilAnotherLeads) {
  Leadership leads = leadership();
  const auto journal = leads.try_lead();
  ASSERT_TRUE(journal);
  EXPECT_NE(*journal, nullptr);
  pass(3500ms);
  EXPECT_EQ(store_.renewed, 3);
  store_.silent = true;  // a store that does not answer is asked again
  pass(2s);
  EXPECT_EQ(store_.renewed, 5);
  EXPECT_EQ(why_, "");
  store_.silent = store_.free = false;
  pass(5s);
  EXPECT_EQ(store_.renewed, 6);
  EXPECT_EQ(why_, "another leads");
}

TEST_F(LeadershipTest, AStoreWithoutALeaseIsNotRenewed) {
  store_.period = {};
  Leadership leads = leadership();
  ASSERT_TRUE(leads.try_lead());
  pass(10s);
  EXPECT_EQ(store_.renewed, 0);
}

TEST_F(LeadershipTest, AStandbyAsksUntilItLeads) {
  store_.free = false;
  Leadership standby = leadership();
  EXPECT_EQ(standby.try_lead().value_or(nullptr), nullptr);
  stand_by(standby);
  EXPECT_EQ(store_.asked, 1);
  pass(2s);
  store_.silent = true;
  pass(2s);
  EXPECT_EQ(led_, 0);
  EXPECT_GE(store_.asked, 8);
  store_.silent = false;
  store_.free = true;
  pass(kStandbyPeriod);
  EXPECT_EQ(led_, 1);
  ASSERT_TRUE(journal_);
  EXPECT_NE(*journal_, nullptr);
  const int asked = store_.asked;
  pass(3s);
  EXPECT_EQ(store_.asked, asked);
  EXPECT_EQ(store_.renewed, 3);
}

TEST_F(LeadershipTest, WhatWaitingDoesNotMendEndsIt) {
  store_.broken = true;
  Leadership standby = leadership();
  stand_by(standby);
  pass(3s);
  EXPECT_EQ(led_, 1);
  ASSERT_FALSE(journal_);
  EXPECT_EQ(journal_.error().code, ErrorCode::kIncompatible);
  EXPECT_EQ(store_.asked, 1);
}

TEST_F(LeadershipTest, OneThatIsGoneAsksAndRenewsNoMore) {
  {
    Leadership leads = leadership();
    ASSERT_TRUE(leads.try_lead());
    Leadership standby = leadership();
    stand_by(standby);
  }
  pass(5s);
  EXPECT_EQ(store_.renewed, 0);
  EXPECT_EQ(led_, 0);
}

}  // namespace
}  // namespace swarmline
