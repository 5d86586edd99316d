// What the coordinator makes of reports about boundaries.

#include "pipeline/coordinator/steps/boundary_board.h"

#include <cmath>

#include <gtest/gtest.h>

#include "pipeline/protocol/message_kinds.h"

namespace swarmline {
namespace {

RunConfig config_of(const std::string& forward, const std::string& backward) {
  RunConfig config;
  config.pipeline.stages = 3;
  config.pipeline.peers = {1, 1, 1};
  config.codec.forward = forward;
  config.codec.backward = backward;
  return config;
}

constexpr std::uint64_t kElements = 1 << 20;
const std::vector<std::uint32_t> kOneEach = {1, 1, 1};

// One member's report: 10 ms of device time a microbatch.
wire::Reduced report(std::uint32_t stage) {
  wire::Reduced reduced;
  reduced.mutable_seat()->set_stage(stage);
  reduced.set_busy_ns(100'000'000);
  reduced.set_passes(10 * kPassesOfAMicrobatch);
  reduced.mutable_boundary();
  return reduced;
}
void sample(wire::Reduced& reduced, bool backward, const char* codec, double error) {
  wire::CodecSample* sample = reduced.mutable_boundary()->add_samples();
  sample->set_backward(backward);
  sample->set_codec(codec);
  sample->set_squared_error(error * error * 4);
  sample->set_squared_norm(4);
  sample->set_elements(kElements);
  sample->set_codec_ns(100'000);
}
void rate(wire::ArrivalRate* arrivals, double bytes_per_second) {
  arrivals->set_bytes(static_cast<std::uint64_t>(bytes_per_second));
  arrivals->set_ns(1'000'000'000);
}
std::string codec(const BoundaryBoard& board, std::uint32_t boundary, BoundaryBoard::Way way) {
  return to_string(board.view(boundary, way).codec);
}

// Stage 1 sends over boundary 1 forward and over boundary 0 back, and receives the other ways.
TEST(BoundaryBoard, AReportBelongsToTheBoundaryItCrossed) {
  BoundaryBoard board(config_of("h8", "lin8"), kElements);
  wire::Reduced reduced = report(1);
  sample(reduced, false, "h8", 0.006);
  sample(reduced, true, "lin8", 0.007);
  rate(reduced.mutable_boundary()->mutable_forward_arrivals(), 1e6);
  rate(reduced.mutable_boundary()->mutable_backward_arrivals(), 2e6);
  board.on_reduced(reduced);
  EXPECT_TRUE(board.on_commit(kOneEach).empty());
  EXPECT_DOUBLE_EQ(board.view(1, BoundaryBoard::kForward).relative_error, 0.006);
  EXPECT_DOUBLE_EQ(board.view(0, BoundaryBoard::kBackward).relative_error, 0.007);
  EXPECT_EQ(board.view(0, BoundaryBoard::kForward).relative_error, -1);
  EXPECT_DOUBLE_EQ(board.view(0, BoundaryBoard::kForward).bytes_per_second, 1e6);
  EXPECT_DOUBLE_EQ(board.view(1, BoundaryBoard::kBackward).bytes_per_second, 2e6);
  EXPECT_EQ(board.view(1, BoundaryBoard::kForward).bytes_per_second, 0);
}

TEST(BoundaryBoard, AutoChangesAtACommitWhatASlowLinkNeeds) {
  BoundaryBoard board(config_of("auto", "auto"), kElements);
  wire::Reduced sender = report(0), receiver = report(1);
  sample(sender, false, "h8", 0.006);
  sample(sender, false, "h4", 0.09);
  rate(receiver.mutable_boundary()->mutable_forward_arrivals(), 50e6);
  board.on_reduced(sender);
  board.on_reduced(receiver);
  EXPECT_EQ(codec(board, 0, BoundaryBoard::kForward), "none") << "before the commit";
  const auto changes = board.on_commit(kOneEach);
  ASSERT_EQ(changes.size(), 1U);
  EXPECT_EQ(changes[0], "boundary 0 forward: h8 instead of none");
  EXPECT_EQ(codec(board, 0, BoundaryBoard::kForward), "h8");
  EXPECT_EQ(codec(board, 0, BoundaryBoard::kBackward), "none");
  EXPECT_EQ(codec(board, 1, BoundaryBoard::kForward), "none");
  EXPECT_TRUE(board.on_commit(kOneEach).empty()) << "nothing new";

  ASSERT_EQ(board.codecs().size(), 2U);
  EXPECT_EQ(board.codecs()[0].forward, "h8");
  EXPECT_EQ(board.codecs()[0].backward, "none");
  EXPECT_EQ(board.codecs()[1].forward, "none");

  // The link is fast again.
  rate(receiver.mutable_boundary()->mutable_forward_arrivals(), 10e9);
  board.on_reduced(receiver);
  EXPECT_EQ(board.on_commit(kOneEach).size(), 1U);
  EXPECT_EQ(codec(board, 0, BoundaryBoard::kForward), "none");
}

// A bf16 stream is half as many bytes without a codec, which a link that needs 60 MB/s carries.
TEST(BoundaryBoard, AutoKnowsThatABf16StreamIsHalfOfFp32) {
  for (const bool narrow : {false, true}) {
    RunConfig config = config_of("auto", "none");
    if (narrow) config.model.stream = StreamKind::kBF16;
    BoundaryBoard board(config, kElements);
    wire::Reduced sender = report(0), receiver = report(1);
    sample(sender, false, "h8", 0.006);
    rate(receiver.mutable_boundary()->mutable_forward_arrivals(), 300e6);
    board.on_reduced(sender);
    board.on_reduced(receiver);
    board.on_commit(kOneEach);
    EXPECT_EQ(codec(board, 0, BoundaryBoard::kForward), narrow ? "none" : "h8");
  }
}

TEST(BoundaryBoard, WhatTheConfigNamesStays) {
  BoundaryBoard board(config_of("bf16", "auto"), kElements);
  wire::Reduced sender = report(0), receiver = report(1);
  sample(sender, false, "h8", 0.006);
  rate(receiver.mutable_boundary()->mutable_forward_arrivals(), 1e6);
  board.on_reduced(sender);
  board.on_reduced(receiver);
  EXPECT_TRUE(board.on_commit(kOneEach).empty());
  EXPECT_EQ(codec(board, 0, BoundaryBoard::kForward), "bf16");
}

TEST(BoundaryBoard, NumbersThatCannotBeAreLeftOut) {
  BoundaryBoard board(config_of("auto", "auto"), kElements);
  wire::Reduced reduced = report(0);
  sample(reduced, false, "zstd", 0.001);
  sample(reduced, true, "h8", 0.001);  // stage 0 sends nothing back
  sample(reduced, false, "lin8", 0.001);
  reduced.mutable_boundary()->mutable_samples(2)->set_squared_error(-1);
  sample(reduced, false, "h8", std::nan(""));
  sample(reduced, false, "bf16", 0.001);
  reduced.mutable_boundary()->mutable_samples(4)->set_elements(0);
  board.on_reduced(reduced);
  wire::Reduced nowhere = report(70'000);
  board.on_reduced(nowhere);
  wire::Reduced slow = report(1);
  rate(slow.mutable_boundary()->mutable_forward_arrivals(), 1e6);
  board.on_reduced(slow);
  EXPECT_TRUE(board.on_commit(kOneEach).empty());
}

TEST(BoundaryBoard, AnotherCoordinatorGoesOnWithTheSameCodecs) {
  BoundaryBoard board(config_of("auto", "h8"), kElements);
  EXPECT_EQ(board.to_text(), "none h8 none h8");
  EXPECT_TRUE(board.restore("lin8 h8 none h8"));
  EXPECT_EQ(codec(board, 0, BoundaryBoard::kForward), "lin8/256");
  EXPECT_EQ(codec(board, 0, BoundaryBoard::kBackward), "h8");
  EXPECT_FALSE(board.restore("lin8 h8 none"));
  EXPECT_FALSE(board.restore("lin8 h8 none zstd"));
  EXPECT_FALSE(board.restore("topk h8 none h8"));
  EXPECT_EQ(board.to_text(), "lin8 h8 none h8");
}

}  // namespace
}  // namespace swarmline
