#include "engine/data/sequence_order.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "tests/store/temp_folder.h"

namespace swarmline {
namespace {

TEST(SequenceOrderTest, EachSequenceOnceAnEpochAndEpochsDiffer) {
  for (const std::uint64_t sequences : {1ULL, 2ULL, 7ULL, 64ULL, 1000ULL}) {
    const SequenceOrder order(sequences, 3);
    std::vector<std::vector<std::uint64_t>> epochs;
    for (std::uint64_t epoch = 0; epoch < 4; ++epoch) {
      std::vector<std::uint64_t> values;
      for (std::uint64_t i = 0; i < sequences; ++i)
        values.push_back(order.at(epoch * sequences + i));
      EXPECT_EQ(std::set(values.begin(), values.end()).size(), sequences);
      EXPECT_LT(std::ranges::max(values), sequences);
      epochs.push_back(std::move(values));
    }
    if (sequences < 64) continue;
    for (std::size_t a = 0; a < epochs.size(); ++a) {
      for (std::size_t b = a + 1; b < epochs.size(); ++b) EXPECT_NE(epochs[a], epochs[b]);
    }
  }
}

TEST(SequenceOrderTest, SeedsDifferAndAreReproducible) {
  std::vector<std::uint64_t> a;
  std::vector<std::uint64_t> b;
  std::vector<std::uint64_t> again;
  for (std::uint64_t i = 0; i < 100; ++i) {
    a.push_back(SequenceOrder(100, 1).at(i));
    b.push_back(SequenceOrder(100, 2).at(i));
    again.push_back(SequenceOrder(100, 1).at(i));
  }
  EXPECT_EQ(a, again);
  EXPECT_NE(a, b);
}

// The order is part of what a run's seed promises: these numbers must never change.
TEST(SequenceOrderTest, GoldenNumbers) {
  const SequenceOrder order(1000, 42);
  std::vector<std::uint64_t> values;
  for (const std::uint64_t i : {0, 1, 2, 999, 1000, 123456}) values.push_back(order.at(i));
  EXPECT_EQ(values, (std::vector<std::uint64_t>{986, 519, 348, 113, 13, 635}));
}

class MicrobatchOrderTest : public testing::Test {
 protected:
  MicrobatchOrderTest() {
    std::string text;
    for (int i = 0; i < 501; ++i) text.push_back(static_cast<char>('a' + i * i % 26));
    DatasetOptions options{.sequence = 5, .seed = 9};
    options.data.files = {folder_.write("a.txt", text)};
    options.data.held_out = 0.1;
    dataset_ = std::make_unique<TokenDataset>(*TokenDataset::open(options));
  }
  MicrobatchOrder order(std::uint64_t eval_max) {
    return {*dataset_, {.batch = kBatch, .seed = 9, .eval_sequences_max = eval_max}};
  }
  static MicrobatchId train(std::uint64_t step, std::uint32_t index) {
    return {{PhaseKind::kTrain, step}, index};
  }
  static MicrobatchId eval(std::uint64_t version, std::uint32_t index) {
    return {{PhaseKind::kEval, version}, index};
  }

  static constexpr BatchSection kBatch{.batch = 12, .microbatch = 4, .sequence = 5};
  TempFolder folder_;
  std::unique_ptr<TokenDataset> dataset_;
};

TEST_F(MicrobatchOrderTest, StepsOfOneEpochUseEveryTrainingSequenceOnce) {
  ASSERT_EQ(dataset_->train_sequences(), 90U);
  const MicrobatchOrder microbatches = order(64);
  EXPECT_EQ(microbatches.microbatches(PhaseKind::kTrain), 3U);
  std::map<std::uint64_t, int> uses;
  for (std::uint64_t step = 0; step < 15; ++step) {  // 180 sequences: two epochs
    for (std::uint32_t index = 0; index < 3; ++index) {
      ASSERT_EQ(microbatches.rows(train(step, index)), 4U);
      for (std::uint32_t row = 0; row < 4; ++row) {
        const std::uint64_t number = microbatches.sequence(train(step, index), row);
        EXPECT_FALSE(dataset_->is_held_out(number));
        ++uses[number];
      }
    }
  }
  EXPECT_EQ(uses.size(), 90U);
  for (const auto& [number, count] : uses) EXPECT_EQ(count, 2) << number;
}

TEST_F(MicrobatchOrderTest, SplittingABatchOtherwiseKeepsItsSequences) {
  BatchSection other = kBatch;
  other.microbatch = 2;
  const MicrobatchOrder a = order(0);
  const MicrobatchOrder b(*dataset_, {.batch = other, .seed = 9});
  EXPECT_EQ(a.sequence(train(7, 1), 3), b.sequence(train(7, 3), 1));
}

// A run whose batch was changed goes on where it was; no sequence is left out or comes twice.
TEST_F(MicrobatchOrderTest, AnotherBatchGoesOnAtItsPosition) {
  const MicrobatchOrder before = order(0);
  BatchSection larger = kBatch;
  larger.batch = 20;
  const MicrobatchOrder after(*dataset_,
                              {.batch = larger, .seed = 9, .from_step = 5, .from_sequence = 60});
  EXPECT_EQ(after.sequence(train(5, 0), 0), before.sequence(train(5, 0), 0));
  EXPECT_EQ(after.sequence(train(6, 0), 0), before.sequence(train(6, 2), 0));  // position 80
}

TEST_F(MicrobatchOrderTest, EvaluationIsTheFirstHeldOutSequencesInOrder) {
  ASSERT_EQ(dataset_->held_out_sequences(), 10U);
  const MicrobatchOrder all = order(64);
  EXPECT_EQ(all.eval_sequences(), 10U);
  EXPECT_EQ(all.microbatches(PhaseKind::kEval), 3U);
  EXPECT_EQ(all.rows(eval(5, 0)), 4U);
  EXPECT_EQ(all.rows(eval(5, 2)), 2U);
  for (std::uint32_t i = 0; i < 10; ++i) {
    EXPECT_EQ(all.sequence(eval(5, i / 4), i % 4), dataset_->held_out(i));
    EXPECT_TRUE(dataset_->is_held_out(all.sequence(eval(99, i / 4), i % 4)));
  }
  EXPECT_EQ(order(8).microbatches(PhaseKind::kEval), 2U);
  EXPECT_EQ(order(3).rows(eval(0, 0)), 3U);
  EXPECT_EQ(order(0).microbatches(PhaseKind::kEval), 0U);
}

TEST_F(MicrobatchOrderTest, ReadFillsRowsInOrder) {
  const MicrobatchOrder microbatches = order(64);
  for (const MicrobatchId& id : {train(3, 2), eval(0, 2)}) {
    const std::uint32_t rows = microbatches.rows(id);
    std::vector<std::int32_t> tokens(rows * 5);
    std::vector<std::int32_t> targets(rows * 5);
    ASSERT_TRUE(microbatches.read(id, tokens, targets));
    for (std::uint32_t row = 0; row < rows; ++row) {
      std::vector<std::int32_t> row_tokens(5);
      std::vector<std::int32_t> row_targets(5);
      ASSERT_TRUE(dataset_->read(microbatches.sequence(id, row), row_tokens, row_targets));
      EXPECT_TRUE(std::equal(row_tokens.begin(), row_tokens.end(), tokens.begin() + row * 5));
      EXPECT_TRUE(std::equal(row_targets.begin(), row_targets.end(), targets.begin() + row * 5));
    }
  }
}

}  // namespace
}  // namespace swarmline
