// Who comes in by an invite, and who does not.
#include "node/admission/invites.h"

#include <gtest/gtest.h>

#include "engine/identity/identity.h"
#include "engine/identity/secrets.h"
#include "node/admission/join_string.h"

namespace swarmline {
namespace {

constexpr double kNow = 1'790'000'000;

class Invites : public ::testing::Test {
 protected:
  Invite add(double life = 3600, std::uint64_t uses = 0, InviteScope scope = InviteScope::kPeer) {
    const Invite invite = make_invite(scope, kNow, life, uses);
    lines_ += InviteBook::line_of(invite) + "\n";
    return invite;
  }
  InviteBook book() const {
    auto read = InviteBook::parse(lines_);
    EXPECT_TRUE(read.has_value()) << read.error().what;
    return std::move(*read);
  }
  // As the coordinator does: what is new is written.
  Result<InviteScope> come(const Invite& invite, const KeyHash& key, double now = kNow,
                           const std::string& binding = "link") {
    return come_with(invite, invite_proof(invite.secret, binding), key, now, binding);
  }
  Result<InviteScope> come_with(const Invite& invite, const std::string& proof, const KeyHash& key,
                                double now = kNow, const std::string& binding = "link") {
    const auto admitted = book().admit(invite.id, proof, binding, key, now);
    if (!admitted) {
      EXPECT_EQ(admitted.error().code, ErrorCode::kRefused);
      return std::unexpected(admitted.error());
    }
    if (!admitted->line.empty()) lines_ += admitted->line + "\n";
    return admitted->scope;
  }
  void revoke(const Invite& invite) { lines_ += *book().line_to_revoke(invite.id, kNow) + "\n"; }
  static KeyHash key() { return Identity::make().hash(); }
  static std::string why(const Result<InviteScope>& result) {
    return result ? "admitted" : result.error().what;
  }

