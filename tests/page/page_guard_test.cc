// Who gets to see a run's page, and who does not.
#include "node/page/page_guard.h"

#include <gtest/gtest.h>

namespace swarmline {
namespace {

const std::string kToken = "00112233445566778899aabbccddeeff";
constexpr double kNow = 1.8e9;

HttpRequest asking(const std::string& host, const std::string& bearer = kToken) {
  HttpRequest request;
  request.method = "GET";
  request.path = "/api/status";
  request.host = host;
  request.bearer = bearer;
  return request;
}

int refused(const PageGuard& guard, const HttpRequest& request, bool needs_token = true) {
  const auto refusal = guard.refuse(request, needs_token, kNow);
  return refusal ? refusal->status : 200;
}

TEST(PageGuard, OnLoopbackTheHostIsThisMachine) {
  const PageGuard guard(true, kToken);
  for (const char* host :
       {"127.0.0.1:40123", "localhost:8080", "[::1]:1", "127.0.0.1", "localhost"})
    for (const bool needs_token : {true, false})
      EXPECT_EQ(refused(guard, asking(host), needs_token), 200) << host;
  // A name that somebody else turned to 127.0.0.1, and what looks like one of this machine's.
  for (const char* host :
       {"evil.example:40123", "127.0.0.1.evil.example", "localhost.evil.example:1", "", "[::2]:1",
        "[", "192.0.2.7:40123", "evil.example@127.0.0.1"})
    for (const bool needs_token : {true, false})
      EXPECT_EQ(refused(guard, asking(host), needs_token), 403) << host;
  const PageGuard elsewhere(false, kToken);  // TLS names the host
  EXPECT_EQ(refused(elsewhere, asking("node-1.example:8080")), 200);
}

TEST(PageGuard, WantsTheTokenForWhatIsOfTheRun) {
  const PageGuard guard(true, kToken);
  EXPECT_EQ(refused(guard, asking("localhost", ""), false), 200);
  for (const std::string& token :
       {std::string(), kToken.substr(1), kToken + "0", std::string(32, '0'),
        std::string("00112233445566778899AABBCCDDEEFF")})
    EXPECT_EQ(refused(guard, asking("localhost", token)), 401) << token;
  HttpRequest by_query = asking("localhost", "");
  by_query.query["token"] = kToken;
  EXPECT_EQ(refused(guard, by_query), 200);
  by_query.bearer = "another";
  EXPECT_EQ(refused(guard, by_query), 401);
}

TEST(PageGuard, RefusesWhatAnotherSiteAsksFor) {
  const PageGuard guard(true, kToken);
  HttpRequest own = asking("localhost:8080");
  own.origin = "http://localhost:8080";
  own.fetch_site = "same-origin";
  EXPECT_EQ(refused(guard, own), 200);
  for (const char* origin : {"http://evil.example", "http://localhost:9090", "null",
                             "http://localhost:8080.evil.example"}) {
    HttpRequest foreign = asking("localhost:8080");
    foreign.origin = origin;
    EXPECT_EQ(refused(guard, foreign), 403) << origin;
  }
  for (const char* site : {"cross-site", "same-site"}) {
    HttpRequest foreign = asking("localhost:8080");
    foreign.fetch_site = site;
    EXPECT_EQ(refused(guard, foreign), 403) << site;
    EXPECT_EQ(refused(guard, foreign, false), 200) << "a link to the page itself";
  }
}

TEST(PageGuard, TakesInvitesOfObserversWhileTheyAreOpen) {
  PageGuard guard(false, kToken);
  const Invite observer = make_invite(InviteScope::kObserver, kNow - 10, 100, 0);
  const Invite admin = make_invite(InviteScope::kAdmin, kNow - 10, 100, 0);
  const Invite peer = make_invite(InviteScope::kPeer, kNow - 10, 100, 0);
  const Invite expired = make_invite(InviteScope::kObserver, kNow - 1000, 100, 0);
  Invite forged = observer;
  forged.secret.back() ^= 1;
  EXPECT_EQ(refused(guard, asking("host", token_of(observer))), 401) << "not known yet";
  std::string lines;
  for (const Invite* invite : {&observer, &admin, &peer, &expired})
    lines += InviteBook::line_of(*invite) + "\n";
  auto book = InviteBook::parse(lines);
  ASSERT_TRUE(book) << book.error().what;
  const auto revoked = book->line_to_revoke(admin.id, kNow - 1);
  guard.take_invites(*book);
  EXPECT_EQ(refused(guard, asking("host", token_of(observer))), 200);
  EXPECT_EQ(refused(guard, asking("host", token_of(admin))), 200);
  for (const Invite* invite : {&peer, &expired, static_cast<const Invite*>(&forged)})
    EXPECT_EQ(refused(guard, asking("host", token_of(*invite))), 401);
  EXPECT_EQ(refused(guard, asking("host")), 200) << "the owner's";
  ASSERT_TRUE(revoked);
  guard.take_invites(*InviteBook::parse(lines + *revoked + "\n"));
  EXPECT_EQ(refused(guard, asking("host", token_of(admin))), 401);
}

}  // namespace
}  // namespace swarmline
