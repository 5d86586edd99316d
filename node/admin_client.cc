#include "node/admin_client.h"

#include <optional>
#include <utility>

#include <fmt/format.h>

#include "engine/net/tcp/tcp_network.h"
#include "engine/runtime/asio_runtime.h"

namespace swarmline {

struct AdminClient::State {
  std::shared_ptr<RpcChannel> channel;  // null: not connected
};

AdminClient::AdminClient(Runtime& runtime, Network& network, Address coordinator)
    : runtime_(runtime),
      network_(network),
      address_(std::move(coordinator)),
      state_(std::make_shared<State>()) {}

AdminClient::~AdminClient() {
  if (state_->channel) state_->channel->close();
}

void AdminClient::call(Frame request, std::function<void(Result<Frame>)> on_reply) {
  if (state_->channel) {
    state_->channel->call(std::move(request), kAdminReplyTimeout, std::move(on_reply));
    return;
  }
  auto on_connected = [this, weak = std::weak_ptr(state_), request = std::move(request),
                       on_reply = std::move(on_reply)](
                          Result<std::shared_ptr<Connection>> connection) mutable {
    const auto state = weak.lock();
    if (!state) return;
    if (!connection && connection.error().code == ErrorCode::kRefused)
      return on_reply(std::unexpected(connection.error()));
    if (!connection) {
      on_reply(fail(connection.error().code,
                    fmt::format("no coordinator answers at {} ({}); is the run over? \"swarmline "
                                "status RUN_FOLDER\" shows how it ended",
                                to_string(address_), connection.error().what)));
      return;
    }
    state->channel = RpcChannel::make(runtime_, std::move(*connection));
    state->channel->start({.on_message = [](Frame) {},
                           .on_request = [](Frame, RpcChannel::Respond) {},
                           .on_closed =
                               [weak](Error) {
                                 if (const auto s = weak.lock()) s->channel.reset();
                               }});
    state->channel->call(std::move(request), kAdminReplyTimeout, std::move(on_reply));
  };
  network_.connect(address_, kAdminConnectTimeout, std::move(on_connected));
}

void AdminClient::status(Text on_json) {
  call(make_frame(MessageKind::kStatusRequest, wire::StatusRequest()),
       [on_json = std::move(on_json)](Result<Frame> frame) {
         if (!frame) return on_json(std::unexpected(std::move(frame).error()));
         auto reply = parse<wire::StatusReply>(*frame);
         if (!reply) return on_json(std::unexpected(std::move(reply).error()));
         on_json(std::move(*reply->mutable_json()));
       });
}

void AdminClient::stop(bool now, Text on_answer) {
  wire::StopRequest request;
  request.set_now(now);
  call(make_frame(MessageKind::kStopRequest, request),
       [on_answer = std::move(on_answer)](Result<Frame> frame) {
         if (!frame) return on_answer(std::unexpected(std::move(frame).error()));
         auto reply = parse<wire::StopReply>(*frame);
         if (!reply) return on_answer(std::unexpected(std::move(reply).error()));
         on_answer(std::move(*reply->mutable_what()));
       });
}

namespace {

Result<std::string> ask(const Address& coordinator, std::shared_ptr<LinkGuard> guard,
                        const std::function<void(AdminClient&, AdminClient::Text)>& question) {
  AsioRuntime runtime;
  TcpNetwork network(runtime, {.guard = std::move(guard)});
  std::optional<Result<std::string>> answer;
  {
    AdminClient client(runtime, network, coordinator);
    question(client, [&](Result<std::string> text) { answer = std::move(text); });
    runtime.run_until([&] { return answer.has_value(); },
                      kAdminConnectTimeout + kAdminReplyTimeout + std::chrono::seconds(1));
  }
  if (answer) return std::move(*answer);
  return fail(ErrorCode::kDeadline,
              fmt::format("the coordinator at {} did not answer", to_string(coordinator)));
}

}  // namespace

Result<std::string> ask_status(const Address& coordinator, std::shared_ptr<LinkGuard> guard) {
  return ask(coordinator, std::move(guard), [](AdminClient& client, AdminClient::Text on_json) {
    client.status(std::move(on_json));
  });
}

Result<std::string> ask_stop(const Address& coordinator, bool now,
                             std::shared_ptr<LinkGuard> guard) {
  return ask(coordinator, std::move(guard),
             [now](AdminClient& client, AdminClient::Text on_answer) {
               client.stop(now, std::move(on_answer));
             });
}

}  // namespace swarmline
