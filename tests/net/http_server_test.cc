// What clients do to a page's server: requests that are none, that never end, too many of them, and
// answers that nobody reads.
#include "engine/net/http/http_server.h"

#include <vector>

#include <gtest/gtest.h>

#include "tests/net/http_visitor.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

class HttpServerTest : public ::testing::Test {
 protected:
  void serve(HttpOptions options = {}) {
    server_.emplace(runtime_, std::move(options),
                    [this](const HttpRequest& request) { return answer(request); });
    const auto bound = server_->listen({"127.0.0.1", 0});
    ASSERT_TRUE(bound) << bound.error().what;
    address_ = *bound;
  }
  HttpAnswer answer(const HttpRequest& request) {
    asked_.push_back(request);
    if (request.path == "/large") return http_text(200, std::string(8 << 20, 'x'));
    if (request.path != "/stream") return http_text(200, "here: " + request.path);
    HttpAnswer stream;
    stream.content_type = "text/event-stream";
    stream.stream = [this](std::shared_ptr<HttpStream> begun) {
      streams_.push_back(std::move(begun));
    };
    return stream;
  }
  HttpVisitor connect() { return {runtime_, address_}; }
  bool comes(const std::function<bool()>& holds) { return runtime_.run_until(holds, 20s); }
  static std::shared_ptr<const std::string> bytes(std::string text) {
    return std::make_shared<const std::string>(std::move(text));
  }

  AsioRuntime runtime_;
  std::vector<std::shared_ptr<HttpStream>> streams_;
  std::vector<HttpRequest> asked_;
  std::optional<HttpServer> server_;
  Address address_;
};

TEST_F(HttpServerTest, AnswersOneRequestAfterTheOtherOnAConnection) {
  serve();
  HttpVisitor client = connect();
  client.send(get("/a?x=1&y=two&x=3", "Authorization: bearer secret\r\nOrigin: http://here\r\n"));
  EXPECT_TRUE(starts(client.until("here: /a\n"), "HTTP/1.1 200 OK\r\n"));
  // The next two at once.
  client.send(get("/b") + get("/c", "Connection: close\r\n"));
  const std::string all = client.until_the_end();
  EXPECT_NE(all.find("here: /b\n"), all.npos);
  EXPECT_NE(all.find("here: /c\n"), all.npos);
  ASSERT_EQ(asked_.size(), 3U);
  EXPECT_EQ(asked_[0].query_value("x"), "1");
  EXPECT_EQ(asked_[0].query_value("y"), "two");
  EXPECT_EQ(asked_[0].query_value("z"), "");
  EXPECT_EQ(asked_[0].bearer, "secret");
  EXPECT_EQ(asked_[0].origin, "http://here");
  EXPECT_EQ(asked_[0].host, "127.0.0.1");
  EXPECT_EQ(server_->counters().answered, 3U);
}

