#include "pipeline/coordinator/members/link_probe.h"

#include <fmt/format.h>

#include "base/log.h"
#include "base/marks.h"
#include "pipeline/protocol/knobs.h"

namespace swarmline {

void LinkProbe::probe(const Seat& seat, const std::string& why) {
  const auto address = parse_address(members_.members().at(seat.peer).address);
  if (!address) return rulings_.lose(seat, why);
  SWARMLINE_MARK("link_probe.probed");
  log(LogLevel::kWarn, "{}: {}; it is the last of its stage: asking whether it lives",
      to_string(seat), why);
  auto reached =
      alarms_.then_settle([this, seat, why](const std::shared_ptr<Connection>& connection,
                                            const std::shared_ptr<bool>& stands, bool gone) {
        if (gone) return rulings_.lose(seat, why);
        if (!connection) return SWARMLINE_MARK("link_probe.not_reached");
        alarms_.after(knobs().probe_stands, [this, seat, why, connection, stands] {
          connection->close();
          judge(seat, why, *stands);
        });
      });
  network_.connect(
      *address, knobs().probe_time,
      [reached = std::move(reached),
       watch = alarms_.watch()](Result<std::shared_ptr<Connection>> dialled) mutable {
        auto stands = std::make_shared<bool>(true);
        if (!dialled) return reached(nullptr, stands, dialled.error().code == ErrorCode::kPeerGone);
        (*dialled)->start(
            {.on_frame = [](Frame) {}, .on_closed = [stands](const Error&) { *stands = false; }});
        if (watch.expired()) return (*dialled)->close();
        reached(*dialled, stands, false);
      });
}

void LinkProbe::ask(const Seat& seat) {
  ask(members_.members().at(seat.peer).address, [this, seat](const std::string& why) {
    if (!members_.is_current(seat)) return;
    SWARMLINE_MARK("link_probe.gone");
    rulings_.lose(seat, why);
  });
}

bool LinkProbe::ask(const std::string& address,
                    std::function<void(const std::string& why)> on_gone) {
  const auto to = parse_address(address);
  if (!to) return false;
  auto gone = alarms_.then_settle(std::move(on_gone));
  network_.connect(
      *to, knobs().probe_time,
      [gone = std::move(gone)](Result<std::shared_ptr<Connection>> dialled) mutable {
        if (!dialled && dialled.error().code == ErrorCode::kPeerGone)
          return gone(dialled.error().what);
        if (!dialled) return;
        (*dialled)->start({.on_frame = [](Frame) {}, .on_closed = [](const Error&) {}});
        (*dialled)->close();
      });
  return true;
}

void LinkProbe::judge(const Seat& seat, const std::string& why, bool stands) {
  if (!members_.is_current(seat)) return;
  if (!stands || !may_begin_again_()) return rulings_.lose(seat, why);
  SWARMLINE_MARK("link_probe.lives");
  rulings_.begin_again(
      fmt::format("the link to {} broke ({}), which is the last of its stage and lives",
                  to_string(seat), why),
      false);
}

}  // namespace swarmline
