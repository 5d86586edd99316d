// Links between keys: who is who, what both ends agree on before there is a connection, and sealed
// bytes. What every network does, the contract suite says (tests/contract).
#include <memory>
#include <optional>

#include <gtest/gtest.h>

#include "base/byte_ops.h"
#include "base/rng.h"
#include "engine/net/tcp/tcp_network.h"
#include "tests/harness/mark_expected.h"
#include "tests/net/open_guard.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

class Tls : public ::testing::Test {
 protected:
  void listen() {
    const auto bound = server_.listen({"127.0.0.1", 0}, [this](auto connection) {
      accepted_ = connection;
      connection->start({.on_frame = [this](Frame frame) { frames_.push_back(std::move(frame)); },
                         .on_closed = [this](Error error) { closed_ = std::move(error); }});
    });
    ASSERT_TRUE(bound.has_value());
    address_ = *bound;
  }
  void connect(Duration timeout = 5s) {
    client_.connect(address_, timeout, [this](Result<std::shared_ptr<Connection>> made) {
      ASSERT_FALSE(answer_.has_value()) << "called twice";
      if (made) connection_ = *made;
      answer_ = made ? Result<void>() : std::unexpected(made.error());
    });
  }
  void link() {
    listen();
    connect();
    ASSERT_TRUE(run_until([this] { return answer_ && (accepted_ || !*answer_); }));
  }
  bool run_until(const std::function<bool()>& done) { return runtime_.run_until(done, 20s); }
  std::string refusal() const {
    return answer_ && !*answer_ ? answer_->error().what : std::string("not refused");
  }

  AsioRuntime runtime_;
  std::shared_ptr<OpenGuard> listens_ = std::make_shared<OpenGuard>();
  std::shared_ptr<OpenGuard> dials_ = std::make_shared<OpenGuard>();
  TcpNetwork server_{runtime_, {.guard = listens_}};
  TcpNetwork client_{runtime_, {.guard = dials_}};
  Address address_;
  std::shared_ptr<Connection> accepted_, connection_;
  std::vector<Frame> frames_;
  std::optional<Error> closed_;
  std::optional<Result<void>> answer_;
};

TEST_F(Tls, EachEndKnowsTheOthersKeyAndWhatItWasTakenFor) {
  link();
  ASSERT_TRUE(connection_ && accepted_);
  EXPECT_EQ(connection_->peer_key(), listens_->identity().hash());
  EXPECT_EQ(accepted_->peer_key(), dials_->identity().hash());
  EXPECT_EQ(connection_->admitted_as(), "listener");
  EXPECT_EQ(accepted_->admitted_as(), "dialler");
  EXPECT_EQ(listens_->openings, std::vector<std::string>{"hello"});
  EXPECT_EQ(connection_->local_host(), "127.0.0.1");
}

TEST_F(Tls, PlainLinksHaveNoKey) {
  TcpNetwork one(runtime_, {}), other(runtime_, {});
  std::shared_ptr<Connection> made;
  const auto bound = one.listen({"127.0.0.1", 0}, [](auto) {});
  other.connect(*bound, 5s, [&](auto connection) { made = *connection; });
  ASSERT_TRUE(run_until([&] { return made != nullptr; }));
  EXPECT_FALSE(made->peer_key().has_value());
  EXPECT_EQ(made->admitted_as(), "");
}

TEST_F(Tls, BothEndsHaveTheSameBindingAndNoTwoLinksShareOne) {
  link();
  connection_.reset();
  accepted_.reset();
  answer_.reset();
  connect();
  ASSERT_TRUE(run_until([this] { return answer_ && accepted_; }));
  ASSERT_EQ(listens_->accepted.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(listens_->accepted[i].binding, dials_->dialled[i].binding);
    EXPECT_EQ(listens_->accepted[i].binding.size(), 32U);
    EXPECT_EQ(listens_->accepted[i].public_key, dials_->identity().public_key());
  }
  EXPECT_NE(listens_->accepted[0].binding, listens_->accepted[1].binding);
}

TEST_F(Tls, ThePinnedKeyIsTaken) {
  dials_->pin = listens_->identity().hash();
  link();
  EXPECT_TRUE(connection_ != nullptr) << refusal();
}

