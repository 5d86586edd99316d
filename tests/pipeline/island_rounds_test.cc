// Words of fabrics that come before the seal of their meeting: what of them is kept, for how long,
// and whom they cost what.
#include "pipeline/stage/gradients/island_rounds.h"

#include <string>

#include <gtest/gtest.h>

#include "base/byte_ops.h"
#include "pipeline/stage/gradients/gradient_exchange.h"
#include "sim/cluster/resident_model.h"
#include "tests/harness/mark_expected.h"
#include "tests/pipeline/stage_bench.h"

namespace swarmline {
namespace {

constexpr FabricKind kKind = FabricKind::kIpc;

// Moves nothing, and writes down what it hears.
class ListeningFabric final : public Fabric {
 public:
  bool offers(FabricKind kind) const override { return kind == kKind; }
  std::unique_ptr<FabricGroup> open(FabricKind, std::uint32_t, std::uint32_t, SendWord) override {
    return std::make_unique<Group>(heard);
  }

  std::vector<std::string> heard;  // from rank 1

 private:
  class Group final : public FabricGroup {
   public:
    explicit Group(std::vector<std::string>& heard) : heard_(heard) {}
    void exchange(std::vector<FabricTransfer>, Done) override {}
    Result<void> on_word(std::uint32_t from, BytesView word) override {
      EXPECT_EQ(from, 1U);
      heard_.emplace_back(reinterpret_cast<const char*>(word.data()), word.size());
      return {};
    }

   private:
    std::vector<std::string>& heard_;
  };
};

struct Meeting {
  std::uint64_t step = 0;
  std::uint64_t number = 1;
  std::uint32_t group = 0;
};

Frame word(const Meeting& meeting, const std::string& bytes) {
  wire::FabricWord word;
  word.mutable_phase()->set_step(meeting.step);
  word.set_group(meeting.group);
  word.set_meeting(meeting.number);
  return make_frame(MessageKind::kFabricWord, word,
                    {SharedBytes(Buffer::copy_of(as_bytes(bytes)))});
}

Seat seat(std::uint32_t peer, std::uint32_t incarnation = 1) {
  return {PeerId{peer}, StageId{0}, Incarnation{incarnation}};
}

class IslandRoundsTest : public testing::Test {
 protected:
  IslandRoundsTest() { state_.begin(0); }

  static constexpr Meeting kNever = {.step = 1'000'000, .number = ~0ULL};

  // As many words as one may have.
  void fill(const Seat& from, const Meeting& meeting = kNever) {
    for (std::size_t i = 0; i < IslandRounds::kEarlyWordsOfOneMax; ++i)
      ASSERT_TRUE(rounds_.on_word(from, word(meeting, "waits"))) << to_string(from) << ", " << i;
  }
  bool is_full(const Seat& from) {
    const Result<void> taken = rounds_.on_word(from, word(kNever, "one more"));
    if (!taken) EXPECT_EQ(taken.error().code, ErrorCode::kCorrupt);
    return !taken;
  }
  void seal(const Meeting& meeting, const Seat& mate) {
    rounds_.begin({{PhaseKind::kTrain, meeting.step}, GroupId{meeting.group}, RoundAttempt{0}},
                  {.members = {bench_.self(), mate},
                   .own = 0,
                   .kind = kKind,
                   .meeting = meeting.number,
                   .is_all = true},
                  {.first = 0, .elements = 8, .dtype = DType::kF32}, meeting.step);
  }