  std::string lines_;
};

TEST_F(Invites, AreReadAsTheyWereWritten) {
  const Invite invite = add(100, 3, InviteScope::kObserver);
  const InviteBook whole = book();
  const Invite& read = whole.invites().at(0);
  EXPECT_EQ(read.id, invite.id);
  EXPECT_EQ(read.secret, invite.secret);
  EXPECT_EQ(read.scope, InviteScope::kObserver);
  EXPECT_EQ(read.expires, kNow + 100);
  EXPECT_EQ(read.uses_max, 3U);
}

TEST_F(Invites, LetInWhoProvesTheSecretAndAsTheirScopeSays) {
  EXPECT_EQ(come(add(), key()), InviteScope::kPeer);
  EXPECT_EQ(come(add(10, 0, InviteScope::kAdmin), key()), InviteScope::kAdmin);
}

TEST_F(Invites, ProofOfAnotherSecretOrLinkOrInviteIsNone) {
  const Invite invite = add(), other = add();
  Invite unknown = make_invite(InviteScope::kPeer, kNow, 100, 0);
  const std::string recorded = invite_proof(invite.secret, "link");
  EXPECT_FALSE(come_with(invite, recorded, key(), kNow, "another link")) << "replayed";
  EXPECT_FALSE(come_with(other, recorded, key()));
  EXPECT_FALSE(come_with(invite, invite.secret, key()));
  EXPECT_FALSE(come_with(invite, "", key()));
  EXPECT_EQ(why(come(unknown, key())), why(come_with(invite, "wrong", key())))
      << "it would tell which ids there are";
  EXPECT_TRUE(come(invite, key()));
}

TEST_F(Invites, ExpireByTheWallClockWithAMinuteGranted) {
  const Invite invite = add(100);
  EXPECT_TRUE(come(invite, key(), kNow + 100 + kClockSkewSeconds));
  const auto late = come(invite, key(), kNow + 100 + kClockSkewSeconds + 1);
  EXPECT_NE(why(late).find("expired 61 s ago"), std::string::npos) << why(late);
  EXPECT_TRUE(come(invite, key(), kNow - kClockSkewSeconds));
  const auto early = come(invite, key(), kNow - 3 * 3600);
  EXPECT_NE(why(early).find("a time to come, in 3 h"), std::string::npos) << why(early);
}

TEST_F(Invites, AreForSoManyKeysAndEachCountsOnce) {
  const Invite invite = add(3600, 2);
  const KeyHash first = key(), second = key();
  EXPECT_TRUE(come(invite, first));
  EXPECT_TRUE(come(invite, first)) << "it came back";
  EXPECT_TRUE(come(invite, second));
  EXPECT_NE(why(come(invite, key())).find("was for 2"), std::string::npos);
  EXPECT_TRUE(come(invite, second));
}

TEST_F(Invites, RevokedOnesLetInNobodyElse) {
  const Invite invite = add(), other = add();
  const KeyHash known = key();
  EXPECT_TRUE(come(invite, known));
  revoke(invite);
  EXPECT_NE(why(come(invite, key())).find("revoked"), std::string::npos);
  EXPECT_TRUE(come(invite, known)) << "who has come stays";
  EXPECT_TRUE(come(invite, known, kNow + 1e6)) << "and may come back later";
  EXPECT_TRUE(come(other, key()));
  EXPECT_EQ(*book().line_to_revoke(invite.id, kNow), "") << "twice";
  EXPECT_EQ(book().line_to_revoke("unknown!", kNow).error().code, ErrorCode::kUserMistake);
}

TEST_F(Invites, TheOneThatIsOpenLongestIsFound) {
  add(100);
  const Invite longest = add(900), counted = add(5000, 1),
               observer = add(9000, 0, InviteScope::kObserver);
  EXPECT_EQ(book().newest_open(InviteScope::kPeer, kNow)->id, longest.id);
  EXPECT_EQ(book().newest_open(InviteScope::kObserver, kNow)->id, observer.id);
  revoke(longest);
  EXPECT_EQ(book().newest_open(InviteScope::kPeer, kNow)->expires, kNow + 100);
  EXPECT_EQ(book().newest_open(InviteScope::kPeer, kNow + 101), nullptr);
}

TEST_F(Invites, LinesThatAreNoneAreRefusedAndAHalfOneIsPassedOver) {
  const Invite invite = add();
  const std::string good = lines_;
  for (const char* bad : {"hello", "{}", "{\"format\":1,\"invite\":\"ab\"}",
                          "{\"format\":1,\"revoked\":\"0102030405060708\"}",
                          "{\"format\":1,\"admitted\":\"x\",\"by\":\"0102030405060708\"}"}) {
    const auto book = InviteBook::parse(good + bad + "\n");
    ASSERT_FALSE(book.has_value()) << bad;
    EXPECT_EQ(book.error().code, ErrorCode::kCorrupt);
    EXPECT_TRUE(InviteBook::parse(good + bad).has_value()) << "whoever wrote it died";
  }
  EXPECT_FALSE(InviteBook::parse(good + good).has_value()) << "one id twice";
  const auto newer = InviteBook::parse("{\"format\":2}\n");
  EXPECT_EQ(newer.error().code, ErrorCode::kIncompatible);
}

TEST_F(Invites, AreOverFromWhenNobodyElseMayCome) {
  const Invite open = add(900), expired = add(100), revoked = add(900), used = add(900, 1);
  revoke(revoked);
  EXPECT_TRUE(come(used, key(), kNow + 30));
  const auto over = [&](const Invite& invite) {
    return book().find(invite.id)->over_since(kNow + 200);
  };
  EXPECT_EQ(over(open), std::nullopt);
  EXPECT_EQ(over(expired), kNow + 100);
  EXPECT_EQ(over(revoked), kNow);
  EXPECT_EQ(over(used), kNow + 30);
}

TEST_F(Invites, ThoseThatAreOverForLongGoWhenAnotherIsMade) {
  const Invite expired = add(100), revoked = add(1e8), used = add(1e8, 1), open = add(1e8, 3);
  const KeyHash came = key(), used_by = key();
  EXPECT_TRUE(come(expired, came));
  EXPECT_TRUE(come(used, used_by, kNow + 100));
  EXPECT_TRUE(come(open, came));
  revoke(revoked);
  const auto with_another = [&](double now) {
    const Invite another = make_invite(InviteScope::kPeer, now, 100, 0);
    const auto lines = book().with(another, now);
    EXPECT_TRUE(lines.has_value());
    lines_ = *lines;
    return another;
  };
  with_another(kNow + 200);
  EXPECT_EQ(book().invites().size(), 5U) << "they are over, but not for long";
  EXPECT_TRUE(come(expired, came, kNow + 200)) << "who has come stays";
  EXPECT_EQ(book().find(revoked.id)->revoked, kNow);
  const double later = kNow + 101 + kInviteKeptSeconds;
  const Invite newest = with_another(later);
  EXPECT_EQ(book().find(expired.id), nullptr);
  EXPECT_EQ(book().find(revoked.id), nullptr);
  EXPECT_EQ(book().find(used.id), nullptr);
  ASSERT_NE(book().find(open.id), nullptr);
  EXPECT_TRUE(book().find(open.id)->admitted.contains(came));
  EXPECT_TRUE(come(newest, key(), later));
  // What is gone is never good again, not even for those that had come by it.
  for (const Invite& gone : {expired, revoked, used})
    for (const KeyHash& comer : {key(), came, used_by})
      EXPECT_NE(why(come(gone, comer, later)).find("not one of this run"), std::string::npos);
}

TEST_F(Invites, OfThoseThatAreOverTheNewestStay) {
  for (std::size_t i = 0; i < kInvitesOverMax + 10; ++i) add(static_cast<double>(i + 1));
  const Invite open = add(1e6);
  const std::vector<Invite> before = book().invites();
  lines_ = *book().with(make_invite(InviteScope::kPeer, kNow + 5000, 100, 0), kNow + 5000);
  EXPECT_EQ(book().invites().size(), kInvitesOverMax + 2);
  EXPECT_EQ(book().find(before[9].id), nullptr);
  EXPECT_NE(book().find(before[10].id), nullptr);
  EXPECT_NE(book().find(open.id), nullptr);
}

TEST_F(Invites, TooManyThatAreGoodAreRefusedWithASentence) {
  for (std::size_t i = 0; i < kInvitesMax; ++i) add();
  const auto refused = book().with(make_invite(InviteScope::kPeer, kNow, 100, 0), kNow);
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().what.find("invite revoke"), std::string::npos);
}

}  // namespace
}  // namespace swarmline
