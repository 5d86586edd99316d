// The HTTP client against servers that answer as they like.
#include "engine/net/http/http_client.h"

#include <functional>
#include <optional>
#include <string>
#include <thread>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/streambuf.hpp>
#include <boost/asio/write.hpp>
#include <gtest/gtest.h>

namespace swarmline {
namespace {

namespace asio = boost::asio;
using Tcp = asio::ip::tcp;

// Accepts one connection, reads a request's header and writes what it was given.
class OneAnswer {
 public:
  explicit OneAnswer(std::string answer, bool hangs = false)
      : acceptor_(context_, {asio::ip::address_v4::loopback(), 0}),
        thread_([this, answer = std::move(answer), hangs] {
          Tcp::socket socket(context_);
          boost::system::error_code error;
          acceptor_.accept(socket, error);
          if (error) return;
          asio::streambuf read;
          asio::read_until(socket, read, "\r\n\r\n", error);
          request_.assign(asio::buffers_begin(read.data()), asio::buffers_end(read.data()));
          asio::write(socket, asio::buffer(answer), error);
          char more = 0;
          if (hangs) socket.read_some(asio::buffer(&more, 1), error);
        }) {}
  ~OneAnswer() { join(); }
  Address address() const { return {"127.0.0.1", acceptor_.local_endpoint().port()}; }
  std::string request() {
    join();
    return request_;
  }

 private:
  void join() {
    if (thread_.joinable()) thread_.join();
  }
  asio::io_context context_;
  Tcp::acceptor acceptor_;
  std::string request_;
  std::thread thread_;
};

Result<HttpClientAnswer> ask(const Address& server, const HttpClientRequest& request,
                             Duration patience = std::chrono::seconds(10)) {
  AsioRuntime runtime;
  HttpClient client(runtime);
  std::optional<Result<HttpClientAnswer>> got;
  client.ask(server, request, patience,
             [&](Result<HttpClientAnswer> answer) { got = std::move(answer); });
  EXPECT_FALSE(got);
  EXPECT_TRUE(runtime.run_until([&] { return got.has_value(); }, std::chrono::seconds(30)));
  return *got;
}

TEST(HttpClientTest, AsksAndHears) {
  OneAnswer server("HTTP/1.1 200 OK\r\nETag: abc\r\nContent-Length: 4\r\n\r\nTRUE");
  const auto answer =
      ask(server.address(), {.target = "/x?y=1", .headers = {{"Metadata", "true"}}});
  ASSERT_TRUE(answer) << answer.error().what;
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(answer->etag, "abc");
  EXPECT_EQ(answer->body, "TRUE");
  const std::string request = server.request();
  EXPECT_TRUE(request.starts_with("GET /x?y=1 HTTP/1.1\r\n")) << request;
  EXPECT_NE(request.find("Metadata: true\r\n"), std::string::npos) << request;
}

TEST(HttpClientTest, APutWithoutABodySaysSo) {
  OneAnswer server("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  ASSERT_TRUE(ask(server.address(), {.method = "PUT", .target = "/t"}));
  EXPECT_NE(server.request().find("Content-Length: 0\r\n"), std::string::npos);
}

TEST(HttpClientTest, AStatusThatIsNoSuccessIsAnAnswer) {
  OneAnswer server("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
  const auto answer = ask(server.address(), {});
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 404);
}

TEST(HttpClientTest, WhatIsNoHttpIsCorrupt) {
  OneAnswer server("\x16\x03\x01 this is no HTTP\r\n\r\n");
  const auto answer = ask(server.address(), {});
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, ErrorCode::kCorrupt) << answer.error().what;
}

TEST(HttpClientTest, ALongerBodyThanIsTakenIsCorrupt) {
  OneAnswer server("HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\nabc");
  const auto answer = ask(server.address(), {});
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, ErrorCode::kCorrupt) << answer.error().what;
}

TEST(HttpClientTest, WhoHangsUpIsGone) {
  OneAnswer server("HTTP/1.1 200 OK\r\nContent-Le");
  const auto answer = ask(server.address(), {});
  ASSERT_FALSE(answer);
}

TEST(HttpClientTest, WhoSaysNothingIsWaitedForNoLongerThanAsked) {
  OneAnswer server("HTTP/1.1 200 OK\r\n", true);
  const auto answer = ask(server.address(), {}, std::chrono::milliseconds(200));
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, ErrorCode::kDeadline);
}

TEST(HttpClientTest, NobodyThereIsAnError) {
  std::optional<OneAnswer> server(std::in_place, "");
  const Address address = server->address();
  (void)ask(address, {});
  server.reset();
  EXPECT_FALSE(ask(address, {}));
}

TEST(HttpClientTest, ARequestThatIsDroppedIsNotAnswered) {
  OneAnswer server("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  AsioRuntime runtime;
  bool answered = false;
  {
    HttpClient client(runtime);
    client.ask(server.address(), {}, std::chrono::seconds(10),
               [&](const Result<HttpClientAnswer>&) { answered = true; });
    runtime.run_until([] { return false; }, std::chrono::milliseconds(20));
  }
  runtime.run_until([] { return false; }, std::chrono::milliseconds(50));
  (void)answered;  // it may have been there before it was dropped; nothing may crash
}

TEST(HttpBase, IsAHostWithOrWithoutAPort) {
  EXPECT_EQ(*parse_http_base("http://169.254.169.254"), (Address{"169.254.169.254", 80}));
  EXPECT_EQ(*parse_http_base("http://metadata.google.internal/"),
            (Address{"metadata.google.internal", 80}));
  EXPECT_EQ(*parse_http_base("http://[fd00:ec2::254]"), (Address{"fd00:ec2::254", 80}));
  EXPECT_EQ(*parse_http_base("http://127.0.0.1:8080"), (Address{"127.0.0.1", 8080}));
  for (const char* bad :
       {"", "169.254.169.254", "https://x", "http://", "http://x/y", "http://x:0"})
    EXPECT_FALSE(parse_http_base(bad)) << bad;
}

}  // namespace
}  // namespace swarmline
