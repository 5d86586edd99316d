#include "pipeline/coordinator/coordinator.h"

#include <utility>

#include "base/callback_guard.h"
#include "base/log.h"
#include "base/marks.h"
#include "pipeline/coordinator/reign.h"
#include "pipeline/coordinator/run/reign_insight.h"
#include "pipeline/protocol/knobs.h"

namespace swarmline {

class Coordinator::Impl {
 public:
  Impl(const CoordinatorParts::Doors& doors, CoordinatorOptions options,
       std::function<void(RunOutcome)> on_finished)
      : doors_(doors), options_(std::move(options)), on_finished_(std::move(on_finished)) {
    make({});
  }
  Reign& reign() { return *reign_; }

 private:
  void make(SelfRestart why) {
    reign_.reset();  // the address is free again
    reign_ = std::make_unique<Reign>(
        doors_, options_, why, RunEnds{.finished = on_finished_, .again = [this](SelfRestart next) {
                                         begin_again(next);
                                       }});
  }
  // What the reign before was writing ends first; what it had not begun to write it never said.
  void begin_again(SelfRestart why) {
    doors_.journal.when_idle(guard_.wrap([this, why] {
      make(why);
      const auto bound = reign_->start();
      if (bound) return;
      if (bound.error().code == ErrorCode::kRefused)
        return on_finished_({RunEnds::kDeposed, bound.error().what});
      if (bound.error().code != ErrorCode::kIo) return on_finished_({1, bound.error().what});
      SWARMLINE_MARK("coordinator.begins_again_later");
      log(LogLevel::kWarn, "{}; tried again", bound.error().what);
      doors_.network.stop_listening();
      doors_.runtime.call_after(knobs().journal_retry_max,
                                guard_.wrap([this, why] { begin_again(why); }));
    }));
  }

  CoordinatorParts::Doors doors_;
  CoordinatorOptions options_;
  std::function<void(RunOutcome)> on_finished_;
  std::unique_ptr<Reign> reign_;
  CallbackGuard guard_;
};

Coordinator::Coordinator(Runtime& runtime, Network& network, AsyncJournal& journal,
                         CheckpointSink& sink, CoordinatorOptions options,
                         std::function<void(RunOutcome)> on_finished)
    : impl_(std::make_unique<Impl>(
          CoordinatorParts::Doors{
              .runtime = runtime, .network = network, .journal = journal, .sink = sink},
          std::move(options), std::move(on_finished))) {}
Coordinator::~Coordinator() = default;

Result<bool> Coordinator::has_ended(Journal& journal) {
  return RunJournal::has_ended(journal);
}
Result<Address> Coordinator::start() {
  return impl_->reign().start();
}
bool Coordinator::takes_peers() const {
  return impl_->reign().takes_peers();
}
void Coordinator::request_stop(bool now) {
  impl_->reign().request_stop(now);
}
Result<std::string> Coordinator::request_checkpoint() {
  return impl_->reign().request_checkpoint();
}
RunStatus Coordinator::status() const {
  return impl_->reign().status();
}
void Coordinator::check_invariants() const {
  impl_->reign().check_invariants();
}
bool Coordinator::serves(const Seat& seat) const {
  return impl_->reign().serves(seat);
}
std::vector<Seat> Coordinator::shadow_hosts(StageId stage) const {
  return impl_->reign().shadow_hosts(stage);
}

RunGlance Coordinator::glance() const {
  return glance_of(impl_->reign().parts());
}
std::string Coordinator::why_it_goes_back() const {
  const RunLifecycle& life = impl_->reign().parts().life;
  return life.is<life::RollingBack>() ? life.as<life::RollingBack>().why : "";
}
std::set<MicrobatchId> Coordinator::relying_on_tries() const {
  return swarmline::relying_on_tries(impl_->reign().parts());
}
std::vector<NamedSize> Coordinator::sizes() const {
  return sizes_of(impl_->reign().parts());
}

}  // namespace swarmline
