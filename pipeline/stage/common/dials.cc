#include "pipeline/stage/common/dials.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/marks.h"
#include "pipeline/protocol/knobs.h"

namespace swarmline {
namespace {

// A name that this end does not find says nothing of the other.
Error meant_by(const Error& error) {
  if (error.code == ErrorCode::kPeerGone) return {ErrorCode::kNotFound, error.what};
  if (error.code == ErrorCode::kNotFound) return {ErrorCode::kPeerGone, error.what};
  return error;
}

// None before the first try again.
Duration pause_after(std::uint32_t failures) {
  constexpr std::uint32_t kDoublingsMax = 16;
  if (failures < 2) return {};
  const Duration pause = knobs().redial_pause_min * (1 << std::min(failures - 2, kDoublingsMax));
  return std::min(pause, std::max(knobs().redial_pause_max, knobs().redial_pause_min));
}

}  // namespace

bool is_seat_of(const Connection& connection, const Seat& seat) {
  const std::string proven = connection.admitted_as();
  return proven.empty() || proven == to_string(seat);
}

void refuse_link(const std::shared_ptr<Connection>& connection) {
  connection->start({.on_frame = [](Frame) {}, .on_closed = [](Error) {}});
  connection->close();
}

Dials::Dials(Runtime& runtime, Network& network, Duration connect_timeout, Hooks hooks)
    : runtime_(runtime),
      network_(network),
      connect_timeout_(connect_timeout),
      hooks_(std::move(hooks)) {}

std::optional<Seat> Dials::under_way(PeerId peer) const {
  const auto dial = dials_.find(peer);
  return dial == dials_.end() ? std::nullopt : std::optional(dial->second.to);
}

Dials::Dial* Dials::find(const Seat& to, std::uint64_t number) {
  const auto dial = dials_.find(to.peer);
  return dial == dials_.end() || dial->second.number != number ? nullptr : &dial->second;
}

// ---- Beginnings ---------------------------------------------------------------------------------

void Dials::want(const Seat& to, std::optional<Frame> frame) {
  const auto [entry, begins] = dials_.try_emplace(to.peer);
  Dial& dial = entry->second;
  dial.wanted = true;
  // A peer that makes us say so much while we can't reach it loses what is beyond: its timers and
  // ours cover that.
  if (frame && dial.waiting.size() < kFramesWaitingMax) dial.waiting.push_back(std::move(*frame));
  if (!begins) return;
  dial.to = to;
  dial.number = ++last_number_;
  begin(dial);
}

void Dials::call(const Seat& to) {
  const auto [entry, begins] = dials_.try_emplace(to.peer);
  Dial& dial = entry->second;
  if (!begins && dial.to != to) return;  // of another seat: it asks again
  dial.called = true;
  if (begins) {
    SWARMLINE_MARK("dials.called");
    dial.to = to;
    dial.number = ++last_number_;
  }
  if (dial.under_way) return;
  if (!dial.failed) return connect(dial);
  SWARMLINE_MARK("dials.neither_end_reaches_the_other");
  dial.called = false;
  if (hooks_.on_call_failed) hooks_.on_call_failed(to);
}

void Dials::begin(Dial& dial) {
  if (callers_.contains(dial.to.peer)) ask(dial);
  const auto pace = paces_.find(dial.to.peer);
  if (pace == paces_.end() || pace->second.due <= runtime_.now()) return connect(dial);
  SWARMLINE_MARK("dials.paused");
  runtime_.call_at(pace->second.due, guard_.wrap([this, to = dial.to, number = dial.number] {
    Dial* const due = find(to, number);
    if (due && !due->under_way && !due->failed) connect(*due);
  }));
}

void Dials::connect(Dial& dial) {
  dial.under_way = true;
  const Seat to = dial.to;
  const std::uint64_t number = dial.number;
  const auto address = hooks_.address_of(to);
  if (!address) {
    runtime_.post(
        guard_.wrap([this, to, number, error = address.error()] { fail_dial(to, number, error); }));
    return;
  }
  // Whoever asked for a call hears in time that it does not come.
  const Duration patience =
      dial.wanted ? connect_timeout_ : std::min(connect_timeout_, knobs().call_time / 4 * 3);
  if (hooks_.ask_for_call && knobs().call_after < connect_timeout_)
    dial.late = runtime_.call_after(knobs().call_after, guard_.wrap([this, to, number] {
      Dial* const late = find(to, number);
      if (!late || !late->wanted) return;
      ask(*late);
      if (hooks_.on_late) hooks_.on_late(to);
    }));
  network_.connect(
      *address, patience,
      [this, alive = guard_.watch(), to, number](const Result<std::shared_ptr<Connection>>& made) {
        if (!alive.expired()) return connected(to, number, made);
        if (made) refuse_link(*made);
      });
}

// ---- Ends ---------------------------------------------------------------------------------------

void Dials::connected(const Seat& to, std::uint64_t number,
                      const Result<std::shared_ptr<Connection>>& made) {
  if (!made) return fail_dial(to, number, meant_by(made.error()));
  // Forgotten meanwhile, or its link came from the other end.
  if (!find(to, number)) return refuse_link(*made);
  if (!is_seat_of(**made, to)) {
    SWARMLINE_MARK("links.another_seat_answers");
    refuse_link(*made);
    return fail_dial(to, number,
                     {ErrorCode::kDeadline, fmt::format("{} answers at the address of {}",
                                                        (*made)->admitted_as(), to_string(to))});
  }
  Dial dial = std::move(dials_.extract(to.peer).mapped());
  runtime_.cancel(dial.late);
  callers_.erase(to.peer);
  hooks_.on_made(to, *made, std::move(dial.waiting));
}

void Dials::fail_dial(const Seat& to, std::uint64_t number, const Error& error) {
  Dial* const dial = find(to, number);
  if (!dial) return;
  runtime_.cancel(dial->late);
  dial->under_way = false;
  dial->failed = error;
  const bool called = std::exchange(dial->called, false), wanted = dial->wanted;
  if (!wanted) dials_.erase(to.peer);
  if (called && hooks_.on_call_failed) hooks_.on_call_failed(to);
  if (!wanted) return;
  // An end that can open no connection takes none either.
  if (error.code == ErrorCode::kIo) dial->asked = dial->unanswered = true;
  ask(*dial);
  settle(*dial);
}

void Dials::ask(Dial& dial) {
  if (std::exchange(dial.asked, true)) return;
  dial.unanswered = !hooks_.ask_for_call || !hooks_.ask_for_call(dial.to);
  if (dial.unanswered) return;
  SWARMLINE_MARK("dials.asked_to_be_called");
  runtime_.call_after(knobs().call_time, guard_.wrap([this, to = dial.to, number = dial.number] {
    Dial* const waits = find(to, number);
    if (!waits) return;
    waits->unanswered = true;
    settle(*waits);
  }));
}

void Dials::nobody_calls(const Seat& to) {
  const auto dial = dials_.find(to.peer);
  if (dial == dials_.end() || dial->second.to != to || !dial->second.asked) return;
  SWARMLINE_MARK("dials.nobody_calls");
  dial->second.unanswered = true;
  settle(dial->second);
}

// ---- Relays -------------------------------------------------------------------------------------

void Dials::meet(const Seat& to, const Meeting& meeting) {
  const auto [entry, begins] = dials_.try_emplace(to.peer);
  Dial& dial = entry->second;
  if (!begins && dial.to != to) return;  // of another seat: it asks again
  if (begins) {
    dial.to = to;
    dial.number = ++last_number_;
    dial.failed = Error{ErrorCode::kDeadline, "the relay did not join the two"};
  }
  network_.meet(meeting, knobs().call_time / 4 * 3,
                [this, alive = guard_.watch(), to,
                 number = dial.number](const Result<std::shared_ptr<Connection>>& made) {
                  if (!alive.expired()) return met(to, number, made);
                  if (made) refuse_link(*made);
                });
}

void Dials::met(const Seat& to, std::uint64_t number,
                const Result<std::shared_ptr<Connection>>& made) {
  Dial* const dial = find(to, number);
  if (!dial) {
    if (made) refuse_link(*made);
    return;
  }
  if (made && is_seat_of(**made, to)) {
    SWARMLINE_MARK("dials.met_at_a_relay");
    std::vector<Frame> waiting = std::move(dials_.extract(to.peer).mapped().waiting);
    callers_.insert(to.peer);
    return hooks_.on_made(to, *made, std::move(waiting));
  }
  SWARMLINE_MARK("dials.not_met");
  if (made) refuse_link(*made);
  if (!dial->wanted) {
    if (!dial->under_way) dials_.erase(to.peer);
    return;
  }
  dial->unanswered = true;
  settle(*dial);
}

void Dials::settle(Dial& dial) {
  if (!dial.failed || !dial.unanswered) return;
  const Seat to = dial.to;
  const Error why = *dial.failed;
  dials_.erase(to.peer);
  callers_.erase(to.peer);
  not_reached(to.peer);
  hooks_.on_failed(to, why);
}

std::optional<std::vector<Frame>> Dials::take(const Seat& from) {
  const auto dial = dials_.find(from.peer);
  if (dial == dials_.end() || dial->second.to != from || !dial->second.asked) return std::nullopt;
  SWARMLINE_MARK("dials.call_came");
  callers_.insert(from.peer);
  paces_.erase(from.peer);
  runtime_.cancel(dial->second.late);
  return std::move(dials_.extract(dial).mapped().waiting);
}

// ---- Pauses -------------------------------------------------------------------------------------

void Dials::not_reached(PeerId peer) {
  Pace& pace = paces_[peer];
  pace.due = runtime_.now() + pause_after(++pace.failures);
}

void Dials::ended(PeerId peer, Duration lived) {
  if (lived < knobs().redial_pause_max) return not_reached(peer);
  paces_.erase(peer);
}

void Dials::give_up(PeerId peer) {
  dials_.erase(peer);
}

void Dials::forget(PeerId peer) {
  dials_.erase(peer);
  paces_.erase(peer);
  callers_.erase(peer);
}

void Dials::clear() {
  dials_.clear();
  paces_.clear();
  callers_.clear();
}

void Dials::stop() {
  clear();
  guard_.drop_callbacks();
}

}  // namespace swarmline
