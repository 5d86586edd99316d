// What inputs of the corpus reach at peers that sum on islands.
#include "tests/harness/mark_expected.h"
#include "tests/pipeline/corpus_input.h"

namespace swarmline {
namespace {

TEST(StagePeerCorpus, HasIslandsThatSumPastLinks) {
  const MarkExpected averaged("island_rounds.averaged");
  replay("corpus_stage_peer/islands_that_nobody_disturbs");
}

TEST(StagePeerCorpus, HasAnAverageThatIsEncodedOnItsDevice) {
  const MarkExpected averaged("island_rounds.averaged");
  const MarkExpected encoded("device_rounds.begun");
  replay("corpus_stage_peer/islands_of_one_card_and_a_codec");
}

TEST(StagePeerCorpus, HasAveragesWithoutIslandsThatDevicesEncode) {
  for (const char* input :
       {"averages_that_devices_encode", "averages_that_devices_encode_one_step_late"}) {
    SCOPED_TRACE(input);
    const MarkExpected encoded("device_rounds.begun");
    replay(std::string("corpus_stage_peer/") + input);
  }
}

TEST(StagePeerCorpus, HasADeviceWithoutRoom) {
  const MarkExpected failed("commit_round.fabric_failed");
  replay("corpus_stage_peer/islands_without_room_on_the_device");
}

TEST(StagePeerCorpus, HasWordsThatAreLate) {
  const MarkExpected late("island_rounds.word_too_late");
  replay("corpus_stage_peer/a_word_of_a_meeting_that_is_over");
}

TEST(StagePeerCorpus, HasWordsThatAreEarly) {
  const MarkExpected early("island_rounds.word_waits");
  replay("corpus_stage_peer/a_word_of_the_next_meeting");
}

TEST(StagePeerCorpus, HasWordsFromOutside) {
  const MarkExpected outside("island_rounds.word_from_outside");
  replay("corpus_stage_peer/a_word_from_outside_the_island");
}

TEST(StagePeerCorpus, HasAnAverageByWhoDoesNotSpeak) {
  const MarkExpected wrong("island_rounds.not_who_speaks");
  replay("corpus_stage_peer/an_average_by_who_does_not_speak");
}

TEST(StagePeerCorpus, HasFabricsThatFail) {
  for (const char* input : {"a_fabric_stalls", "an_exchange_fails"}) {
    SCOPED_TRACE(input);
    const MarkExpected failed("island_rounds.failed");
    replay(std::string("corpus_stage_peer/") + input);
  }
}

TEST(StagePeerCorpus, HasAnIslandThatLosesAMember) {
  const MarkExpected again("commit_round.averaged_again");
  replay("corpus_stage_peer/a_member_is_lost_as_its_island_sums");
}

TEST(StagePeerCorpus, HasSealsOfIslandsThatSum) {
  for (const char* input : {"seals_that_are_true", "seals_of_an_island_that_is_all"}) {
    SCOPED_TRACE(input);
    const MarkExpected averaged("island_rounds.averaged");
    replay(std::string("corpus_stage_peer/") + input);
  }
}

TEST(StagePeerCorpus, HasASealOfAMeetingThatIsOver) {
  const MarkExpected left("island_rounds.no_such_fabric");
  replay("corpus_stage_peer/a_seal_of_a_meeting_that_is_over");
}

// What a fabric reads of the sums stays as it was until it is through, or its group is gone.
TEST(StagePeerCorpus, HasASealOfOtherSumsThanThoseThatMove) {
  const MarkExpected other("phases.seal_mismatched");
  replay("corpus_stage_peer/a_seal_of_other_sums_than_those_that_move");
}

TEST(StagePeerCorpus, HasSealsThatMembersCannotSumBy) {
  const MarkExpected failed("island_rounds.failed");
  replay("corpus_stage_peer/a_fabric_breaks_under_a_seal");
}

}  // namespace
}  // namespace swarmline