  StageBench bench_{1, 0, 0};
  ListeningFabric fabric_;
  std::unique_ptr<StageModel> model_ =
      *make_resident_model(bench_.spec(), bench_.context().stage, {});
  ParameterState state_{*model_, bench_.config()};
  StageContext context_{.runtime = bench_.context().runtime,
                        .queue = bench_.context().queue,
                        .model = *model_,
                        .state = state_,
                        .links = bench_.context().links,
                        .config = bench_.config(),
                        .spec = bench_.spec(),
                        .stage = bench_.context().stage,
                        .self = bench_.self(),
                        .era = Era{0},
                        .codecs = PhaseCodecs(bench_.config()),
                        .notify_coordinator = [](const Frame&) {},
                        .call_coordinator = {},
                        .fabric = &fabric_,
                        .fail = [](const Error& error) { FAIL() << error.what; }};
  StageJobs jobs_{context_};
  IslandRounds rounds_{
      context_,
      jobs_,
      {.summed = [](const RoundKey&) {},
       .averaged = [](const RoundKey&) {},
       .failed = [](const RoundKey&, const Error& error) { FAIL() << error.what; }}};
};

TEST_F(IslandRoundsTest, WhatOthersSayInVainCostsNobodyElseAWord) {
  for (std::uint32_t liar = 10; liar < 26; ++liar) fill(seat(liar));
  ASSERT_TRUE(rounds_.on_word(bench_.other(), word({}, "an id")));
  ASSERT_TRUE(rounds_.on_word(bench_.other(), word({}, "a handle")));
  seal({}, bench_.other());
  EXPECT_EQ(fabric_.heard, (std::vector<std::string>{"an id", "a handle"}));
}

TEST_F(IslandRoundsTest, WhoSaysTooMuchIsRefusedAlone) {
  fill(seat(10));
  EXPECT_TRUE(is_full(seat(10)));
  EXPECT_FALSE(is_full(seat(11)));
}

TEST_F(IslandRoundsTest, WordsGoWithTheirSeat) {
  fill(seat(10, 1));
  fill(seat(10, 2));
  fill(seat(10, 3));
  fill(seat(11));
  rounds_.on_peer_lost(seat(10, 2));
  EXPECT_FALSE(is_full(seat(10, 1)));
  EXPECT_FALSE(is_full(seat(10, 2)));
  EXPECT_TRUE(is_full(seat(10, 3)));
  EXPECT_TRUE(is_full(seat(11)));
}

TEST_F(IslandRoundsTest, WordsGoWithTheirStepAndLaterOnesOfItAreNotKept) {
  const MarkExpected late("island_rounds.word_too_late");
  fill(seat(10), {.step = 4});
  fill(seat(11), {.step = 5});
  rounds_.retire(4);
  fill(seat(10), {.step = 4});
  EXPECT_FALSE(is_full(seat(10)));
  EXPECT_TRUE(is_full(seat(11)));
}

TEST_F(IslandRoundsTest, WordsGoWithANewerMeetingOfTheirGroup) {
  fill(seat(10), {.number = 1});
  fill(seat(11), {.number = 1, .group = 1});
  seal({.number = 2}, bench_.other());
  EXPECT_FALSE(is_full(seat(10)));
  EXPECT_TRUE(is_full(seat(11)));
}

TEST_F(IslandRoundsTest, WordsOfALaterMeetingWaitForIt) {
  ASSERT_TRUE(rounds_.on_word(bench_.other(), word({.step = 1, .number = 2}, "the next id")));
  seal({}, bench_.other());
  EXPECT_TRUE(fabric_.heard.empty());
  rounds_.retire(0);
  seal({.step = 1, .number = 2}, bench_.other());
  EXPECT_EQ(fabric_.heard, std::vector<std::string>{"the next id"});
}

// More seats than average together: some are over, and nobody has said so yet.
TEST_F(IslandRoundsTest, WhereThereIsNoRoomForOneMoreSeatItsWordIsDropped) {
  const MarkExpected dropped("island_rounds.no_room_for_a_word");
  for (std::uint32_t i = 0; i < IslandRounds::kEarlySeatsMax; ++i)
    ASSERT_TRUE(rounds_.on_word(seat(100 + i), word({}, "waits")));
  ASSERT_TRUE(rounds_.on_word(bench_.other(), word({}, "an id")));
  seal({}, bench_.other());
  EXPECT_TRUE(fabric_.heard.empty());
}

TEST_F(IslandRoundsTest, AWordLargerThanAnyIsIsNotKept) {
  Frame frame = word({}, std::string(kFabricWordBytesMax + 1, 'x'));
  EXPECT_FALSE(rounds_.on_word(bench_.other(), frame));
  frame = word({}, "an id");
  frame.meta += std::string("\x7A\xFF\x3F", 3) + std::string(0x1FFF, 'x');  // a field of no name
  EXPECT_FALSE(rounds_.on_word(bench_.other(), frame));
}

// What the exchange tells it.
TEST(IslandRounds, CommitsAndLossesEndWhatWaits) {
  StageBench bench(1, 0, 0);
  GradientExchange gradients(bench.context(), bench.jobs(),
                             {.account = [](const Phase&, wire::Reduced&) {}, .on_here = [] {}});
  const auto fill = [&](std::uint64_t step) {
    for (std::size_t i = 0; i < IslandRounds::kEarlyWordsOfOneMax; ++i)
      ASSERT_TRUE(gradients.on_fabric_word(seat(10), word({.step = step}, "waits"))) << i;
  };
  fill(0);
  gradients.on_commit(0, false);
  fill(1);
  gradients.begin_at(Version{2});
  fill(2);
  ASSERT_FALSE(gradients.on_fabric_word(seat(10), word({.step = 2}, "one more")));
  gradients.on_peer_lost(seat(10));
  fill(2);
}

}  // namespace
}  // namespace swarmline
