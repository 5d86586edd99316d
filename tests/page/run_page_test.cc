// The page of a run over real sockets: its files, what programs read, and the stream.
#include "node/page/run_page.h"

#include <gtest/gtest.h>

#include "engine/store/json_value.h"
#include "engine/store/log_lines.h"
#include "node/page/page_files.h"
#include "pipeline/protocol/run_status.h"
#include "tests/net/http_visitor.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;
const std::string kToken = "00112233445566778899aabbccddeeff";
const std::string kBearer = "Authorization: Bearer " + kToken + "\r\n";

class RunPageTest : public ::testing::Test {
 protected:
  RunPageTest() {
    status_.run = "quick";
    status_.state = "training";
    const auto bound = page_.listen({"127.0.0.1", 0});
    EXPECT_TRUE(bound) << bound.error().what;
    address_ = *bound;
  }
  // The whole answer.
  std::string fetch(const std::string& path, const std::string& more = kBearer) {
    HttpVisitor client(runtime_, address_);
    client.send(get(path, more + "Connection: close\r\n"));
    return client.until_the_end();
  }
  static std::string body_of(const std::string& answer) {
    return answer.substr(std::min(answer.find("\r\n\r\n") + 4, answer.size()));
  }
  static std::string step_line(std::uint64_t number) {
    StepLogLine line;
    line.step = number;
    line.loss = 2.5;
    line.tokens = 64;
    line.seconds = 0.5;
    return to_json_line(line);
  }
  static std::string event_line(const std::string& kind) {
    EventLogLine line;
    line.kind = kind;
    line.detail = "peer 1";
    line.wall_seconds = ++event_seconds_;
    return to_json_line(line);
  }

  static inline double event_seconds_ = 0;
  AsioRuntime runtime_;
  RunStatus status_;
  int asked_ = 0;
  RunPage page_{runtime_, {}, PageGuard(true, kToken), [this] {
                  ++asked_;
                  return to_json(status_);
                }};
  Address address_;
};

TEST_F(RunPageTest, ServesItsFilesWithoutATokenAndNothingOfTheRun) {
  for (const auto& [path, type] : {std::pair{"/", "text/html"},
                                   {"/index.html", "text/html"},
                                   {"/page.js", "text/javascript"},
                                   {"/page.css", "text/css"},
                                   {"/icon.svg", "image/svg+xml"}}) {
    const std::string answer = fetch(path, "");
    EXPECT_TRUE(starts(answer, "HTTP/1.1 200 ")) << path << answer;
    EXPECT_NE(answer.find(std::string("Content-Type: ") + type), answer.npos) << path;
    EXPECT_NE(answer.find("Content-Security-Policy: default-src 'none'; script-src 'self'; "),
              answer.npos);
    EXPECT_NE(answer.find("X-Content-Type-Options: nosniff\r\n"), answer.npos);
    EXPECT_NE(answer.find("Referrer-Policy: no-referrer\r\n"), answer.npos);
    EXPECT_EQ(answer.find("quick"), answer.npos) << path;
  }
  for (const char* path : {"/api/status", "/api/steps", "/api/events", "/api/stream", "/metrics"}) {
    EXPECT_TRUE(starts(fetch(path, ""), "HTTP/1.1 401 ")) << path;
    EXPECT_TRUE(starts(fetch(std::string(path) + "?token=nonsense", ""), "HTTP/1.1 401 ")) << path;
  }
  EXPECT_EQ(asked_, 0);
  for (const char* path : {"/other", "/..", "/api", "//", "/page.js/", "*"})
    EXPECT_TRUE(starts(fetch(path, ""), "HTTP/1.1 404 ")) << path;
  EXPECT_TRUE(starts(fetch("/api/other"), "HTTP/1.1 404 "));
}

