// A stage's state goes into named tensors and comes back byte for byte, also under another cut.
#include "engine/optimizer/saved_state.h"

#include <map>
#include <numeric>

#include <gtest/gtest.h>

#include "base/byte_ops.h"
#include "tests/optimizer/layouts.h"

namespace swarmline {
namespace {

using testing::mixed_layout;

RunConfig config_of(MomentsKind state, std::uint32_t delay) {
  RunConfig config;
  config.optimizer.state = state;
  config.pipeline.delay = delay;
  return config;
}

using Named = std::map<std::string, Buffer>;

Named split(const SavedState& saved, BytesView bytes) {
  Named named;
  for (const SavedTensor& tensor : saved.tensors)
    named[tensor.name] = Buffer::copy_of(bytes.subspan(tensor.at, tensor.bytes));
  return named;
}

FindTensor find_in(const Named& named) {
  return [&named](const std::string& name) -> Result<BytesView> {
    const auto found = named.find(name);
    if (found == named.end()) return fail(ErrorCode::kNotFound, name);
    return found->second.bytes();
  };
}

class SavedStateTest : public ::testing::TestWithParam<std::tuple<MomentsKind, std::uint32_t>> {
 protected:
  const RunConfig config_ = config_of(std::get<0>(GetParam()), std::get<1>(GetParam()));
  const ParameterLayout layout_ = mixed_layout();
  const SavedState saved_ = saved_state(config_, layout_, true);

  // Numbers in every tensor, zero between them.
  Buffer some_state() const {
    Buffer state = Buffer::zeroed(saved_.bytes);
    unsigned next = 1;
    for (const SavedTensor& tensor : saved_.tensors)
      for (std::uint64_t i = 0; i < tensor.bytes; ++i)
        state.data()[tensor.at + i] = static_cast<std::byte>(next++ * 7919 >> 3);
    return state;
  }
};

TEST_P(SavedStateTest, PartsHaveEveryTensorOnceInItsOrder) {
  for (const std::uint32_t parts : {1U, 2U, 3U, 64U}) {
    const SavedTensor* next = saved_.tensors.data();
    std::uint64_t end = 0;
    for (std::uint32_t number = 0; number < parts; ++number) {
      const SavedPart part = part_of(saved_, number, parts);
      if (part.tensors.empty()) {
        EXPECT_EQ(part.bytes, 0U);
        continue;
      }
      EXPECT_EQ(part.tensors.data(), next);
      EXPECT_GE(part.first, end);
      EXPECT_EQ(part.first, part.tensors.front().at);
      end = part.first + part.bytes;
      EXPECT_EQ(end, part.tensors.back().at + part.tensors.back().bytes);
      next += part.tensors.size();
    }
    EXPECT_EQ(next, saved_.tensors.data() + saved_.tensors.size()) << parts;
    EXPECT_LE(end, saved_.bytes);
  }
}

TEST_P(SavedStateTest, TensorsDoNotOverlapAndEndWithinTheState) {
  std::uint64_t end = 0;
  std::size_t parameters = 0;
  for (const SavedTensor& tensor : saved_.tensors) {
    EXPECT_GE(tensor.at, end) << tensor.name;
    end = tensor.at + tensor.bytes;
    const auto elements = std::accumulate(tensor.shape.begin(), tensor.shape.end(), std::int64_t{1},
                                          std::multiplies<>());
    EXPECT_EQ(static_cast<std::uint64_t>(elements) * size_bytes(tensor.dtype), tensor.bytes)
        << tensor.name;
    parameters +=
        !tensor.name.starts_with(kOptimizerPrefix) && !tensor.name.starts_with(kPreviousPrefix);
  }
  EXPECT_LE(end, saved_.bytes);
  EXPECT_EQ(parameters, layout_.slots.size());
  const std::uint64_t moments = make_state_layout(config_.optimizer, layout_).bytes();
  EXPECT_EQ(saved_.bytes, layout_.bytes() * (1 + config_.pipeline.delay) + moments);
}

TEST_P(SavedStateTest, PiecesAreTheStateByteForByte) {
  const Buffer state = some_state();
  const Named named = split(saved_, state.bytes());
  ASSERT_TRUE(check_saved(saved_, find_in(named)));
  for (const std::uint64_t piece : {std::uint64_t{1000}, std::uint64_t{4096}, saved_.bytes}) {
    Buffer got(saved_.bytes);
    for (std::uint64_t first = 0; first < got.size(); first += piece) {
      const std::uint64_t size = std::min<std::uint64_t>(piece, got.size() - first);
      ASSERT_TRUE(read_saved(saved_, find_in(named), first, got.bytes().subspan(first, size)));
    }
    EXPECT_TRUE(same_bytes(got.bytes(), state.bytes())) << piece;
  }
}

TEST_P(SavedStateTest, SaysWhichTensorIsMissingOrOfAnotherSize) {
  const Buffer state = some_state();
  Named named = split(saved_, state.bytes());
  const std::string last = saved_.tensors.back().name;
  named[last] = Buffer(3);
  auto checked = check_saved(saved_, find_in(named));
  ASSERT_FALSE(checked);
  EXPECT_EQ(checked.error().code, ErrorCode::kIncompatible);
  EXPECT_NE(checked.error().what.find(last), std::string::npos);
  named.erase(last);
  EXPECT_EQ(check_saved(saved_, find_in(named)).error().code, ErrorCode::kNotFound);
}

INSTANTIATE_TEST_SUITE_P(All, SavedStateTest,
                         ::testing::Combine(::testing::Values(MomentsKind::kF32,
                                                              MomentsKind::k8Bit),
                                            ::testing::Values(0U, 1U)));

TEST(SavedState, ParametersAloneAreTheArena) {
  const ParameterLayout layout = mixed_layout();
  const SavedState saved = saved_state(config_of(MomentsKind::k8Bit, 1), layout, false);
  EXPECT_EQ(saved.bytes, layout.bytes());
  EXPECT_EQ(saved.tensors.size(), layout.slots.size());
}

}  // namespace
}  // namespace swarmline
