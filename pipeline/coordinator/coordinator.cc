#include "pipeline/coordinator/coordinator.h"

#include <utility>

#include "pipeline/coordinator/reign.h"
#include "pipeline/coordinator/run/reign_insight.h"

namespace swarmline {

class Coordinator::Impl {
 public:
  Impl(const CoordinatorParts::Doors& doors, CoordinatorOptions options,
       std::function<void(RunOutcome)> on_finished)
      : doors_(doors), options_(std::move(options)), on_finished_(std::move(on_finished)) {
    begin({});
  }
  Reign& reign() { return *reign_; }

 private:
  void begin(SelfRestart why) {
    reign_.reset();  // the address and the journal are free again
    reign_ = std::make_unique<Reign>(
        doors_, options_, why,
        RunEnds{.finished = on_finished_, .again = [this](SelfRestart next) {
                  begin(next);
                  if (auto bound = reign_->start(); !bound)
                    on_finished_({bound.error().code == ErrorCode::kRefused ? RunEnds::kDeposed : 1,
                                  bound.error().what});
                }});
  }

  CoordinatorParts::Doors doors_;
  CoordinatorOptions options_;
  std::function<void(RunOutcome)> on_finished_;
  std::unique_ptr<Reign> reign_;
};

Coordinator::Coordinator(Runtime& runtime, Network& network, Journal& journal, CheckpointSink& sink,
                         CoordinatorOptions options, std::function<void(RunOutcome)> on_finished)
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
std::string Coordinator::status_json() const {
  return impl_->reign().status_json();
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
