#include "node/admin_client.h"

#include <optional>
#include <utility>

#include <fmt/format.h>

#include "engine/net/tcp/tcp_network.h"
#include "engine/runtime/asio_runtime.h"
#include "pipeline/protocol/admin_proof.h"
#include "pipeline/protocol/message_bounds.h"

namespace swarmline {

struct AdminClient::State {
  std::shared_ptr<RpcChannel> channel;  // null: not connected
  bool proved = false;                  // over this connection
};

AdminClient::AdminClient(Runtime& runtime, Network& network, Address coordinator,
                         std::string secret)
    : runtime_(runtime),
      network_(network),
      address_(std::move(coordinator)),
      secret_(std::move(secret)),
      state_(std::make_shared<State>()) {}

AdminClient::~AdminClient() {
  if (state_->channel) state_->channel->close();
}

void AdminClient::with_channel(std::function<void(Result<std::shared_ptr<RpcChannel>>)> use) {
  if (state_->channel) return use(state_->channel);
  auto on_connected = [this, weak = std::weak_ptr(state_), use = std::move(use)](
                          Result<std::shared_ptr<Connection>> connection) mutable {
    const auto state = weak.lock();
    if (!state) return;
    if (!connection && connection.error().code == ErrorCode::kRefused)
      return use(std::unexpected(connection.error()));
    if (!connection)
      return use(fail(connection.error().code,
                      fmt::format("no coordinator answers at {} ({}); is the run over? \"swarmline "
                                  "status RUN_FOLDER\" shows how it ended",
                                  to_string(address_), connection.error().what)));
    state->proved = false;
    state->channel = RpcChannel::make(runtime_, std::move(*connection));
    state->channel->start({.on_message = [](Frame) {},
                           .on_request = [](Frame, RpcChannel::Respond) {},
                           .on_closed =
                               [weak](Error) {
                                 if (const auto s = weak.lock()) s->channel.reset();
                               }});
    state->channel->connection().believe(bounds_of_answers());
    use(state->channel);
  };
  network_.connect(address_, kAdminConnectTimeout, std::move(on_connected));
}

void AdminClient::call(Frame request, OnReply on_reply) {
  with_channel([request = std::move(request), on_reply = std::move(on_reply)](
                   Result<std::shared_ptr<RpcChannel>> channel) mutable {
    if (!channel) return on_reply(std::unexpected(std::move(channel).error()));
    (*channel)->call(std::move(request), kAdminReplyTimeout, std::move(on_reply));
  });
}

// Without a secret the coordinator says what it takes.
template <typename Request>
void AdminClient::call_with_proof(MessageKind kind, Request request, OnReply on_reply) {
  if (secret_.empty()) return call(make_frame(kind, request), std::move(on_reply));
  auto prove = [this, weak = std::weak_ptr(state_), kind, request = std::move(request),
                on_reply = std::move(on_reply)](Result<Frame> frame) mutable {
    const auto state = weak.lock();
    if (!state) return;
    if (!frame) return on_reply(std::unexpected(std::move(frame).error()));
    const auto challenge = parse<wire::ChallengeReply>(*frame);
    if (!challenge) return on_reply(std::unexpected(challenge.error()));
    request.set_proof(admin_proof(secret_, challenge->nonce(), kind, request));
    state->proved = true;
    call(make_frame(kind, request), std::move(on_reply));
  };
  call(make_frame(MessageKind::kChallengeRequest, wire::ChallengeRequest()), std::move(prove));
}

void AdminClient::status(Text on_json) {
  OnReply on_reply = [on_json = std::move(on_json)](Result<Frame> frame) {
    if (!frame) return on_json(std::unexpected(std::move(frame).error()));
    auto reply = parse<wire::StatusReply>(*frame);
    if (!reply) return on_json(std::unexpected(std::move(reply).error()));
    on_json(std::move(*reply->mutable_json()));
  };
  if (state_->channel && state_->proved)
    return call(make_frame(MessageKind::kStatusRequest, wire::StatusRequest()),
                std::move(on_reply));
  call_with_proof(MessageKind::kStatusRequest, wire::StatusRequest(), std::move(on_reply));
}

void AdminClient::stop(bool now, Text on_answer) {
  wire::StopRequest request;
  request.set_now(now);
  call_with_proof(MessageKind::kStopRequest, request,
                  [on_answer = std::move(on_answer)](Result<Frame> frame) {
                    if (!frame) return on_answer(std::unexpected(std::move(frame).error()));
                    auto reply = parse<wire::StopReply>(*frame);
                    if (!reply) return on_answer(std::unexpected(std::move(reply).error()));
                    on_answer(std::move(*reply->mutable_what()));
                  });
}

void AdminClient::checkpoint(Text on_answer) {
  call_with_proof(MessageKind::kCheckpointRequest, wire::CheckpointRequest(),
                  [on_answer = std::move(on_answer)](Result<Frame> frame) {
                    if (!frame) return on_answer(std::unexpected(std::move(frame).error()));
                    auto reply = parse<wire::CheckpointReply>(*frame);
                    if (!reply) return on_answer(std::unexpected(std::move(reply).error()));
                    on_answer(std::move(*reply->mutable_what()));
                  });
}

namespace {

// Of a tool that has nothing to show, and asks whether anything is to be shown.
class NobodysGuard final : public LinkGuard {
 public:
  const Identity& identity() const override { return own_; }
  std::optional<KeyHash> pinned(const Address&) override { return std::nullopt; }
  std::string opening(const Address&, const LinkFacts&) override {
    shook = true;
    return {};
  }
  Result<std::string> judge(const Address&, const LinkFacts&, const std::string&) override {
    return std::string();
  }
  void admit(const LinkFacts&, const std::string&, Verdict) override {}
  bool shook = false;  // both ends have shown a key

