#include "pipeline/coordinator/members/link_trial.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "base/limits.h"
#include "base/marks.h"
#include "pipeline/coordinator/members/link_scope.h"
#include "pipeline/coordinator/members/reach.h"
#include "pipeline/protocol/knobs.h"
#include "pipeline/protocol/protocol_version.h"

namespace swarmline {

void LinkTrial::on_request(const SessionPtr& session, const Frame& frame,
                           RpcChannel::Respond respond) {
  const auto request = parse<wire::TrialRequest>(frame);
  if (!request)
    return in_.outbox.respond_freely(std::move(respond), std::unexpected(request.error()));
  wire::TrialReply answer = answer_to(*session, *request);
  const auto address = parse_address(request->dial_back());
  if (!request->dial_back().empty()) {
    if (!address || !is_own_address(request->dial_back(), session->channel->connection())) {
      SWARMLINE_MARK("link_trial.elsewhere");
      answer.set_reach(std::string(to_string(Reach::kElsewhere)));
    } else if (dialled_.size() >= kDialsMax || dialled_.contains(session)) {
      SWARMLINE_MARK("link_trial.too_many_at_once");
      answer.set_reach(std::string(to_string(Reach::kUnknown)));
    } else {
      return dial(session, *address, std::move(answer), std::move(respond));
    }
  }
  in_.outbox.respond_freely(std::move(respond), make_frame(kTrialReply, answer));
}

wire::TrialReply LinkTrial::answer_to(const Session& session,
                                      const wire::TrialRequest& request) const {
  const Connection& link = session.channel->connection();
  wire::TrialReply answer;
  answer.set_protocol(kProtocolVersion);
  answer.set_wall_seconds(in_.alarms.runtime().wall_seconds());
  answer.set_seen_from(link.remote());
  answer.set_filler(std::string(std::min(request.answer_bytes(), kTrialFillerBytesMax), '\0'));
  // Whoever may say hello is told it then.
  if (request.wants_run() && link_may_ask(link.admitted_as(), MessageKind::kHello)) {
    answer.set_config_toml(in_.shape.options.config_toml);
    answer.set_vocab(in_.shape.options.model.shape.vocab);
    *answer.mutable_data() = in_.data.question();
  }
  return answer;
}

void LinkTrial::dial(const SessionPtr& session, const Address& address, wire::TrialReply answer,
                     RpcChannel::Respond respond) {
  dialled_.insert(session);
  const auto key = session->channel->connection().peer_key();
  // Empty: it answers.
  auto dialled = in_.alarms.then_settle(
      [this, session, answer = std::move(answer),
       respond = std::move(respond)](const std::string& not_reached) mutable {
        SWARMLINE_MARK("link_trial.dialled");
        dialled_.erase(session);
        answer.set_reach(std::string(to_string(not_reached.empty() ? Reach::kYes : Reach::kNo)));
        answer.set_not_reached(not_reached.substr(0, Limits::reason_bytes_max));
        in_.outbox.respond_freely(std::move(respond), make_frame(kTrialReply, answer));
      });
  in_.network.connect(
      address, knobs().probe_time,
      [dialled = std::move(dialled), key = key ? to_string(*key) : std::string()](
          const Result<std::shared_ptr<Connection>>& connection) mutable {
        if (!connection) return dialled(connection.error().what);
        const bool is_its = has_key(**connection, key);
        (*connection)->start({.on_frame = [](Frame) {}, .on_closed = [](const Error&) {}});
        (*connection)->close();
        dialled(is_its ? std::string() : std::string("somebody else answers there"));
      });
}

}  // namespace swarmline
