#include "tools/doctor/link_facts.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "engine/config/load.h"
#include "engine/identity/key_file.h"
#include "engine/net/rpc.h"
#include "node/admin_client.h"
#include "node/admission/peer_guard.h"
#include "node/network_factory.h"
#include "pipeline/protocol/data_messages.h"
#include "pipeline/protocol/message_bounds.h"
#include "pipeline/protocol/message_kinds.h"
#include "pipeline/protocol/trial.h"

namespace swarmline {
namespace {

Result<std::shared_ptr<PeerGuard>> guard_for(const JoinTarget& target, const PeerConfig& machine,
                                             AsioRuntime& runtime) {
  if (!target.invite) return nullptr;
  auto key =
      machine.key.empty() ? Result<Identity>(Identity::make()) : load_or_make_key(machine.key);
  if (!key) return std::unexpected(std::move(key).error());
  return std::make_shared<PeerGuard>(std::move(*key), *target.invite, runtime);
}

class Trial {
 public:
  Trial(AsioRuntime& runtime, Network& network) : runtime_(runtime), network_(network) {}
  ~Trial() {
    if (channel_) channel_->close();
  }
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  bool connect(const std::vector<Address>& addresses, CoordinatorFacts& facts) {
    facts.address = to_string(addresses.front());
    for (const Address& address : addresses) {
      auto link = dial(address);
      if (link) {
        facts.address = to_string(address);
        facts.no_link.reset();
        open(std::move(*link));
        facts.has_keys = channel_->connection().peer_key().has_value();
        return true;
      }
      // Of several the first one's reason, unless another one says more.
      if (!facts.no_link || link.error().code == ErrorCode::kRefused ||
          link.error().code == ErrorCode::kCorrupt) {
        facts.address = to_string(address);
        facts.no_link = std::move(link).error();
      }
    }
    return false;
  }

  Result<void> ask_clock(CoordinatorFacts& facts) {
    for (int i = 0; i < kClockQuestions; ++i) {
      wire::TrialRequest request;
      request.set_wants_run(i == 0);
      const Instant begin = runtime_.now();
      const double before = runtime_.wall_seconds();
      const auto reply = ask(request);
      const double round_trip = to_seconds(runtime_.now() - begin);
      if (!reply) return std::unexpected(reply.error());
      if (i == 0) SWARMLINE_TRY(take_run(*reply, facts));
      if (i != 0 && round_trip >= facts.round_trip_seconds) continue;
      facts.round_trip_seconds = round_trip;
      facts.ahead_seconds = reply->wall_seconds() - (before + round_trip / 2);
      facts.seen_from = reply->seen_from();
    }
    return {};
  }

  Result<void> ask_back(const std::string& address, CoordinatorFacts& facts) {
    facts.listens_at = seen_from(channel_->connection(), address);
    wire::TrialRequest request;
    request.set_dial_back(facts.listens_at);
    const auto reply = ask(request);
    if (!reply) return std::unexpected(reply.error());
    facts.reach = reply->reach();
    facts.not_reached = reply->not_reached();
    return {};
  }

  Result<WaySpeed> measure(std::uint64_t sent, std::uint64_t answered, double round_trip) {
    Way way;
    way.request.set_filler(std::string(sent, '\0'));
    way.request.set_answer_bytes(static_cast<std::uint32_t>(answered));
    way.part_bytes = sent + answered;
    way.begin = runtime_.now();
    for (std::uint32_t i = 0; i < kFillersUnderWay; ++i) send_part(way);
    runtime_.run_until([&] { return way.under_way == 0; },
                       from_seconds(kSpeedSeconds + kAnswerSeconds));
    if (way.error) return std::unexpected(*way.error);
    const double took = to_seconds(way.last - way.begin);
    return WaySpeed{.bytes = way.bytes, .seconds = std::max(took - round_trip, took / 10)};
  }

 private:
  struct Way {
    wire::TrialRequest request;
    std::uint64_t part_bytes = 0;
    std::uint64_t asked = 0, bytes = 0;
    std::uint32_t under_way = 0;
    Instant begin{}, last{};
    std::optional<Error> error;
  };

  Result<std::shared_ptr<Connection>> dial(const Address& address) {
    std::optional<Result<std::shared_ptr<Connection>>> dialled;
    network_.connect(address, from_seconds(kDialSeconds),
                     [&](Result<std::shared_ptr<Connection>> link) { dialled = std::move(link); });
    runtime_.run_until([&] { return dialled.has_value(); }, from_seconds(3 * kDialSeconds));
    if (dialled) return std::move(*dialled);
    return fail(ErrorCode::kDeadline, "nobody answered");
  }

