// What inputs of the corpus reach at a coordinator whose stage sums on islands.
#include "tests/harness/mark_expected.h"
#include "tests/pipeline/corpus_input.h"

namespace swarmline {
namespace {

TEST(CoordinatorCorpus, HasIslandsThatMeet) {
  const MarkExpected formed("islands.formed");
  const MarkExpected met("island_fabrics.meet_anew");
  const MarkExpected averaged("island_rounds.averaged");
  replay("corpus_coordinator/islands_that_nobody_disturbs");
}

TEST(CoordinatorCorpus, HasAMemberWhoseFabricFails) {
  const MarkExpected failed("commit_round.fabric_failed");
  replay("corpus_coordinator/a_member_says_that_its_fabric_failed");
}

TEST(CoordinatorCorpus, HasAFabricThatIsGivenUp) {
  const MarkExpected given_up("island_fabrics.given_up");
  replay("corpus_coordinator/a_member_says_so_again_and_again");
}

}  // namespace
}  // namespace swarmline
