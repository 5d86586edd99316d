// A coordinator that may be the one who is cut off: before a state is given up for lost, it begins
// again on its journal, and whoever lives comes back with its seat and with what it holds.
#include <algorithm>
#include <utility>

#include "base/log.h"
#include "pipeline/coordinator/coordinator_impl.h"

namespace swarmline {

namespace {
// In a row, without a commit between.
constexpr std::uint32_t kAgainMax = 16;
// Whether a peer whose link broke lives: where its process is gone, its address refuses at once, or
// what stands between ends the connection soon.
constexpr Duration kProbeTime = std::chrono::seconds(1);
constexpr Duration kProbeStands = std::chrono::milliseconds(50);
}  // namespace

// With a standby it is that one's turn: peers may be with it already.
bool Coordinator::Impl::may_begin_again() const {
  return (state_ == State::kTraining || state_ == State::kDraining) && !collecting_ && !ended_ &&
         options_.config.net.standby.empty() && again_.times < kAgainMax;
}

bool Coordinator::Impl::is_last_of_its_stage(const Seat& seat) const {
  if (!serves(seat) || emptied_.contains(seat.stage)) return false;
  const std::vector<Seat> serving = membership_.ready_of(seat.stage);
  return serving.size() == 1 && !heir_of(seat.stage);
}

// Nobody else holds the stage's state: a process that is gone takes it along, a link that broke
// does not.
void Coordinator::Impl::doubt(const Seat& seat, const std::string& why) {
  const auto address = parse_address(membership_.at(seat.peer).address);
  if (!address) return fence(seat, why);
  log(LogLevel::kWarn, "{}: {}; it is the last of its stage: asking whether it lives",
      to_string(seat), why);
  network_.connect(*address, kProbeTime,
                   [weak = weak(), seat, why](Result<std::shared_ptr<Connection>> dialled) {
                     auto self = weak.lock();
                     if (dialled) return probe(weak, seat, why, *dialled);
                     if (self) (*self)->fence(seat, why);
                   });
}

void Coordinator::Impl::probe(const std::weak_ptr<Impl*>& weak, const Seat& seat,
                              const std::string& why,
                              const std::shared_ptr<Connection>& connection) {
  auto stands = std::make_shared<bool>(true);
  connection->start(
      {.on_frame = [](Frame) {}, .on_closed = [stands](const Error&) { *stands = false; }});
  auto self = weak.lock();
  if (!self) return connection->close();
  (*self)->runtime_.call_after(kProbeStands, [weak, seat, why, stands, connection] {
    connection->close();
    auto self = weak.lock();
    if (!self || !(*self)->membership_.is_current(seat)) return;
    Impl& impl = **self;
    if (!*stands || !impl.may_begin_again()) return impl.fence(seat, why);
    impl.begin_again(
        {.heard_nobody = false,
         .why = fmt::format("the link to {} broke ({}), which is the last of its stage and lives",
                            to_string(seat), why)});
  });
}

void Coordinator::Impl::begin_again(Again again) {
  event("lost_touch", again.why, LogLevel::kWarn);
  if (checkpoint_) abandon_checkpoint("the coordinator begins again");
  again.times = again_.times + 1;
  begins_again_ = ended_ = true;
  network_.stop_listening();
  runtime_.post([weak = weak(), again = std::move(again)] {
    auto self = weak.lock();
    if (!self) return;
    const std::function<void(Again)> on_again = (*self)->on_again_;
    self.reset();
    on_again(again);  // ends this one
  });
}

}  // namespace swarmline
