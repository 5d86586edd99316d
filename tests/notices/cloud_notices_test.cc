// What the metadata servers of three clouds answer, read by what watches them: their documented
// sequences, and what they answer when they are busy, new, or broken.
#include <gtest/gtest.h>

#include "node/notices/aws_notices.h"
#include "node/notices/azure_notices.h"
#include "node/notices/gcp_notices.h"

namespace swarmline {
namespace {

constexpr double kNow = 1'790'000'000;  // 2026-09-21T14:13:20Z
constexpr Duration kTwoMinutes = std::chrono::seconds(120);

HttpClientAnswer answer(int status, std::string body = {}, std::string etag = {}) {
  return {.status = status, .etag = std::move(etag), .body = std::move(body)};
}

std::optional<Notice> heard(NoticeProvider& from, const HttpClientAnswer& what, double now = kNow) {
  auto notice = from.on_answer(what, now);
  EXPECT_TRUE(notice.has_value()) << (notice ? "" : notice.error().what);
  return notice ? *notice : std::nullopt;
}

void fails(NoticeProvider& from, const HttpClientAnswer& what) {
  const auto notice = from.on_answer(what, kNow);
  ASSERT_FALSE(notice.has_value());
  EXPECT_EQ(notice.error().code, ErrorCode::kCorrupt);
  EXPECT_FALSE(notice.error().what.empty());
}

std::string header(const HttpClientRequest& request, std::string_view name) {
  for (const auto& [key, value] : request.headers)
    if (key == name) return value;
  return {};
}

// ---- EC2 ----------------------------------------------------------------------------------------

TEST(AwsNotices, ATokenIsAskedForFirstAndSentAlong) {
  AwsNotices aws;
  EXPECT_EQ(aws.next().method, "PUT");
  EXPECT_EQ(aws.next().target, "/latest/api/token");
  EXPECT_EQ(header(aws.next(), "X-aws-ec2-metadata-token-ttl-seconds"), "21600");
  EXPECT_FALSE(heard(aws, answer(200, "AQAE-token==")));
  EXPECT_EQ(aws.rest(), Duration{});
  EXPECT_EQ(aws.next().target, "/latest/meta-data/spot/instance-action");
  EXPECT_EQ(header(aws.next(), "X-aws-ec2-metadata-token"), "AQAE-token==");
}

TEST(AwsNotices, NothingIsToldWhileBothAnswer404EveryFiveSeconds) {
  AwsNotices aws;
  heard(aws, answer(200, "token"));
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(heard(aws, answer(404)));
    EXPECT_EQ(aws.rest(), Duration{});
    EXPECT_EQ(aws.next().target, "/latest/meta-data/events/recommendations/rebalance");
    EXPECT_FALSE(heard(aws, answer(404)));
    EXPECT_EQ(aws.rest(), std::chrono::seconds(5));
    EXPECT_EQ(aws.next().target, "/latest/meta-data/spot/instance-action");
  }
}

TEST(AwsNotices, AnActionIsToldOnceWithTheTimeThatIsLeft) {
  AwsNotices aws;
  heard(aws, answer(200, "token"));
  const std::string body = R"({"action": "terminate", "time": "2026-09-21T14:15:00Z"})";
  const auto notice = heard(aws, answer(200, body));
  ASSERT_TRUE(notice);
  EXPECT_EQ(notice->kind, Notice::Kind::kLeave);
  EXPECT_EQ(notice->left, std::chrono::seconds(100));
  heard(aws, answer(404));
  EXPECT_FALSE(heard(aws, answer(200, body)));
}

TEST(AwsNotices, AClockThatIsWrongLeavesTheUsualTwoMinutes) {
  for (const char* time : {"2026-09-21T13:00:00Z", "2026-09-21T18:00:00Z", "soon"}) {
    AwsNotices aws;
    heard(aws, answer(200, "token"));
    const auto notice =
        heard(aws, answer(200, std::string(R"({"action":"stop","time":")") + time + "\"}"));
    ASSERT_TRUE(notice);
    EXPECT_EQ(notice->left, kTwoMinutes) << time;
  }
}

TEST(AwsNotices, ARebalanceRecommendationIsARisk) {
  AwsNotices aws;
  heard(aws, answer(200, "token"));
  heard(aws, answer(404));
  const auto notice = heard(aws, answer(200, R"({"noticeTime": "2026-09-21T14:13:00Z"})"));
  ASSERT_TRUE(notice);
  EXPECT_EQ(notice->kind, Notice::Kind::kAtRisk);
  heard(aws, answer(404));
  EXPECT_FALSE(heard(aws, answer(200, R"({"noticeTime": "2026-09-21T14:13:00Z"})")));
}

TEST(AwsNotices, ATokenThatIsOverIsReplaced) {
  AwsNotices aws;
  heard(aws, answer(200, "one"));
  EXPECT_FALSE(heard(aws, answer(401)));
  EXPECT_EQ(aws.next().method, "PUT");
  EXPECT_EQ(aws.rest(), Duration{});
  heard(aws, answer(200, "two"));
  EXPECT_EQ(header(aws.next(), "X-aws-ec2-metadata-token"), "two");
  // Before it is over, too.
  EXPECT_FALSE(heard(aws, answer(404), kNow + 21600 - 60));
  EXPECT_EQ(aws.next().method, "PUT");
}

TEST(AwsNotices, AnActionInTheAnswerThatEndsATokensTimeIsTold) {
  AwsNotices aws;
  heard(aws, answer(200, "one"));
  EXPECT_TRUE(heard(aws, answer(200, R"({"action":"terminate"})"), kNow + 21600 - 60));
}

TEST(AwsNotices, WhatIsNoAnswerIsAnErrorAndAskedAgain) {
  AwsNotices aws;
  fails(aws, answer(403));
  EXPECT_EQ(aws.next().method, "PUT");
  fails(aws, answer(200, std::string("a\nb")));
  heard(aws, answer(200, "token"));
  fails(aws, answer(503));
  EXPECT_EQ(aws.rest(), std::chrono::seconds(5));
  heard(aws, answer(404));
  fails(aws, answer(200, "<html>no</html>"));
  heard(aws, answer(404));
  fails(aws, answer(200, "[1]"));
}

// ---- Compute Engine -----------------------------------------------------------------------------

TEST(GcpNotices, AsksOnceAndThenWaitsForAChange) {
  GcpNotices gcp;
  EXPECT_EQ(gcp.next().target, "/computeMetadata/v1/instance/preempted");
  EXPECT_EQ(header(gcp.next(), "Metadata-Flavor"), "Google");
  EXPECT_FALSE(heard(gcp, answer(200, "FALSE", "411261ca6c9e4223")));
  EXPECT_EQ(gcp.next().target,
            "/computeMetadata/v1/instance/preempted?wait_for_change=true&timeout_sec=60&last_etag="
            "411261ca6c9e4223");
  EXPECT_GT(gcp.patience(), std::chrono::seconds(60));
  EXPECT_EQ(gcp.rest(), Duration{});
}

TEST(GcpNotices, TrueIsToldOnceWithThirtySeconds) {
  GcpNotices gcp;
  heard(gcp, answer(200, "FALSE\n", "aa"));
  const auto notice = heard(gcp, answer(200, "TRUE", "bb"));
  ASSERT_TRUE(notice);
  EXPECT_EQ(notice->kind, Notice::Kind::kLeave);
  EXPECT_EQ(notice->left, std::chrono::seconds(30));
  EXPECT_FALSE(heard(gcp, answer(200, "TRUE", "bb")));
  EXPECT_GT(gcp.rest(), Duration{});
}

TEST(GcpNotices, WithoutAnEtagItDoesNotSpin) {
  GcpNotices gcp;
  EXPECT_FALSE(heard(gcp, answer(200, "FALSE")));
  EXPECT_EQ(gcp.rest(), std::chrono::seconds(1));
  EXPECT_FALSE(heard(gcp, answer(200, "FALSE", "no tag&x=1")));
  EXPECT_EQ(gcp.next().target, "/computeMetadata/v1/instance/preempted");
}

TEST(GcpNotices, WhatIsNoAnswerIsAnErrorAndAskedAgain) {
  GcpNotices gcp;
  fails(gcp, answer(503));
  fails(gcp, answer(200, "maybe"));
  EXPECT_GT(gcp.rest(), Duration{});
  EXPECT_TRUE(heard(gcp, answer(200, "TRUE", "aa")));
}

// ---- Azure --------------------------------------------------------------------------------------

std::string event(const std::string& id, const std::string& type, const std::string& not_before,
                  const std::string& machine = "vm-7", const std::string& status = "Scheduled") {
  return R"({"EventId":")" + id + R"(","EventType":")" + type +
         R"(","ResourceType":"VirtualMachine","Resources":[")" + machine + R"("],"EventStatus":")" +
         status + R"(","NotBefore":")" + not_before +
         R"(","Description":"","EventSource":"Platform","DurationInSeconds":-1})";
}

