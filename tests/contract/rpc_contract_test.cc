#include <map>

#include "engine/net/error_reply.pb.h"
#include "engine/net/rpc.h"
#include "tests/contract/link.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

class RpcContract : public BackendTest {
 protected:
  void SetUp() override {
    link_ = make_link(*world_, false);
    client_ = RpcChannel::make(world_->runtime(0), link_->client.connection);
    server_ = RpcChannel::make(world_->runtime(1), link_->server.connection);
  }
  void start_client(RpcChannel::Handlers handlers = {}) { client_->start(std::move(handlers)); }
  void start_echo_server() {
    server_->start({.on_request = [](Frame request, RpcChannel::Respond respond) {
      respond(make_frame(request.kind, "echo " + request.meta, request.payload));
    }});
  }
  bool run_until(const std::function<bool()>& done) { return world_->run_until(done, 20s); }

  std::unique_ptr<Link> link_;
  std::shared_ptr<RpcChannel> client_, server_;
};

TEST_P(RpcContract, EachCallGetsItsOwnReply) {
  start_client();
  start_echo_server();
  std::map<int, std::string> replies;
  for (int i = 0; i < 100; ++i) {
    client_->call(make_frame(7, std::to_string(i)), 10s, [&, i](Result<Frame> reply) {
      ASSERT_TRUE(reply.has_value());
      EXPECT_EQ(reply->kind, 7);
      EXPECT_EQ(replies.count(i), 0U);
      replies[i] = reply->meta;
    });
  }
  EXPECT_TRUE(replies.empty());
  ASSERT_TRUE(run_until([&] { return replies.size() == 100; }));
  for (int i = 0; i < 100; ++i) EXPECT_EQ(replies[i], "echo " + std::to_string(i));
}

TEST_P(RpcContract, RepliesMayComeOutOfOrderAndBothEndsMayCall) {
  std::vector<RpcChannel::Respond> waiting;
  start_client({.on_request = [](Frame, RpcChannel::Respond respond) {
    respond(make_frame(1, "from client"));
  }});
  server_->start({.on_request = [&](Frame, RpcChannel::Respond respond) {
    waiting.push_back(std::move(respond));
  }});
  std::vector<std::string> replies;
  const auto keep = [&](Result<Frame> reply) { replies.push_back(reply.value().meta); };
  client_->call(make_frame(1, "a"), 10s, keep);
  client_->call(make_frame(1, "b"), 10s, keep);
  ASSERT_TRUE(run_until([&] { return waiting.size() == 2; }));
  waiting[1](make_frame(1, "second"));
  waiting[0](make_frame(1, "first"));
  server_->call(make_frame(1), 10s,
                keep);  // its number is one that the client's calls have used too
  ASSERT_TRUE(run_until([&] { return replies.size() == 3; }));
  EXPECT_EQ(replies, (std::vector<std::string>{"second", "first", "from client"}));
}

TEST_P(RpcContract, MessagesCarryNoRequestNumber) {
  start_client();
  std::vector<std::string> messages;
  server_->start({.on_message = [&](Frame frame) {
    EXPECT_EQ(frame.request, 0U);
    messages.push_back(frame.meta);
  }});
  client_->notify(make_frame(3, "one"));
  client_->notify(make_frame(3, "two"));
  ASSERT_TRUE(run_until([&] { return messages.size() == 2; }));
  EXPECT_EQ(messages, (std::vector<std::string>{"one", "two"}));
}

TEST_P(RpcContract, TheRemotesErrorArrivesWithItsCodeAndSentence) {
  start_client();
  server_->start({.on_request = [](Frame request, RpcChannel::Respond respond) {
    respond(fail(static_cast<ErrorCode>(request.kind), "sentence " + request.meta));
  }});
  const std::vector<ErrorCode> codes = {ErrorCode::kUserMistake, ErrorCode::kDeadline,
                                        ErrorCode::kStopped,     ErrorCode::kRefused,
                                        ErrorCode::kNotFound,    ErrorCode::kDevice};
  std::vector<Error> errors;
  for (const ErrorCode code : codes) {
    client_->call(make_frame(static_cast<std::uint16_t>(code), "x"), 10s,
                  [&](Result<Frame> reply) { errors.push_back(reply.error()); });
  }
  ASSERT_TRUE(run_until([&] { return errors.size() == codes.size(); }));
  for (std::size_t i = 0; i < codes.size(); ++i) {
    EXPECT_EQ(errors[i].code, codes[i]);
    EXPECT_EQ(errors[i].what, "sentence x");
  }
}

