#include "engine/net/rpc.h"

#include <map>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/printable.h"
#include "engine/net/error_reply.pb.h"
#include "engine/net/message_pieces.h"

namespace swarmline {
namespace {

constexpr std::size_t kErrorTextBytesMax = 4096;
constexpr auto kLastErrorCode = static_cast<std::uint32_t>(ErrorCode::kDeviceLost);

Frame error_frame(std::uint16_t kind, std::uint64_t request, const Error& error) {
  ErrorReply reply;
  reply.set_code(static_cast<std::uint32_t>(error.code));
  reply.set_what(error.what.substr(0, kErrorTextBytesMax));
  return {.kind = kind,
          .request = request,
          .flags = kFrameFlagReply | kFrameFlagError,
          .meta = reply.SerializeAsString(),
          .payload = {}};
}

Error error_of(const Frame& frame) {
  ErrorReply reply;
  if (!reply.ParseFromString(frame.meta)) {
    return {ErrorCode::kCorrupt, "the other side answered with an error that cannot be read"};
  }
  const ErrorCode code =
      reply.code() <= kLastErrorCode ? static_cast<ErrorCode>(reply.code()) : ErrorCode::kIo;
  return {code, printable(reply.what(), kErrorTextBytesMax)};
}

class Channel;

// The one right to answer a request. When the last copy of the Respond function dies unused, it
// answers itself.
class Responder {
 public:
  Responder(std::weak_ptr<Channel> channel, std::uint16_t kind, std::uint64_t request)
      : channel_(std::move(channel)), kind_(kind), request_(request) {}
  ~Responder() {
    if (!answered_) answer(fail(ErrorCode::kPeerGone, "the request was dropped without an answer"));
  }
  Responder(const Responder&) = delete;
  Responder& operator=(const Responder&) = delete;
  void answer(Result<Frame> result);

 private:
  std::weak_ptr<Channel> channel_;
  std::uint16_t kind_;
  std::uint64_t request_;
  bool answered_ = false;
};

class Channel final : public RpcChannel {
 public:
  Channel(Runtime& runtime, std::shared_ptr<Connection> connection)
      : runtime_(runtime), connection_(std::move(connection)) {}

  void start(Handlers handlers) override {
    handlers_ = std::move(handlers);
    auto self = shared();  // the connection keeps the channel until it has closed
    connection_->start({.on_frame = [self](Frame frame) { self->on_frame(std::move(frame)); },
                        .on_closed = [self](Error error) { self->on_closed(std::move(error)); },
                        .stranger = handlers_.stranger});
  }

  void call(Frame request, Duration deadline, Reply reply) override {
    if (closed_) return answer_later(std::move(reply), ErrorCode::kPeerGone, gone_);
    if (pending_.size() >= kRequestsInFlightMax) {
      return answer_later(std::move(reply), ErrorCode::kRefused,
                          fmt::format("{} requests to {} are in flight already",
                                      kRequestsInFlightMax, connection_->remote()));
    }
    const std::uint64_t number = ++last_request_;
    std::weak_ptr<Channel> weak = shared();
    const TimerId timer = runtime_.call_after(deadline, [weak, number, deadline] {
      if (auto self = weak.lock()) self->on_deadline(number, deadline);
    });
    pending_.emplace(number, Pending{std::move(reply), timer});
    request.request = number;
    request.flags = 0;
    connection_->send(std::move(request));
  }

  void notify(Frame message) override {
    message.request = 0;
    message.flags &= kFrameFlagAhead;
    connection_->send(std::move(message));
  }

  void close() override { connection_->close(); }
  Connection& connection() override { return *connection_; }

 private:
  struct Pending {
    Reply reply;
    TimerId timer;
  };

  std::shared_ptr<Channel> shared() {
    return std::static_pointer_cast<Channel>(shared_from_this());
  }

  void answer_later(Reply reply, ErrorCode code, std::string what) {
    runtime_.post(
        [reply = std::move(reply), code, what = std::move(what)] { reply(fail(code, what)); });
  }

  void on_frame(Frame frame) {
    if ((frame.flags & kFrameFlagReply) != 0) return on_reply(std::move(frame));
    if (frame.request == 0) {
      if (handlers_.on_message) handlers_.on_message(std::move(frame));
      return;
    }
    const auto responder = std::make_shared<Responder>(shared(), frame.kind, frame.request);
    if (!handlers_.on_request) {
      return responder->answer(fail(ErrorCode::kRefused, "this end answers no requests"));
    }
    handlers_.on_request(std::move(frame), [responder](Result<Frame> result) {
      responder->answer(std::move(result));
    });
  }

  void on_reply(Frame frame) {
    const auto found = pending_.find(frame.request);
    if (found == pending_.end()) return;  // it came after its deadline
    const Pending pending = std::move(found->second);
    pending_.erase(found);
    runtime_.cancel(pending.timer);
    if ((frame.flags & kFrameFlagError) != 0) {
      pending.reply(std::unexpected(error_of(frame)));
    } else {
      pending.reply(std::move(frame));
    }
  }

  void on_deadline(std::uint64_t number, Duration deadline) {
    const auto found = pending_.find(number);
    if (found == pending_.end()) return;
    const Pending pending = std::move(found->second);
    pending_.erase(found);
    pending.reply(
        fail(ErrorCode::kDeadline, fmt::format("{} did not answer within {:.3g} s",
                                               connection_->remote(), to_seconds(deadline))));
  }

  void on_closed(Error error) {
    closed_ = true;
    gone_ = fmt::format("the connection to {} has ended: {}", connection_->remote(), error.what);
    const std::map<std::uint64_t, Pending> pending = std::exchange(pending_, {});
    for (const auto& [number, call] : pending) {
      runtime_.cancel(call.timer);
      call.reply(fail(ErrorCode::kPeerGone, gone_));
    }
    const Handlers handlers = std::exchange(handlers_, {});  // breaks cycles with its owner
    if (handlers.on_closed) handlers.on_closed(std::move(error));
  }

  Runtime& runtime_;
  std::shared_ptr<Connection> connection_;
  Handlers handlers_;
  std::map<std::uint64_t, Pending> pending_;  // ordered: answered in order when the connection ends
  std::uint64_t last_request_ = 0;
  bool closed_ = false;
  std::string gone_;
};

void Responder::answer(Result<Frame> result) {
  SWARMLINE_CHECK_MSG(!answered_, fmt::format("request {} was answered twice", request_));
  answered_ = true;
  const auto channel = channel_.lock();
  if (!channel) return;
  if (!result) return channel->connection().send(error_frame(kind_, request_, result.error()));
  Frame reply = std::move(*result);
  reply.request = request_;
  reply.flags = kFrameFlagReply;
  channel->connection().send(std::move(reply));
}

}  // namespace

std::shared_ptr<RpcChannel> RpcChannel::make(Runtime& runtime,
                                             std::shared_ptr<Connection> connection) {
  return std::make_shared<Channel>(runtime, std::move(connection));
}

}  // namespace swarmline
