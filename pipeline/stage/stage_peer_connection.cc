// A peer's way to its coordinator: the first, the next when that one is gone, and back to the same
// one for another seat.
#include <algorithm>
#include <utility>

#include "base/limits.h"
#include "base/log.h"
#include "pipeline/protocol/knobs.h"
#include "pipeline/stage/stage_peer_impl.h"

namespace swarmline {

namespace {
constexpr std::size_t kCoordinatorsMax = 16;
}  // namespace

void StagePeer::Impl::connect() {
  network_.connect(next_coordinator(), knobs().reach_timeout,
                   [weak = weak()](Result<std::shared_ptr<Connection>> connected) {
                     auto self = weak.lock();
                     if (!self || (*self)->finished_) return;
                     if (!connected) return (*self)->on_no_answer(connected.error());
                     (*self)->coordinator_ = RpcChannel::make((*self)->runtime_, *connected);
                     (*self)->say_hello();
                   });
}

const Address& StagePeer::Impl::next_coordinator() const {
  return coordinators_[coordinator_tried_ % coordinators_.size()];
}

void StagePeer::Impl::on_no_answer(const Error& error) {
  if (run_id_.empty()) {  // a newcomer: there may be none yet, or never
    const bool first = why_searching_.empty();
    why_searching_ =
        fmt::format("no coordinator answers at {}: {}", to_string(next_coordinator()), error.what);
    if (first)
      log(LogLevel::kWarn, "{}; trying for {:.0f} s", why_searching_, to_seconds(patience_));
  }
  ++coordinator_tried_;
  connect_again();
}

void StagePeer::Impl::say_hello() {
  ++connection_;
  coordinator_->start({
      .on_message =
          [weak = weak(), connection = connection_](Frame frame) {
            if (auto self = weak.lock(); self && (*self)->connection_ == connection)
              (*self)->on_coordinator(std::move(frame));
          },
      .on_request =
          [](Frame, RpcChannel::Respond respond) {
            respond(fail(ErrorCode::kRefused, "peers answer no requests"));
          },
      .on_closed =
          [weak = weak(), connection = connection_](const Error& error) {
            auto self = weak.lock();
            if (self && (*self)->connection_ == connection) (*self)->on_coordinator_closed(error);
          },
  });
  wire::Hello hello;
  hello.set_protocol(kProtocolVersion);
  hello.set_name(options_.name);
  hello.set_address(advertised_);
  hello.set_device(device_.name());
  hello.set_threads(options_.machine.threads);
  hello.set_memory_bytes(options_.machine.memory_bytes);
  hello.set_shadow_memory_bytes(options_.machine.shadow_memory_bytes);
  hello.set_zone(options_.machine.zone);
  hello.set_price(options_.machine.price);
  if (seat_.peer.value != 0) *hello.mutable_previous() = to_wire(seat_);
  if (heritage_) {
    hello.mutable_followed()->set_stage(heritage_->stage().value);
    hello.mutable_followed()->set_version(heritage_->committed().value);
  }
  if (kept_) {
    hello.mutable_kept()->set_stage(kept_->stage.value);
    hello.mutable_kept()->set_version(kept_->version.value);
  } else if (adrift_) {  // if its seat is given up it will keep that
    hello.mutable_kept()->set_stage(seat_.stage.value);
    hello.mutable_kept()->set_version(stage_->committed().value);
  }
  hello.set_run_id(run_id_);
  hello.set_term(term_.value);
  if (adrift_) *hello.mutable_holdings() = stage_->holdings();
  const bool others = coordinators_.size() > 1;
  coordinator_->call(make_frame(MessageKind::kHello, hello),
                     others ? knobs().welcome_timeout : Limits::rpc_deadline,
                     [weak = weak(), connection = connection_](Result<Frame> reply) {
                       auto self = weak.lock();
                       if (!self || (*self)->finished_ || (*self)->connection_ != connection)
                         return;
                       if (!reply) return (*self)->on_hello_failed(reply.error());
                       auto welcome = parse<wire::Welcome>(*reply);
                       if (!welcome) return (*self)->finish(1, welcome.error().what);
                       (*self)->welcomed(*welcome);
                     });
}

void StagePeer::Impl::on_hello_failed(const Error& error) {
  if (error.code == ErrorCode::kPeerGone) return;  // its connection says so, too
  if (error.code == ErrorCode::kDeadline) return coordinator_->close();
  finish(error.code == ErrorCode::kRefused ? 3 : 1,
         "the coordinator did not take this peer: " + error.what);
}

void StagePeer::Impl::on_coordinator_closed(const Error& error) {
  ++connection_;
  coordinator_.reset();
  if (finished_) return;
  if (dropping_) return;  // whoever waits for that connects
  if (seatless_ || adrift_) return on_no_answer(error);
  ++coordinator_tried_;
  const std::string why = "lost the coordinator: " + error.what;
  stage_ && stage_->serves() ? adrift(why) : rejoin(why);
}

void StagePeer::Impl::learn_coordinators(const wire::Welcome& welcome) {
  for (const std::string& text : welcome.coordinators()) {
    const auto address = parse_address(text);
    if (address && coordinators_.size() < kCoordinatorsMax &&
        std::find(coordinators_.begin(), coordinators_.end(), *address) == coordinators_.end())
      coordinators_.push_back(*address);
  }
}

void StagePeer::Impl::resumed(const wire::Welcome& welcome) {
  log(LogLevel::kInfo, "{}: a coordinator is there again (term {})", to_string(seat_),
      welcome.term());
  adrift_ = false;
  links_->set_identity(
      {.term = term_, .era = Era{welcome.era()}, .run_id = run_id_, .self = seat_});
  if (!draining_) return;
  wire::Leave leave;
  *leave.mutable_seat() = to_wire(seat_);
  coordinator_->notify(make_frame(MessageKind::kLeave, leave));
}

void StagePeer::Impl::connect_again() {
  if (runtime_.now() > search_until_) return finish(1, why_searching_);
  runtime_.call_after(knobs().rejoin_pause, [weak = weak()] {
    if (auto self = weak.lock(); self && !(*self)->finished_) (*self)->connect();
  });
}

void StagePeer::Impl::adrift(const std::string& why) {
  log(LogLevel::kWarn, "{}: {}; going on with what it holds", to_string(seat_), why);
  adrift_ = true;
  why_searching_ = why;
  search_until_ = runtime_.now() + patience_;
  stage_->on_coordinator_lost();
  connect_again();
}

// Late itself, this process was stopped: then it can't say who is silent.
bool StagePeer::Impl::coordinator_silent() {
  const Instant now = runtime_.now();
  if (now - beat_due_ > heartbeat_period_) coordinator_heard_ = now;
  return coordinator_ && coordinators_.size() > 1 &&
         now - coordinator_heard_ >
             std::max<Duration>(knobs().coordinator_silence, 10 * heartbeat_period_);
}

// Whatever it holds is nobody's any more: it starts over, as a newcomer.
void StagePeer::Impl::rejoin(const std::string& why, bool keeps) {
  if (finished_ || seatless_) return;
  log(LogLevel::kWarn, "{}: {}; asking for a new seat", to_string(seat_), why);
  if (draining_) return finish(0, kLeftEarly);
  seatless_ = true;
  ++life_;
  inherits_ = false;
  why_searching_ = why;
  search_until_ = runtime_.now() + patience_;
  ++connection_;
  if (coordinator_) std::exchange(coordinator_, nullptr)->close();
  drop_stage(keeps, [weak = weak()] {
    if (auto self = weak.lock()) (*self)->connect();
  });
}

void StagePeer::Impl::drop_stage(bool keeps, std::function<void()> then) {
  links_->reset();
  dropping_ = true;
  // Not inside the handler that heard of it, and not before the device has let go of the model.
  runtime_.post([weak = weak(), keeps, then = std::move(then)] {
    auto self = weak.lock();
    if (!self) return;
    (*self)->queue_.clear([weak, keeps, then] {
      auto still = weak.lock();
      if (!still || (*still)->finished_) return;
      (*still)->shadows_->clear();  // the copy may take their room
      keeps && (*still)->has_room_to_keep() ? (*still)->keep_state(then) : (*still)->let_go(then);
    });
  });
}

bool StagePeer::Impl::has_room_to_keep() const {
  const std::uint64_t bound = options_.machine.shadow_memory_bytes;
  return stage_ && stage_->has_state() && (bound == 0 || stage_->state_bytes() <= bound);
}

void StagePeer::Impl::keep_state(std::function<void()> then) {
  auto kept = std::make_shared<std::shared_ptr<KeptState>>();
  StageJob job;
  job.job.body = [stage = stage_.get(), kept]() -> Result<void> {
    auto made = stage->keep();
    if (!made) return std::unexpected(std::move(made).error());
    *kept = std::move(*made);
    return {};
  };
  job.done = [weak = weak(), kept, then = std::move(then)](const JobReport& report) {
    auto self = weak.lock();
    if (!self || (*self)->finished_) return;
    if (!report.result)
      log(LogLevel::kWarn, "{}: its state is not kept: {}", to_string((*self)->seat_),
          report.result.error().what);
    (*self)->kept_ = std::move(*kept);
    (*self)->let_go(then);
  };
  queue_.submit(std::move(job));
}

void StagePeer::Impl::let_go(const std::function<void()>& then) {
  stage_.reset();
  dropping_ = false;
  then();
}

}  // namespace swarmline