HttpClientAnswer events(const std::vector<std::string>& all) {
  std::string body;
  for (const std::string& one : all) body += (body.empty() ? "" : ",") + one;
  return answer(200, R"({"DocumentIncarnation":2,"Events":[)" + body + "]}");
}

AzureNotices azure_of(const std::string& machine) {
  AzureNotices azure;
  EXPECT_NE(azure.next().target.find("/metadata/instance/compute/name"), std::string::npos);
  EXPECT_EQ(header(azure.next(), "Metadata"), "true");
  heard(azure, answer(200, machine));
  EXPECT_EQ(azure.next().target, "/metadata/scheduledevents?api-version=2020-07-01");
  return azure;
}

TEST(AzureNotices, APreemptionIsToldOnceAndAcknowledgedAtTheEnd) {
  AzureNotices azure = azure_of("vm-7");
  EXPECT_GT(azure.patience(), std::chrono::seconds(120));  // the service begins with the question
  EXPECT_FALSE(heard(azure, events({})));
  EXPECT_LE(azure.patience(), std::chrono::seconds(2));
  EXPECT_FALSE(azure.farewell());
  const auto preempt = event("A1", "Preempt", "Mon, 21 Sep 2026 14:13:45 GMT");
  const auto notice = heard(azure, events({preempt}));
  ASSERT_TRUE(notice);
  EXPECT_EQ(notice->kind, Notice::Kind::kLeave);
  EXPECT_EQ(notice->left, std::chrono::seconds(25));
  EXPECT_FALSE(heard(azure, events({preempt})));
  const auto farewell = azure.farewell();
  ASSERT_TRUE(farewell);
  EXPECT_EQ(farewell->method, "POST");
  EXPECT_EQ(farewell->body, R"({"StartRequests":[{"EventId":"A1"}]})");
}