  void open(std::shared_ptr<Connection> link) {
    channel_ = RpcChannel::make(runtime_, std::move(link));
    channel_->start({.on_message = [](Frame) {},
                     .on_request = [](Frame, RpcChannel::Respond) {},
                     .on_closed = [](Error) {}});
    channel_->connection().believe(bounds_of_answers());
  }

  Result<wire::TrialReply> ask(const wire::TrialRequest& request) {
    std::optional<Result<Frame>> answer;
    channel_->call(make_frame(kTrialRequest, request), from_seconds(kAnswerSeconds),
                   [&](Result<Frame> frame) { answer = std::move(frame); });
    runtime_.run_until([&] { return answer.has_value(); }, from_seconds(2 * kAnswerSeconds));
    if (!answer) return fail(ErrorCode::kDeadline, "it did not answer");
    if (!*answer) return std::unexpected(answer->error());
    return parse<wire::TrialReply>(**answer);
  }

  static Result<void> take_run(const wire::TrialReply& reply, CoordinatorFacts& facts) {
    facts.protocol = reply.protocol();
    facts.vocab = reply.vocab();
    if (reply.config_toml().empty()) return {};
    auto config = run_config_from_text(reply.config_toml(), "the coordinator's config");
    if (!config) return std::unexpected(std::move(config).error());
    facts.config = std::move(*config);
    if (reply.data().files_size() == 0) return {};
    auto data = from_wire(reply.data());
    if (!data) return std::unexpected(std::move(data).error());
    facts.data = std::move(*data);
    return {};
  }

  void send_part(Way& way) {
    if (way.error || way.asked + way.part_bytes > kSpeedBytesMax ||
        to_seconds(runtime_.now() - way.begin) > kSpeedSeconds)
      return;
    way.asked += way.part_bytes;
    ++way.under_way;
    channel_->call(make_frame(kTrialRequest, way.request),
                   from_seconds(kSpeedSeconds + kAnswerSeconds), [&](const Result<Frame>& frame) {
                     --way.under_way;
                     if (!frame) {
                       way.error = frame.error();
                       return;
                     }
                     way.bytes += way.part_bytes;
                     way.last = runtime_.now();
                     send_part(way);
                   });
  }

  AsioRuntime& runtime_;
  Network& network_;
  std::shared_ptr<RpcChannel> channel_;
};

Result<void> ask_all(Trial& trial, const std::string& listens_at, CoordinatorFacts& facts) {
  SWARMLINE_TRY(trial.ask_clock(facts));
  SWARMLINE_TRY(trial.ask_back(listens_at, facts));
  for (const bool up : {true, false}) {
    auto speed = trial.measure(up ? kTrialFillerBytesMax : 0, up ? 0 : kTrialFillerBytesMax,
                               facts.round_trip_seconds);
    if (!speed) return std::unexpected(std::move(speed).error());
    (up ? facts.up : facts.down) = *speed;
  }
  return {};
}

}  // namespace

Result<CoordinatorFacts> try_coordinator(const JoinTarget& target, const PeerConfig& machine) {
  const auto listen = parse_address(machine.listen);
  if (!listen) return std::unexpected(listen.error());
  AsioRuntime runtime;
  auto guard = guard_for(target, machine, runtime);
  if (!guard) return std::unexpected(std::move(guard).error());
  auto network =
      make_tcp_network(runtime, {.name = "doctor", .slow_down = {}, .guard = std::move(*guard)});
  if (!network) return std::unexpected(std::move(network).error());
  std::vector<std::shared_ptr<Connection>> taken;  // held until the end
  const auto bound = (*network)->listen(*listen, [&](std::shared_ptr<Connection> link) {
    link->start({.on_frame = [](Frame) {}, .on_closed = [](const Error&) {}});
    taken.push_back(std::move(link));
  });
  CoordinatorFacts facts;
  Trial trial(runtime, **network);
  if (!trial.connect(target.coordinators, facts)) return facts;
  const std::string listens_at = !machine.advertise.empty() ? machine.advertise
                                 : bound                    ? to_string(*bound)
                                                            : machine.listen;
  auto asked = ask_all(trial, listens_at, facts);
  if (asked) return facts;
  facts.no_answer = std::move(asked).error();
  if (target.invite || facts.protocol != 0) return facts;
  // It may take links between keys only, which status has a sentence for.
  const auto status = ask_status(*parse_address(facts.address));
  if (!status && status.error().code == ErrorCode::kUserMistake)
    facts.no_answer = Error{ErrorCode::kUserMistake,
                            fmt::format("{} takes links between keys only: join by the string that "
                                        "it prints (swarm1...@HOST:PORT)",
                                        facts.address)};
  return facts;
}

}  // namespace swarmline
