// Who leads: what all stores promise, and what a lease adds.

#include "engine/store/control_store.h"

#include <csignal>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/runtime/asio_runtime.h"
#include "engine/store/etcd_journal.h"
#include "sim/doors/sim_control_store.h"
#include "tests/runtime/comes_true.h"
#include "tests/store/etcd_process.h"
#include "tests/store/temp_folder.h"
#include "tests/store/test_authority.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

Journal& of(ControlStore& store) {
  return (*store.journal())->at_once();
}
// `wait` passes the time until its argument holds.
template <typename Wait>
Result<void> renewed_by(ControlStore& store, Wait wait) {
  std::optional<Result<void>> renewed;
  store.renew([&](const Result<void>& result) { renewed = result; });
  wait([&] { return renewed.has_value(); });
  return renewed.value_or(fail(ErrorCode::kDeadline, "no word"));
}

class ControlStoreContract : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!in_etcd()) return;
    if (const std::string why = EtcdProcess::missing(); !why.empty()) GTEST_SKIP() << why;
    etcd_ = std::make_unique<EtcdProcess>();
    options_.etcd = {etcd_->endpoint()};
  }
  bool in_etcd() const { return GetParam() == std::string("etcd"); }
  std::unique_ptr<ControlStore> open() {
    return GetParam() == std::string("simulated") ? lead_.open(0)
                                                  : *open_control_store(runtime_, options_);
  }

  TempFolder folder_;
  std::unique_ptr<EtcdProcess> etcd_;
  ControlStoreOptions options_{
      .etcd = {}, .run_folder = folder_.path(), .run = "run", .lease = 10s};
  AsioRuntime runtime_;
  SimRuntime clock_{1};
  SimJournal journal_{clock_};
  SimLead lead_{clock_, journal_};
};

TEST_P(ControlStoreContract, OneLeadsTheOtherWaits) {
  const auto first = open(), second = open();
  EXPECT_EQ(*first->leader(), std::nullopt);
  EXPECT_EQ(first->journal().error().code, ErrorCode::kRefused);
  ASSERT_TRUE(*first->try_lead("127.0.0.1:1"));
  ASSERT_TRUE(*first->try_lead("127.0.0.1:1"));  // it does already
  EXPECT_FALSE(*second->try_lead("127.0.0.1:2"));
  EXPECT_EQ(*second->leader(), "127.0.0.1:1");
  EXPECT_EQ(second->journal().error().code, ErrorCode::kRefused);
  ASSERT_TRUE(of(*first).put_meta("term", "1"));
  first->release();
  EXPECT_EQ(*second->leader(), std::nullopt);
  ASSERT_TRUE(*second->try_lead("127.0.0.1:2"));
  EXPECT_EQ(*of(*second).get_meta("term"), "1");
  EXPECT_FALSE(*first->try_lead("127.0.0.1:1"));
}

INSTANTIATE_TEST_SUITE_P(All, ControlStoreContract,
                         testing::Values("embedded", "etcd", "simulated"),
                         [](const auto& info) { return std::string(info.param); });

TEST(SimLead, WhoDoesNotLeadAnyMoreWritesNothing) {
  SimRuntime clock(1);
  SimJournal journal(clock);
  SimLead lead(clock, journal);
  const auto first = lead.open(1), second = lead.open(2);
  ASSERT_TRUE(*first->try_lead("first"));
  Journal* old = &of(*first);
  lead.expire();
  ASSERT_TRUE(*second->try_lead("second"));
  ASSERT_TRUE(of(*second).put_meta("term", "2"));
  EXPECT_EQ(old->put_meta("term", "1").error().code, ErrorCode::kRefused);
  EXPECT_EQ(renewed_by(*first, [&](const auto& done) { clock.run_until(done, 1s); }).error().code,
            ErrorCode::kRefused);
  EXPECT_EQ(*journal.get_meta("term"), "2");
}