TEST_P(RpcContract, AnErrorReplyOfAnotherVersionIsStillAnError) {
  start_client();
  std::vector<Frame> requests;
  link_->server.connection->start(
      {.on_frame = [&](Frame frame) { requests.push_back(std::move(frame)); }});
  std::vector<Error> errors;
  const auto keep = [&](Result<Frame> reply) { errors.push_back(reply.error()); };
  client_->call(make_frame(1), 10s, keep);
  client_->call(make_frame(1), 10s, keep);
  ASSERT_TRUE(run_until([&] { return requests.size() == 2; }));
  ErrorReply unknown;
  unknown.set_code(200);
  unknown.set_what("from the future");
  Frame reply = make_frame(1, unknown.SerializeAsString());
  reply.flags = kFrameFlagReply | kFrameFlagError;
  reply.request = requests[0].request;
  link_->server.connection->send(reply);
  reply.request = requests[1].request;
  reply.meta = "\xff\xff not a message";
  link_->server.connection->send(reply);
  ASSERT_TRUE(run_until([&] { return errors.size() == 2; }));
  EXPECT_EQ(errors[0].code, ErrorCode::kIo);
  EXPECT_EQ(errors[0].what, "from the future");
  EXPECT_EQ(errors[1].code, ErrorCode::kCorrupt);
}

TEST_P(RpcContract, ACallEndsAtItsDeadlineAndALateReplyIsIgnored) {
  start_client();
  std::vector<RpcChannel::Respond> waiting;
  server_->start({.on_request = [&](Frame, RpcChannel::Respond respond) {
    waiting.push_back(std::move(respond));
  }});
  std::vector<Result<Frame>> answers;
  const Instant start = world_->runtime(0).now();
  client_->call(make_frame(1), 50ms,
                [&](Result<Frame> reply) { answers.push_back(std::move(reply)); });
  ASSERT_TRUE(run_until([&] { return !answers.empty(); }));
  EXPECT_GE(world_->runtime(0).now() - start, 50ms);
  ASSERT_FALSE(answers[0].has_value());
  EXPECT_EQ(answers[0].error().code, ErrorCode::kDeadline);
  ASSERT_EQ(waiting.size(), 1U);
  waiting[0](make_frame(1, "late"));
  client_->call(make_frame(1), 10s,
                [&](Result<Frame> reply) { answers.push_back(std::move(reply)); });
  ASSERT_TRUE(run_until([&] { return waiting.size() == 2; }));
  waiting[1](make_frame(1, "in time"));
  ASSERT_TRUE(run_until([&] { return answers.size() == 2; }));
  EXPECT_EQ(answers[1].value().meta, "in time");
}

// Nobody said no to it.
TEST_P(RpcContract, ADroppedRequestFindsNobody) {
  start_client();
  server_->start({.on_request = [](Frame, RpcChannel::Respond) {}});
  std::optional<Error> error;
  client_->call(make_frame(1), 10s, [&](Result<Frame> reply) { error = reply.error(); });
  ASSERT_TRUE(run_until([&] { return error.has_value(); }));
  EXPECT_EQ(error->code, ErrorCode::kPeerGone);
}

TEST_P(RpcContract, AnEndWithoutHandlersRefusesRequests) {
  start_client();
  server_->start({});
  std::optional<Error> error;
  client_->notify(make_frame(1));
  client_->call(make_frame(1), 10s, [&](Result<Frame> reply) { error = reply.error(); });
  ASSERT_TRUE(run_until([&] { return error.has_value(); }));
  EXPECT_EQ(error->code, ErrorCode::kRefused);
}

