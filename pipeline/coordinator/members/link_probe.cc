#include "pipeline/coordinator/members/link_probe.h"

#include <fmt/format.h>

#include "base/log.h"
#include "base/marks.h"
#include "pipeline/protocol/knobs.h"

namespace swarmline {

namespace {

// What answers there, or refuses, is that peer or the end of it.
bool leads_to_it(const Member& member) {
  return member.reach == Reach::kYes || member.reach == Reach::kUnknown;
}

}  // namespace

void LinkProbe::probe(const Seat& seat, const std::string& why) {
  const Member& member = members_.members().at(seat.peer);
  const auto address = parse_address(member.address);
  if (!address) return rulings_.lose(seat, why);
  if (!leads_to_it(member)) return SWARMLINE_MARK("link_probe.not_asked");
  SWARMLINE_MARK("link_probe.probed");
  log(LogLevel::kWarn, "{}: {}; it is the last of its stage: asking whether it lives",
      called(seat, members_.name_of(seat.peer)), why);
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
      [reached = std::move(reached), key = member.key,
       watch = alarms_.watch()](Result<std::shared_ptr<Connection>> dialled) mutable {
        auto stands = std::make_shared<bool>(true);
        if (!dialled) return reached(nullptr, stands, dialled.error().code == ErrorCode::kPeerGone);
        (*dialled)->start(
            {.on_frame = [](Frame) {}, .on_closed = [stands](const Error&) { *stands = false; }});
        if (watch.expired()) return (*dialled)->close();
        if (has_key(**dialled, key)) return reached(*dialled, stands, false);
        SWARMLINE_MARK("link_probe.another_answers");
        (*dialled)->close();
        reached(nullptr, stands, false);
      });
}

void LinkProbe::ask(const Seat& seat) {
  ask(members_.members().at(seat.peer), [this, seat](const std::string& why) {
    if (!members_.is_current(seat)) return;
    SWARMLINE_MARK("link_probe.gone");
    rulings_.lose(seat, why);
  });
}

bool LinkProbe::ask(const Member& member, std::function<void(const std::string& why)> on_gone) {
  const auto to = parse_address(member.address);
  if (!to) return false;
  if (!leads_to_it(member)) return true;  // nobody knows
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

void LinkProbe::unless_reached(const Seat& seat, std::function<void()> then) {
  const Member& member = members_.members().at(seat.peer);
  const auto address = parse_address(member.address);
  if (!address || !leads_to_it(member)) return;
  auto failed = alarms_.then_settle(std::move(then));
  network_.connect(
      *address, knobs().probe_time,
      [failed = std::move(failed),
       key = member.key](Result<std::shared_ptr<Connection>> dialled) mutable {
        if (!dialled) return failed();
        (*dialled)->start({.on_frame = [](Frame) {}, .on_closed = [](const Error&) {}});
        const bool is_it = has_key(**dialled, key);
        (*dialled)->close();
        if (!is_it) failed();
      });
}

void LinkProbe::judge(const Seat& seat, const std::string& why, bool stands) {
  if (!members_.is_current(seat)) return;
  if (!stands || !may_begin_again_()) return rulings_.lose(seat, why);
  SWARMLINE_MARK("link_probe.lives");
  rulings_.begin_again(
      fmt::format("the link to {} broke ({}), which is the last of its stage and lives",
                  called(seat, members_.name_of(seat.peer)), why),
      false);
}

}  // namespace swarmline