TEST_F(HttpServerTest, TellsTheSizeOfABodyWithoutSendingIt) {
  serve();
  HttpVisitor client = connect();
  client.send("HEAD /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  const std::string all = client.until_the_end();
  EXPECT_NE(all.find("Content-Length: 9\r\n"), all.npos) << all;
  EXPECT_TRUE(all.ends_with("\r\n\r\n")) << all;
}

TEST_F(HttpServerTest, RefusesWhatIsNoRequest) {
  serve();
  const std::pair<std::string, const char*> cases[] = {
      {"nonsense\r\n\r\n", "HTTP/1.1 400 "},
      {std::string(100, '\0') + "\r\n\r\n", "HTTP/1.1 400 "},
      {"GET / HTTP/9.9\r\n\r\n", "HTTP/1.1 400 "},
      {"GET /a HTTP/1.1\r\nno colon\r\n\r\n", "HTTP/1.1 400 "},
      {"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody", "HTTP/1.1 413 "},
      {"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
       "HTTP/1.1 413 "},
      {"DELETE /a HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 405 "},
      {"\x16\x03\x01\x02\x10\x01\r\n\r\n", "HTTP/1.1 400 "},  // a browser that means https
  };
  for (const auto& [request, expected] : cases) {
    HttpVisitor client = connect();
    client.send(request);
    EXPECT_TRUE(starts(client.until_the_end(), expected)) << request << "\n"
                                                          << client.until_the_end();
  }
  EXPECT_EQ(server_->counters().bad_requests, std::size(cases));
  EXPECT_TRUE(asked_.empty());
  EXPECT_TRUE(comes([&] { return server_->connections() == 0; }));
}

TEST_F(HttpServerTest, RefusesARequestThatIsTooLong) {
  serve();
  const std::string long_text(kHttpRequestBytesMax, 'x');
  for (const std::string& request : {get("/" + long_text), get("/a", "Cookie: " + long_text),
                                     std::string(2 * kHttpRequestBytesMax, 'x')}) {
    HttpVisitor client = connect();
    client.send(request);
    const std::string& got = client.until_the_end();
    EXPECT_TRUE(starts(got, "HTTP/1.1 431 ") || starts(got, "HTTP/1.1 400 ")) << got;
  }
  HttpVisitor fits = connect();
  fits.send(get("/a", "Cookie: " + long_text.substr(0, kHttpRequestBytesMax - 200) + "\r\n"));
  EXPECT_TRUE(starts(fits.until("here"), "HTTP/1.1 200 "));
}

TEST_F(HttpServerTest, LetsNobodyTakeForEver) {
  serve({.request_max = 200ms, .idle_max = 200ms});
  HttpVisitor silent = connect(), dripping = connect(), idle = connect();
  idle.send(get("/a"));
  idle.until("here: /a\n");
  // A byte now and then does not buy more time.
  std::string rest = get("/slow");
  const auto drip = [&](const auto& self) -> void {
    if (rest.empty()) return;
    ::send(dripping.fd(), rest.data(), 1, MSG_NOSIGNAL);
    rest.erase(0, 1);
    runtime_.call_after(50ms, [&] { self(self); });
  };
  drip(drip);
  EXPECT_EQ(silent.until_the_end(), "");
  EXPECT_EQ(dripping.until_the_end(), "");
  idle.until_the_end();
  EXPECT_FALSE(rest.empty());
  rest.clear();
  EXPECT_EQ(server_->counters().timed_out, 3U);
  EXPECT_TRUE(comes([&] { return server_->connections() == 0; }));
  runtime_.run_until([] { return false; }, 60ms);  // the last timer of the drip
}

TEST_F(HttpServerTest, TheLongestIdleGivesWayWhereThereAreTooMany) {
  serve({.connections_max = 3, .streams_max = 3});
  HttpVisitor first = connect();
  first.send(get("/a"));
  first.until("here: /a\n");
  HttpVisitor second = connect();
  ASSERT_TRUE(comes([&] { return server_->connections() == 2; }));
  HttpVisitor third = connect();
  ASSERT_TRUE(comes([&] { return server_->connections() == 3; }));
  HttpVisitor fourth = connect();
  first.until_the_end();
  EXPECT_EQ(server_->counters().gave_way, 1U);
  fourth.send(get("/d"));
  EXPECT_TRUE(starts(fourth.until("here: /d\n"), "HTTP/1.1 200 "));
  EXPECT_FALSE(second.ended());
  // Streams give way to nobody.
  for (HttpVisitor* each : {&second, &third, &fourth}) each->send(get("/stream"));
  ASSERT_TRUE(comes([&] { return streams_.size() == 3; }));
  HttpVisitor fifth = connect();
  EXPECT_TRUE(starts(fifth.until_the_end(), "HTTP/1.1 503 "));
  EXPECT_EQ(server_->counters().refused, 1U);
}

TEST_F(HttpServerTest, HasNoMoreStreamsThanItMay) {
  serve({.streams_max = 1});
  HttpVisitor one = connect(), other = connect();
  one.send(get("/stream"));
  ASSERT_TRUE(comes([&] { return streams_.size() == 1; }));
  other.send(get("/stream"));
  EXPECT_TRUE(starts(other.until("too many streams"), "HTTP/1.1 503 "));
  one.close();
  ASSERT_TRUE(comes([&] { return streams_[0]->closed(); }));
  other.send(get("/stream"));
  EXPECT_TRUE(comes([&] { return streams_.size() == 2; }));
}

TEST_F(HttpServerTest, SendsAStreamAsItComesAndEndsIt) {
  serve();
  HttpVisitor client = connect();
  client.send(get("/stream"));
  ASSERT_TRUE(comes([&] { return streams_.size() == 1; }));
  streams_[0]->send(bytes("one\n"));
  const std::string head = client.until("one\n");
  EXPECT_NE(head.find("Content-Type: text/event-stream\r\n"), head.npos);
  EXPECT_NE(head.find("Connection: close\r\n"), head.npos);
  streams_[0]->send(bytes("two\n"));
  streams_[0]->send(bytes("three\n"));
  streams_[0]->finish();
  streams_[0]->send(bytes("after the end\n"));
  EXPECT_TRUE(client.until_the_end().ends_with("one\ntwo\nthree\n"));
  client.close();
  EXPECT_TRUE(comes([&] { return streams_[0]->closed(); }));
  streams_[0]->send(bytes("nobody is there"));  // does nothing
}

TEST_F(HttpServerTest, DropsWhoDoesNotReadItsStream) {
  serve({.stream_bytes_max = 256 * 1024});
  HttpVisitor lazy = connect(), eager = connect();
  lazy.send(get("/stream"));
  eager.send(get("/stream"));
  ASSERT_TRUE(comes([&] { return streams_.size() == 2; }));
  const auto piece = bytes(std::string(64 * 1024, 'x'));
  const std::shared_ptr<HttpStream> streams[] = {streams_[0], streams_[1]};
  std::size_t sent = 0;
  for (; sent < 1000 && !streams[0]->closed() && !streams[1]->closed(); ++sent) {
    for (const auto& stream : streams) stream->send(piece);
    runtime_.run_until([&] { return eager.ended(); }, 2ms);
  }
  EXPECT_NE(streams[0]->closed(), streams[1]->closed()) << "one of them reads";
  EXPECT_LT(sent, 1000U);
  EXPECT_EQ(server_->counters().slow_readers, 1U);
}

TEST_F(HttpServerTest, DropsWhoDoesNotReadAnAnswer) {
  serve({.answer_max = 200ms});
  HttpVisitor client = connect();
  client.send(get("/large"));
  ASSERT_TRUE(comes([&] { return server_->counters().answered == 1; }));
  EXPECT_TRUE(comes([&] { return server_->connections() == 0; }));
  EXPECT_EQ(server_->counters().timed_out, 1U);
}

TEST_F(HttpServerTest, AnswersWhoHasClosedItsHalf) {
  serve();
  HttpVisitor client = connect();
  client.send(get("/a"));
  client.half_close();
  EXPECT_NE(client.until_the_end().find("here: /a\n"), std::string::npos);
  // Half a request is none.
  HttpVisitor half = connect();
  half.send("GET /a HTT");
  half.half_close();
  EXPECT_TRUE(starts(half.until_the_end(), "HTTP/1.1 400 "));
  HttpVisitor nothing = connect();
  nothing.half_close();
  EXPECT_EQ(nothing.until_the_end(), "");
  EXPECT_TRUE(comes([&] { return server_->connections() == 0; }));
}

TEST_F(HttpServerTest, EndsAllConnectionsWithItself) {
  serve();
  HttpVisitor waiting = connect(), streaming = connect();
  streaming.send(get("/stream"));
  ASSERT_TRUE(comes([&] { return streams_.size() == 1 && server_->connections() == 2; }));
  server_.reset();
  EXPECT_EQ(waiting.until_the_end(), "");
  streaming.until_the_end();
  EXPECT_TRUE(streams_[0]->closed());
  streams_[0]->send(bytes("nobody is there"));
}

TEST_F(HttpServerTest, SaysThatAnAddressIsTaken) {
  serve();
  HttpServer other(runtime_, {}, [](const HttpRequest&) { return HttpAnswer(); });
  const auto bound = other.listen(address_);
  ASSERT_FALSE(bound);
  EXPECT_NE(bound.error().what.find("cannot listen on 127.0.0.1:"), std::string::npos)
      << bound.error().what;
}

}  // namespace
}  // namespace swarmline
