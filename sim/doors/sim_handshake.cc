#include "sim/doors/sim_handshake.h"

#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/marks.h"

namespace swarmline {

SimHandshake::SimHandshake(std::shared_ptr<SimWire> wire, std::shared_ptr<SimConnection> connection,
                           std::shared_ptr<LinkGuard> guard, std::string binding,
                           std::optional<Address> dialled, Done on_done)
    : wire_(std::move(wire)),
      connection_(std::move(connection)),
      guard_(std::move(guard)),
      binding_(std::move(binding)),
      dialled_(std::move(dialled)),
      pinned_(dialled_ ? guard_->pinned(*dialled_) : std::nullopt),
      public_key_(guard_->identity().public_key()),
      vouchers_(guard_->vouchers()),
      on_done_(std::move(on_done)),
      state_(dialled_ ? State::kAwaitsKey : State::kAwaitsHello) {
  SWARMLINE_CHECK(vouchers_.size() <= kLinkVouchersMax);
}

void SimHandshake::start() {
  timer_ = wire_->runtime.schedule(
      connection_->node(), wire_->runtime.now() + wire_->options.handshake_max,
      [weak = weak_from_this()] {
        const auto self = weak.lock();
        if (!self || self->state_ == State::kOver) return;
        SWARMLINE_MARK("sim.handshake_late");
        ++self->wire_->handshakes.late;
        self->over(ErrorCode::kDeadline,
                   fmt::format("no handshake within {:.3g} s",
                               to_seconds(self->wire_->options.handshake_max)));
      });
  connection_->greet(
      {.on_words = [self = shared_from_this()](const SimWords& words) { self->hear(words); },
       .on_ended =
           [self = shared_from_this()](const Error& error) {
             // Somebody was there: that it ended says not that nobody is.
             self->over(
                 error.code == ErrorCode::kCorrupt ? ErrorCode::kCorrupt : ErrorCode::kDeadline,
                 error.what);
           }});
  if (dials()) say({.what = SimWords::What::kHello});
}

void SimHandshake::stop() {
  if (state_ == State::kOver) return;
  SWARMLINE_MARK("sim.handshake_given_up");
  ++wire_->handshakes.given_up;
  on_done_ = {};
  finish(fail(ErrorCode::kStopped, "stopped"));
}

void SimHandshake::hear(const SimWords& words) {
  using What = SimWords::What;
  const auto self = shared_from_this();
  switch (words.what) {
    case What::kHello:
      if (state_ != State::kAwaitsHello) break;
      state_ = State::kAwaitsOpening;
      return say({.what = What::kShown, .public_key = public_key_, .vouchers = vouchers_});
    case What::kShown:
      if (state_ != State::kAwaitsKey) break;
      return take_key(words);
    case What::kOpening:
      if (state_ != State::kAwaitsOpening) break;
      return take_opening(words);
    case What::kAnswer:
    case What::kRefusal:
      if (state_ != State::kAwaitsAnswer) break;
      return take_answer(words);
    case What::kAlert:
      return over(ErrorCode::kCorrupt, words.words);
  }
  over(ErrorCode::kCorrupt, "it speaks out of turn");
}

bool SimHandshake::learn(const SimWords& words) {
  const auto hash = hash_of_public_key(words.public_key);
  if (!hash) {
    over(ErrorCode::kCorrupt, hash.error().what);
    return false;
  }
  facts_ = {.key = *hash,
            .public_key = words.public_key,
            .binding = binding_,
            .remote = connection_->remote(),
            .vouchers = words.vouchers};
  return true;
}

void SimHandshake::take_key(const SimWords& words) {
  if (!learn(words)) return;
  if (const auto may = check_shown_key(*guard_, pinned_, facts_.key, words.vouchers); !may) {
    SWARMLINE_MARK("sim.another_key_shown");
    say({.what = SimWords::What::kAlert, .words = "it does not take this key"});
    return over(ErrorCode::kCorrupt, may.error().what);
  }
  state_ = State::kAwaitsAnswer;
  say({.what = SimWords::What::kOpening,
       .public_key = public_key_,
       .vouchers = vouchers_,
       .words = guard_->opening(*dialled_, facts_)});
}

void SimHandshake::take_opening(const SimWords& words) {
  if (!learn(words)) return;
  state_ = State::kJudges;
  guard_->admit(facts_, words.words,
                [weak = weak_from_this()](const Result<LinkGuard::Admission>& verdict) {
                  if (const auto self = weak.lock()) self->take_verdict(verdict);
                });
}

void SimHandshake::take_verdict(const Result<LinkGuard::Admission>& verdict) {
  if (state_ != State::kJudges) return;
  const auto self = shared_from_this();
  if (verdict) {
    say({.what = SimWords::What::kAnswer, .words = verdict->answer});
    return be_admitted(verdict->as);
  }
  const bool for_good = verdict.error().code == ErrorCode::kRefused;
  say({.what = SimWords::What::kRefusal,
       .words = verdict.error().what,
       .code = for_good ? ErrorCode::kRefused : ErrorCode::kDeadline});
  over(verdict.error().code, verdict.error().what);
}

void SimHandshake::take_answer(const SimWords& words) {
  if (words.what == SimWords::What::kRefusal) return over(words.code, words.words);
  auto as = guard_->judge(*dialled_, facts_, words.words);
  if (!as) return over(as.error().code, as.error().what);
  be_admitted(std::move(*as));
}

void SimHandshake::say(SimWords words) {
  SWARMLINE_CHECK(words.words.size() <= kLinkWordsMax);
  if (wire_->speechless.contains(connection_->node())) return;
  connection_->say(std::move(words));
}

void SimHandshake::be_admitted(std::string as) {
  connection_->secure(facts_.key, std::move(as));
  finish({});
}

void SimHandshake::over(ErrorCode code, const std::string& why) {
  if (state_ == State::kOver) return;
  finish(fail(code,
              fmt::format("{}: {}", dials() ? to_string(*dialled_) : connection_->remote(), why)));
}

void SimHandshake::finish(Result<void> result) {
  if (state_ == State::kOver) return;
  const auto self = shared_from_this();
  state_ = State::kOver;
  wire_->runtime.cancel(timer_);
  connection_->end_greeting();
  if (!result) {
    connection_->start({.on_frame = [](Frame) {}, .on_closed = [](const Error&) {}});
    connection_->close();
  }
  const auto connection = std::exchange(connection_, nullptr);
  if (const Done done = std::exchange(on_done_, {})) done(std::move(result));
}

}  // namespace swarmline