TEST(AzureNotices, EventsOfOtherMachinesAndPausesAreNotTold) {
  AzureNotices azure = azure_of("vm-7");
  EXPECT_FALSE(heard(azure, events({event("A1", "Preempt", "", "vm-8"),
                                    event("A2", "Freeze", "Mon, 21 Sep 2026 14:20:00 GMT")})));
  EXPECT_FALSE(azure.farewell());
}

TEST(AzureNotices, WhatIsFarAwayIsARiskFirst) {
  AzureNotices azure = azure_of("vm-7");
  const auto redeploy = event("A1", "Redeploy", "Mon, 21 Sep 2026 14:23:20 GMT");
  const auto early = heard(azure, events({redeploy}));
  ASSERT_TRUE(early);
  EXPECT_EQ(early->kind, Notice::Kind::kAtRisk);
  EXPECT_FALSE(heard(azure, events({redeploy})));
  const auto late = heard(azure, events({redeploy}), kNow + 500);
  ASSERT_TRUE(late);
  EXPECT_EQ(late->kind, Notice::Kind::kLeave);
  EXPECT_EQ(late->left, std::chrono::seconds(100));
}

TEST(AzureNotices, WhatHasBegunLeavesNoTime) {
  AzureNotices azure = azure_of("vm-7");
  const auto notice = heard(azure, events({event("A1", "Preempt", "", "vm-7", "Started")}));
  ASSERT_TRUE(notice);
  EXPECT_EQ(notice->left, Duration{});
}

TEST(AzureNotices, OfSeveralTheFirstToComeIsTold) {
  AzureNotices azure = azure_of("vm-7");
  const auto notice =
      heard(azure, events({event("A1", "Reboot", "Mon, 21 Sep 2026 14:15:00 GMT"),
                           event("A2", "Preempt", "Mon, 21 Sep 2026 14:13:40 GMT")}));
  ASSERT_TRUE(notice);
  EXPECT_EQ(notice->left, std::chrono::seconds(20));
}

TEST(AzureNotices, WithoutItsNameEveryEventIsItsOwn) {
  AzureNotices azure;
  heard(azure, answer(404));
  EXPECT_TRUE(heard(azure, events({event("A1", "Preempt", "", "whoever")})));
}

TEST(AzureNotices, WhatIsNoAnswerIsAnErrorAndAskedAgain) {
  AzureNotices azure = azure_of("vm-7");
  fails(azure, answer(503));
  fails(azure, answer(200, "{"));
  fails(azure, answer(200, R"({"Events": 3})"));
  EXPECT_FALSE(heard(azure, answer(200, R"({"Events": [1, {"EventId": 2}, {}]})")));
  EXPECT_EQ(azure.next().target, "/metadata/scheduledevents?api-version=2020-07-01");
}

}  // namespace
}  // namespace swarmline