TEST_F(RunPageTest, ItsFilesAskNobodyElseForAnything) {
  for (const char* name : {"index.html", "page.js", "page.css"}) {
    const PageFile* file = find_page_file(name);
    ASSERT_NE(file, nullptr);
    std::string text(file->bytes);
    for (const char* allowed : {"http://www.w3.org/2000/svg"})
      for (std::size_t at = text.find(allowed); at != text.npos; at = text.find(allowed))
        text.erase(at, std::string_view(allowed).size());
    for (const char* forbidden : {"http:", "https:", "//cdn", "eval(", "innerHTML",
                                  "onclick=", "style=\"", "<style", "javascript:"})
      EXPECT_EQ(text.find(forbidden), text.npos) << name << " has " << forbidden;
  }
}

TEST_F(RunPageTest, TellsTheStatusAndTheSteps) {
  status_.step = 7;
  const auto status = parse_status(body_of(fetch("/api/status")));
  ASSERT_TRUE(status);
  EXPECT_EQ(status->step, 7U);
  EXPECT_EQ(body_of(fetch("/api/status?token=" + kToken, "")), to_json(status_));
  page_.take_line(step_line(0));
  page_.take_line(step_line(1));
  page_.take_line("nonsense");
  page_.take_line(event_line("peer_lost"));
  const auto steps = parse_json(body_of(fetch("/api/steps?from=2")));
  ASSERT_TRUE(steps);
  ASSERT_EQ((*steps)["steps"].items.size(), 1U);
  EXPECT_EQ((*steps)["steps"].items[0]["step"].count(), 2U);
  EXPECT_EQ((*steps)["steps"].items[0]["loss"].number, 2.5);
  EXPECT_TRUE(starts(fetch("/api/steps?from=x"), "HTTP/1.1 400 "));
  EXPECT_TRUE(starts(fetch("/api/steps?from=-1"), "HTTP/1.1 400 "));
  const auto events = parse_json(body_of(fetch("/api/events")));
  ASSERT_TRUE(events);
  EXPECT_EQ((*events)["events"].items[0]["kind"].string, "peer_lost");
  EXPECT_NE(fetch("/metrics").find("swarmline_step 7\n"), std::string::npos);
}

TEST_F(RunPageTest, DoesNotAskForTheStatusAtEachRequest) {
  HttpVisitor client(runtime_, address_);
  constexpr int kRequests = 200;
  std::string all;
  for (int i = 0; i < kRequests; ++i) all += get("/api/status", kBearer);
  client.send(all + get("/api/other", kBearer));
  client.until("HTTP/1.1 404 ");
  EXPECT_LT(asked_, kRequests / 4);
}

TEST_F(RunPageTest, StreamsWhatHappensUntilTheEnd) {
  HttpVisitor client(runtime_, address_);
  client.send(get("/api/stream", kBearer));
  client.until("event: status\ndata: {");
  page_.take_line(step_line(0));
  page_.take_line(event_line("checkpoint"));
  client.until("event: event\ndata: {");
  const int asked = asked_;
  const std::string got = client.until("never", 2500ms);
  EXPECT_NE(got.find("event: step\ndata: {\"step\":1,"), got.npos) << got;
  EXPECT_NE(got.find("\"kind\":\"checkpoint\""), got.npos) << got;
  EXPECT_GE(asked_, asked + 1) << "about once a second";
  EXPECT_LE(asked_, asked + 3);
  status_.state = "done";
  page_.end();
  const std::string all = client.until_the_end();
  EXPECT_TRUE(all.ends_with("event: end\ndata: {}\n\n")) << all;
  EXPECT_NE(all.find("\"state\":\"done\""), all.npos);
  // Who comes later hears that at once.
  HttpVisitor late(runtime_, address_);
  late.send(get("/api/stream", kBearer));
  EXPECT_TRUE(late.until_the_end().ends_with("event: end\ndata: {}\n\n"));
}

TEST_F(RunPageTest, AsksForNoStatusWhenNobodyListens) {
  HttpVisitor client(runtime_, address_);
  client.send(get("/api/stream", kBearer));
  client.until("event: status");
  client.close();
  runtime_.run_until([] { return false; }, 1500ms);
  const int asked = asked_;
  runtime_.run_until([] { return false; }, 2500ms);
  EXPECT_EQ(asked_, asked);
}

}  // namespace
}  // namespace swarmline
