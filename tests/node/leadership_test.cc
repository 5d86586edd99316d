// Who leads, over a store that does as it is told and a clock of its own.

#include "node/leadership.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "sim/doors/sim_runtime.h"
#include "tests/harness/mark_expected.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

class ToldStore final : public ControlStore {
 public:
  Result<bool> try_lead(const std::string& /*who*/) override {
    ++asked;
    if (silent) return fail(ErrorCode::kIo, "no answer");
    if (refuses) return fail(ErrorCode::kRefused, "the lease is over");
    if (broken) return fail(ErrorCode::kIncompatible, "of a newer format");
    return free;
  }
  Result<std::optional<std::string>> leader() override { return std::nullopt; }
  void renew(Renewed done) override {
    ++renewed;
    if (silent) return done(fail(ErrorCode::kIo, "no answer"));
    if (!free) return done(fail(ErrorCode::kRefused, "another leads"));
    done({});
  }
  Duration renewal_period() const override { return period; }
  Duration lease_time() const override { return lease; }
  void release() override {}
  Result<AsyncJournal*> journal() override { return &immediate_; }

  bool free = true, silent = false, broken = false, refuses = false;
  Duration period = 1s, lease = 4s;
  int asked = 0, renewed = 0;

 private:
  std::unique_ptr<Journal> journal_ = make_memory_journal();
  ImmediateJournal immediate_{*journal_};
};

class LeadershipTest : public testing::Test {
 protected:
  void pass(Duration time) { clock_.run_for(time); }
  Leadership leadership() {
    return {clock_.node(0), store_, "me", [this](Leadership::End how, const std::string& why) {
              how_ = how;
              why_ = why;
            }};
  }
  void stand_by(Leadership& leadership) {
    leadership.stand_by([this](Result<AsyncJournal*> journal) {
      ++led_;
      journal_ = std::move(journal);
    });
  }

  SimRuntime clock_{1};
  ToldStore store_;
  std::optional<Leadership::End> how_;
  std::string why_;
  int led_ = 0;
  Result<AsyncJournal*> journal_ = nullptr;
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
  EXPECT_EQ(how_, Leadership::End::kDeposed);
}

// Nobody says that another leads: its own clock does.
TEST_F(LeadershipTest, WhoCantRenewForTheLeaseTimeEndsByItsOwnClock) {
  const MarkExpected expired("leadership.expired");
  Leadership leads = leadership();
  ASSERT_TRUE(leads.try_lead());
  pass(5500ms);  // renewed at 5 s for the last time
  store_.silent = true;
  pass(3400ms);
  EXPECT_EQ(how_, std::nullopt);
  pass(200ms);
  EXPECT_EQ(how_, Leadership::End::kExpired);
  const int renewed = store_.renewed;
  pass(10s);
  EXPECT_EQ(store_.renewed, renewed) << "it has ended";
}

// What passes by itself ends no standby: it asks again.
TEST_F(LeadershipTest, AStandbyOutlastsARefusal) {
  store_.refuses = true;
  Leadership standby = leadership();
  stand_by(standby);
  pass(3s);
  EXPECT_EQ(led_, 0);
  store_.refuses = false;
  pass(kStandbyPeriod);
  EXPECT_EQ(led_, 1);
  EXPECT_TRUE(journal_);
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