// What a lease adds.
class EtcdLease : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = EtcdProcess::missing(); !why.empty()) GTEST_SKIP() << why;
    etcd_ = std::make_unique<EtcdProcess>();
  }
  std::unique_ptr<ControlStore> open(Duration lease) const {
    return *open_control_store(
        runtime_, {.etcd = {etcd_->endpoint()}, .run_folder = {}, .run = "run", .lease = lease});
  }
  Result<void> renew(ControlStore& store) {
    return renewed_by(store, [this](const auto& done) { runtime_.run_until(done, 30s); });
  }
  mutable AsioRuntime runtime_;
  std::unique_ptr<EtcdProcess> etcd_;
};

TEST_F(EtcdLease, StaysWithALeaderThatRenews) {
  constexpr Duration kTime = 3s;
  const auto first = open(kTime), second = open(kTime);
  ASSERT_TRUE(*first->try_lead("first"));
  ASSERT_LT(2 * first->renewal_period(), kTime);
  // More often than it must, so that a stall of this machine is no loss.
  constexpr Duration kPause = 200ms;
  for (Duration passed{}; passed < kTime * 3 / 2; passed += kPause) {
    std::this_thread::sleep_for(kPause);
    ASSERT_TRUE(renew(*first));
    ASSERT_FALSE(*second->try_lead("second"));
  }
  EXPECT_TRUE(of(*first).put_meta("still", "here"));
}

// A leader that was stopped for longer than its lease, and does not know.
TEST_F(EtcdLease, WhoDoesNotLeadAnyMoreWritesNothing) {
  const auto first = open(2s), second = open(2s);
  ASSERT_TRUE(*first->try_lead("first"));
  Journal* old = &of(*first);
  ASSERT_TRUE(old->put_meta("term", "1"));
  ASSERT_TRUE(comes_true([&] {
    auto leads = second->try_lead("second");
    return leads && *leads;
  }));
  ASSERT_TRUE(of(*second).put_meta("term", "2"));
  const auto late = old->record_commit({.step = 7, .version = 8});
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, ErrorCode::kRefused);
  EXPECT_EQ(old->put_meta("term", "1").error().code, ErrorCode::kRefused);
  EXPECT_EQ(renew(*first).error().code, ErrorCode::kRefused);
  EXPECT_EQ(*of(*second).get_meta("term"), "2");
  EXPECT_EQ(*of(*second).last_commit(), std::nullopt);
}

TEST_F(EtcdLease, OutlivesTheServersRestart) {
  const auto store = open(30s);
  ASSERT_TRUE(*store->try_lead("first"));
  Journal& journal = of(*store);
  ASSERT_TRUE(journal.record_commit({.step = 1, .version = 2}));
  etcd_->restart();
  ASSERT_TRUE(comes_true([&] { return renew(*store).has_value(); }));
  ASSERT_TRUE(journal.record_commit({.step = 2, .version = 3}));
  EXPECT_EQ((*journal.last_commit())->step, 2U);
}

TEST_F(EtcdLease, FrozenServerIsAnErrorInTime) {
  const auto store = open(1s);
  ASSERT_TRUE(*store->try_lead("first"));
  etcd_->signal(SIGSTOP);
  EXPECT_EQ(of(*store).put_meta("a", "b").error().code, ErrorCode::kIo);
  etcd_->signal(SIGCONT);
}

// It is no word about who leads: the same write is taken once there is room.
TEST_F(EtcdLease, AFullEtcdIsAnOutage) {
  etcd_ = std::make_unique<EtcdProcess>(std::vector<std::string>{"--quota-backend-bytes=4194304"});
  const auto store = open(30s);
  ASSERT_TRUE(*store->try_lead("first"));
  const std::string value(1 << 20, 'x');
  Result<void> written;
  for (int i = 0; i < 16 && written; ++i) written = of(*store).put_meta(std::to_string(i), value);
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code, ErrorCode::kIo) << written.error().what;
  EXPECT_THAT(written.error().what, testing::HasSubstr("space"));
}