TEST_F(Tls, AnotherKeyIsRefusedBeforeAnythingIsSaid) {
  dials_->pin = Identity::make().hash();
  link();
  EXPECT_EQ(connection_, nullptr);
  EXPECT_EQ(answer_->error().code, ErrorCode::kCorrupt);
  EXPECT_NE(refusal().find(short_text(*dials_->pin)), std::string::npos) << refusal();
  ASSERT_TRUE(run_until([this] { return server_.counters().handshakes_failed == 1; }));
  EXPECT_TRUE(dials_->dialled.empty()) << "it would have said something";
  EXPECT_TRUE(listens_->accepted.empty()) << "it has shown its own key";
  EXPECT_EQ(accepted_, nullptr);
}

TEST_F(Tls, AnotherKeyIsTakenWhereTheGuardBelievesWhatStandsBesideIt) {
  dials_->pin = Identity::make().hash();
  dials_->believes = "it came after that one";
  listens_->says_beside = "it came after that one\nor so";
  link();
  EXPECT_EQ(connection_, nullptr) << "that is something else";
  listens_->says_beside = dials_->believes;
  answer_.reset();
  connect();
  ASSERT_TRUE(run_until([this] { return answer_.has_value(); }));
  ASSERT_TRUE(connection_ != nullptr) << refusal();
  EXPECT_EQ(connection_->peer_key(), listens_->identity().hash());
  EXPECT_EQ(dials_->dialled.back().vouchers, dials_->believes);
  ASSERT_EQ(listens_->accepted.size(), 1U);
  EXPECT_EQ(listens_->accepted.back().vouchers, "") << "the other has nothing to say";
}

// The longest there may be, over a link of each direction.
TEST_F(Tls, AKeyThatChangesIsShownFromTheNextLinkOn) {
  const MarkExpected rule("tls.shows_another_key");
  link();
  const auto first = connection_;
  const KeyHash before = listens_->identity().hash();
  listens_->become(Identity::make());
  listens_->says_beside = std::string(kLinkVouchersMax, 'v');
  dials_->become(Identity::make());
  dials_->says_beside = std::string(kLinkVouchersMax, 'w');
  answer_.reset();
  connect();
  ASSERT_TRUE(run_until([this] { return answer_.has_value(); }));
  ASSERT_TRUE(connection_ != first) << refusal();
  EXPECT_EQ(first->peer_key(), before) << "the one that there was goes on";
  EXPECT_EQ(connection_->peer_key(), listens_->identity().hash());
  ASSERT_TRUE(run_until([this] { return listens_->accepted.size() == 2; }));
  EXPECT_EQ(listens_->accepted.back().key, dials_->identity().hash());
  EXPECT_EQ(listens_->accepted.back().vouchers, dials_->says_beside);
  EXPECT_EQ(dials_->dialled.back().vouchers, listens_->says_beside);
}

TEST_F(Tls, WhoeverIsNotAdmittedHearsWhy) {
  listens_->refusal = "the invite has expired";
  link();
  EXPECT_EQ(connection_, nullptr);
  EXPECT_EQ(answer_->error().code, ErrorCode::kRefused);
  EXPECT_NE(refusal().find("the invite has expired"), std::string::npos) << refusal();
  EXPECT_EQ(accepted_, nullptr);
  EXPECT_EQ(server_.counters().handshakes_failed, 1U);
}

TEST_F(Tls, WhoDialsJudgesTheAnswer) {
  dials_->judges = [](const std::string& answer) -> Result<std::string> {
    return fail(ErrorCode::kRefused, "\"" + answer + "\" is nobody I know");
  };
  listen();
  connect();
  ASSERT_TRUE(run_until([this] { return answer_ && closed_; }));
  EXPECT_EQ(connection_, nullptr);
  EXPECT_NE(refusal().find("\"listener\" is nobody I know"), std::string::npos) << refusal();
  EXPECT_EQ(closed_->code, ErrorCode::kPeerGone);
}