 private:
  Identity own_ = Identity::make();
};

bool wants_keys_there(const Address& address) {
  AsioRuntime runtime;
  const auto guard = std::make_shared<NobodysGuard>();
  TcpNetwork network(runtime, {.guard = guard});
  bool over = false;
  network.connect(address, kAdminConnectTimeout,
                  [&](const Result<std::shared_ptr<Connection>>& connection) {
                    if (connection) (*connection)->close();
                    over = true;
                  });
  runtime.run_until([&] { return over; }, kAdminConnectTimeout + kAdminReplyTimeout);
  return guard->shook;
}

Error wants_keys(const Address& address) {
  return {ErrorCode::kUserMistake,
          fmt::format("the coordinator at {0} takes links between keys only: on its machine name "
                      "its run folder in the place of {0}, elsewhere a string that \"swarmline "
                      "invite RUN_FOLDER --scope observer\" prints there (admin: to stop it, too)",
                      to_string(address))};
}

Result<std::string> ask(const Address& coordinator, std::shared_ptr<LinkGuard> guard,
                        const std::string& secret,
                        const std::function<void(AdminClient&, AdminClient::Text)>& question) {
  const bool shows_nothing = guard == nullptr;
  AsioRuntime runtime;
  TcpNetwork network(runtime, {.guard = std::move(guard)});
  std::optional<Result<std::string>> answer;
  {
    AdminClient client(runtime, network, coordinator, secret);
    question(client, [&](Result<std::string> text) { answer = std::move(text); });
    runtime.run_until([&] { return answer.has_value(); },
                      kAdminConnectTimeout + kAdminReplyTimeout + std::chrono::seconds(1));
  }
  const bool refused = answer && !*answer && (*answer).error().code == ErrorCode::kRefused;
  if ((!answer || !*answer) && !refused && shows_nothing && wants_keys_there(coordinator))
    return std::unexpected(wants_keys(coordinator));
  if (answer && !*answer && answer->error().code == ErrorCode::kDeadline)
    return fail(ErrorCode::kDeadline,
                answer->error().what + "; is that the address of a Swarmline coordinator?");
  if (answer && !*answer && answer->error().code == ErrorCode::kCorrupt)
    return fail(ErrorCode::kCorrupt,
                fmt::format("what answers at {} is no Swarmline coordinator: {}",
                            to_string(coordinator), answer->error().what));
  if (answer) return std::move(*answer);
  return fail(ErrorCode::kDeadline,
              fmt::format("the coordinator at {} did not answer", to_string(coordinator)));
}

}  // namespace

Result<std::string> ask_status(const Address& coordinator, std::shared_ptr<LinkGuard> guard,
                               const std::string& secret) {
  return ask(
      coordinator, std::move(guard), secret,
      [](AdminClient& client, AdminClient::Text on_json) { client.status(std::move(on_json)); });
}

Result<std::string> ask_checkpoint(const Address& coordinator, std::shared_ptr<LinkGuard> guard,
                                   const std::string& secret) {
  return ask(coordinator, std::move(guard), secret,
             [](AdminClient& client, AdminClient::Text on_answer) {
               client.checkpoint(std::move(on_answer));
             });
}

Result<std::string> ask_stop(const Address& coordinator, bool now, std::shared_ptr<LinkGuard> guard,
                             const std::string& secret) {
  return ask(coordinator, std::move(guard), secret,
             [now](AdminClient& client, AdminClient::Text on_answer) {
               client.stop(now, std::move(on_answer));
             });
}

}  // namespace swarmline
