// Where the state of a stage comes from: drawn, inherited of its shadow, or fetched.
#include <memory>
#include <utility>

#include "pipeline/protocol/message_kinds.h"
#include "pipeline/stage/seat/seated_stage.h"

namespace swarmline {

void SeatedStage::begin() {
  if (heritage_) return inherit();
  if (commits_.following()) return states_.want();
  if (!states_.here()) return states_.fetch_saved(begins_with_);
  make_initial_state();
}

void SeatedStage::make_initial_state() {
  auto digest = std::make_shared<std::uint64_t>();
  jobs_.run(
      [this, digest]() -> Result<void> {
        auto made = state_->digest();
        if (!made) return std::unexpected(std::move(made).error());
        *digest = *made;
        return {};
      },
      [this, digest] {
        commits_.say_ready(*digest);
        leases_.want();
      });
}

// From the shadow of the stage that this peer has been: nothing is fetched.
void SeatedStage::inherit() {
  auto digest = std::make_shared<std::uint64_t>();
  jobs_.run(
      [this, digest]() -> Result<void> {
        SWARMLINE_TRY(state_->adopt(*heritage_->state_));
        auto made = state_->digest();
        if (!made) return std::unexpected(std::move(made).error());
        *digest = *made;
        return {};
      },
      [this, digest] {
        states_.taken_over();
        begin_at(heritage_->committed());
        gradients_.inherit(heritage_->gradients_);
        heritage_.reset();
        commits_.say_ready(*digest);
        gradients_.announce_held();
        commits_.advance();
      });
}

void SeatedStage::begin_at(Version version) {
  commits_.begin_at(version);
  runner_.begin_at(version);
}

// An averaging is what everybody waits for.
std::size_t SeatedStage::pieces_at_a_time() const {
  if (!serves_early()) return PieceFetch::kPiecesMax;
  return gradients_.averages() ? 0 : PieceFetch::kWindow;
}

// The coordinator gives it an early seat, unless something was committed meanwhile.
void SeatedStage::on_parameters_here(Version version) {
  if (!commits_.following() || !commits_.empty()) return;
  commits_.hold_at(version);
  runner_.begin_at(version);
  wire::Ready ready;
  *ready.mutable_seat() = to_wire(context_.self);
  ready.set_version(version.value);
  ready.set_parameters_alone(true);
  context_.notify_coordinator(make_frame(MessageKind::kReady, ready));
}

// Where the version before is not here, it comes with the next commit.
void SeatedStage::on_state_here(Version version, std::uint64_t digest, StateOrigin origin,
                                bool all_in_use) {
  begin_at(version);
  if (all_in_use) commits_.say_ready(digest);
  if (origin == StateOrigin::kCheckpoint) leases_.want();
  commits_.advance();
}

}  // namespace swarmline