// Only a refusal of the address says that nobody is there: who hangs up is.
TEST_F(Tls, WhoeverHangsUpInsteadOfAnAnswerIsNotTakenForNobody) {
  listens_->holds = true;
  auto server = std::make_unique<TcpNetwork>(runtime_, TcpOptions{.guard = listens_});
  const auto bound = server->listen({"127.0.0.1", 0}, [](auto) {});
  ASSERT_TRUE(bound.has_value());
  address_ = *bound;
  connect();
  ASSERT_TRUE(run_until([this] { return listens_->held.size() == 1; }));
  server.reset();
  ASSERT_TRUE(run_until([this] { return answer_.has_value(); }));
  ASSERT_FALSE(answer_->has_value());
  EXPECT_EQ(answer_->error().code, ErrorCode::kDeadline) << refusal();
}

TEST_F(Tls, AVerdictMayComeLater) {
  listens_->holds = true;
  listen();
  connect();
  ASSERT_TRUE(run_until([this] { return listens_->held.size() == 1; }));
  runtime_.run_until([] { return false; }, 30ms);
  EXPECT_FALSE(answer_.has_value());
  listens_->held[0](LinkGuard::Admission{.as = "late", .answer = "yes"});
  ASSERT_TRUE(run_until([this] { return answer_ && accepted_; }));
  EXPECT_EQ(accepted_->admitted_as(), "late");
  EXPECT_EQ(connection_->admitted_as(), "yes");
}

TEST_F(Tls, AVerdictOnALinkThatIsGoneIsIgnored) {
  listens_->holds = true;
  listen();
  connect(200ms);
  ASSERT_TRUE(run_until([this] { return answer_.has_value(); }));
  EXPECT_EQ(answer_->error().code, ErrorCode::kDeadline);
  ASSERT_EQ(listens_->held.size(), 1U);
  listens_->held[0](LinkGuard::Admission{.as = "late", .answer = "yes"});
  runtime_.run_until([] { return false; }, 30ms);
  EXPECT_FALSE(connection_);
}

TEST_F(Tls, LongWordsTravelAndTooLongOnesDoNot) {
  dials_->says = std::string(kLinkWordsMax, 'w');
  link();
  EXPECT_EQ(listens_->openings.at(0), dials_->says);
  accepted_.reset();
  answer_.reset();
  dials_->says = std::string(kLinkWordsMax + 1, 'w');
  connect();
  ASSERT_TRUE(run_until([this] { return answer_.has_value(); }));
  EXPECT_FALSE(answer_->has_value());
  EXPECT_EQ(listens_->openings.size(), 1U);
}

// Sealed bytes that the socket does not take wait, and the connection goes on with them.
TEST_F(Tls, MuchIsSentBothWaysAtOnceAndArrivesAsItWas) {
  link();
  std::vector<Frame> back;
  connection_->start({.on_frame = [&](Frame frame) { back.push_back(std::move(frame)); },
                      .on_closed = [](Error) {}});
  Rng rng(5);
  std::vector<SharedBytes> sent;
  for (int i = 0; i < 24; ++i) {
    Buffer buffer(1 + rng.next_u32() % (3 << 20));
    for (std::byte& byte : buffer.bytes()) byte = static_cast<std::byte>(rng.next_u32());
    sent.emplace_back(std::move(buffer));
    const SharedBytes whole = sent.back();
    const std::size_t cut = whole.size() / 3;  // parts that fit no record
    connection_->send({.kind = 1,
                       .meta = "up",
                       .payload = {whole.slice(0, cut), whole.slice(cut, whole.size() - cut)}});
    accepted_->send({.kind = 2, .meta = std::string(1000, 'd'), .payload = {whole}});
  }
  ASSERT_TRUE(run_until([&] { return frames_.size() == 24 && back.size() == 24; }));
  for (std::size_t i = 0; i < sent.size(); ++i) {
    EXPECT_TRUE(same_bytes(frames_[i].received_payload(), sent[i].view())) << i;
    EXPECT_TRUE(same_bytes(back[i].received_payload(), sent[i].view())) << i;
  }
  EXPECT_EQ(server_.counters().bad_streams, 0U);
}

}  // namespace
}  // namespace swarmline