TEST_P(RpcContract, PendingCallsAreAnsweredInOrderBeforeOnClosed) {
  std::string events;
  start_client({.on_closed = [&](Error error) {
    EXPECT_EQ(error.code, ErrorCode::kPeerGone);
    events += 'c';
  }});
  std::vector<RpcChannel::Respond> waiting;
  server_->start({.on_request = [&](Frame, RpcChannel::Respond respond) {
    waiting.push_back(std::move(respond));
  }});
  for (const char name : {'1', '2', '3'}) {
    client_->call(make_frame(1), 10s, [&, name](Result<Frame> reply) {
      EXPECT_EQ(reply.error().code, ErrorCode::kPeerGone);
      events += name;
    });
  }
  ASSERT_TRUE(run_until([&] { return waiting.size() == 3; }));
  server_->close();
  ASSERT_TRUE(run_until([&] { return events.ends_with('c'); }));
  EXPECT_EQ(events, "123c");
  waiting[0](make_frame(1));  // the connection is gone; nothing happens
  client_->call(make_frame(1), 10s, [&](Result<Frame> reply) {
    EXPECT_EQ(reply.error().code, ErrorCode::kPeerGone);
    events += 'l';
  });
  EXPECT_EQ(events, "123c");
  ASSERT_TRUE(run_until([&] { return events == "123cl"; }));
}

TEST_P(RpcContract, CloseAnswersOwnPendingCallsAndReportsStopped) {
  std::optional<Error> closed;
  std::optional<Error> answer;
  start_client({.on_closed = [&](Error error) { closed = std::move(error); }});
  server_->start({.on_request = [](Frame, const RpcChannel::Respond&) {}});
  client_->call(make_frame(1), 10s, [&](Result<Frame> reply) { answer = reply.error(); });
  client_->close();
  ASSERT_TRUE(run_until([&] { return closed.has_value(); }));
  EXPECT_EQ(closed->code, ErrorCode::kStopped);
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->code, ErrorCode::kPeerGone);
}

TEST_P(RpcContract, RequestsInFlightAreBounded) {
  start_client();
  std::vector<RpcChannel::Respond> waiting;
  server_->start({.on_request = [&](Frame, RpcChannel::Respond respond) {
    waiting.push_back(std::move(respond));
  }});
  std::size_t refused = 0, answered = 0;
  for (std::size_t i = 0; i < RpcChannel::kRequestsInFlightMax + 5; ++i) {
    client_->call(make_frame(1), 60s, [&](Result<Frame> reply) {
      reply ? ++answered : ++refused;
      if (!reply) {
        EXPECT_EQ(reply.error().code, ErrorCode::kRefused);
      }
    });
  }
  EXPECT_EQ(refused, 0U) << "answered inside call()";
  ASSERT_TRUE(run_until(
      [&] { return waiting.size() == RpcChannel::kRequestsInFlightMax && refused == 5; }));
  for (auto& respond : waiting) respond(make_frame(1));
  ASSERT_TRUE(run_until([&] { return answered == RpcChannel::kRequestsInFlightMax; }));
  waiting.clear();
  client_->call(make_frame(1), 10s, [&](Result<Frame>) { ++answered; });
  ASSERT_TRUE(run_until([&] { return waiting.size() == 1; })) << "room again";
}

TEST_P(RpcContract, ACallMayBeMadeInsideAReplyAndCloseInsideARequest) {
  start_client();
  int requests = 0;
  server_->start({.on_request = [&](Frame, RpcChannel::Respond respond) {
    respond(make_frame(1));
    if (++requests == 3) server_->close();
  }});
  int replies = 0;
  std::optional<Error> end;
  std::function<void(Result<Frame>)> again = [&](Result<Frame> reply) {
    if (!reply) {
      end = reply.error();
      return;
    }
    ++replies;
    client_->call(make_frame(1), 10s, again);
  };
  client_->call(make_frame(1), 10s, again);
  ASSERT_TRUE(run_until([&] { return end.has_value(); }));
  EXPECT_EQ(replies, 3) << "what was answered before close() still arrives";
  EXPECT_EQ(end->code, ErrorCode::kPeerGone);
}

SWARMLINE_FOR_EVERY_NETWORK(RpcContract);

}  // namespace
}  // namespace swarmline