// What was overwritten does not stay for ever.
TEST_F(EtcdLease, ALeaderCompactsIt) {
  const auto store = open(60s);
  ASSERT_TRUE(*store->try_lead("first"));
  EtcdClient client({{"127.0.0.1", etcd_->endpoint().substr(etcd_->endpoint().find(':') + 1)}}, 5s);
  for (std::uint64_t i = 0; i < 2 * kWritesPerCompaction; ++i)
    ASSERT_TRUE(of(*store).put_meta("evaluated", std::to_string(i)));
  const auto compacted = client.compact(kRevisionsKept / 2);
  ASSERT_FALSE(compacted);
  EXPECT_EQ(compacted.error().code, ErrorCode::kIo);
  EXPECT_THAT(compacted.error().what, testing::HasSubstr("compacted"));
  EXPECT_EQ(*of(*store).get_meta("evaluated"), std::to_string(2 * kWritesPerCompaction - 1));
}

class EtcdOverHttps : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = EtcdProcess::missing(); !why.empty()) GTEST_SKIP() << why;
    etcd_.emplace(std::vector<std::string>{}, files_);
  }
  Result<bool> lead(const EtcdTlsFiles& files) {
    auto store = open_control_store(runtime_, {.etcd = {etcd_->endpoint()},
                                               .run_folder = {},
                                               .run = "run",
                                               .lease = 10s,
                                               .etcd_tls = files});
    if (!store) return std::unexpected(store.error());
    auto leads = (*store)->try_lead("the test");
    if (leads && *leads) EXPECT_TRUE(of(**store).put_meta("term", "1"));
    return leads;
  }
  std::string refused(const EtcdTlsFiles& files) {
    const auto leads = lead(files);
    return leads ? "it led" : leads.error().what;
  }
  TempFolder folder_;
  EtcdTlsFiles files_ = make_test_certificate(folder_, "ours"),
               theirs_ = make_test_certificate(folder_, "theirs");
  AsioRuntime runtime_;
  std::optional<EtcdProcess> etcd_;
};

TEST_F(EtcdOverHttps, LeadsWithACertificateThatItTrusts) {
  const auto leads = lead(files_);
  ASSERT_TRUE(leads) << leads.error().what;
  EXPECT_TRUE(*leads);
}

TEST_F(EtcdOverHttps, NobodyWithoutOneOrWithAnothers) {
  EXPECT_THAT(refused({.authority = files_.authority, .certificate = {}, .key = {}}),
              testing::HasSubstr(etcd_->endpoint()));
  EXPECT_THAT(
      refused(
          {.authority = files_.authority, .certificate = theirs_.certificate, .key = theirs_.key}),
      testing::HasSubstr(etcd_->endpoint()));
  EXPECT_THAT(refused({}), testing::HasSubstr(etcd_->endpoint())) << "in clear text";
}

TEST_F(EtcdOverHttps, AnEtcdOfAnotherAuthorityIsNotBelieved) {
  EXPECT_THAT(
      refused(
          {.authority = theirs_.authority, .certificate = files_.certificate, .key = files_.key}),
      testing::HasSubstr("certificate verify failed"));
}

TEST_F(EtcdOverHttps, FilesThatAreNotWhatTheyShouldBeAreNamed) {
  EXPECT_THAT(refused({.authority = folder_.at("none.pem"), .certificate = {}, .key = {}}),
              testing::HasSubstr("none.pem"));
  EXPECT_THAT(refused({.authority = files_.key, .certificate = {}, .key = {}}),
              testing::HasSubstr("ours.key: found no certificate of an authority"));
  EXPECT_THAT(
      refused(
          {.authority = files_.authority, .certificate = files_.certificate, .key = theirs_.key}),
      testing::HasSubstr("theirs.key: found no key in PEM that fits"));
}

TEST(ControlStore, NobodyAtTheAddressIsSaidInTime) {
  AsioRuntime runtime;
  const auto store =
      *open_control_store(runtime, {.etcd = {"127.0.0.1:1"}, .run_folder = {}, .run = "run"});
  const auto leads = store->try_lead("first");
  ASSERT_FALSE(leads);
  EXPECT_EQ(leads.error().code, ErrorCode::kIo);
  EXPECT_THAT(leads.error().what, testing::HasSubstr("127.0.0.1:1"));
}

}  // namespace
}  // namespace swarmline
