// What "auto" picks, from numbers.

#include "compression/codec_choice.h"

#include <cmath>

#include <gtest/gtest.h>

namespace swarmline {
namespace {

CodecSpec codec(const char* name) {
  return *parse_codec(name);
}

// Errors as they are on tensors of a Transformer.
std::vector<CodecTrial> trials(double seconds_per_element = 1e-10) {
  const auto trial = [&](const char* name, double error) {
    return CodecTrial{codec(name), error, seconds_per_element};
  };
  return {trial("bf16", 0.0017), trial("lin8", 0.0075), trial("h8", 0.006),
          trial("fp8", 0.026),   trial("int4", 0.097),  trial("h4", 0.09)};
}

// A million elements, 10 ms of computing.
BoundaryLoad load(double bytes_per_second) {
  return {.elements = 1 << 20, .device_seconds = 0.01, .bytes_per_second = bytes_per_second};
}

TEST(CodecChooser, AFastLinkKeepsNone) {
  const CodecChooser chooser(0.01);
  EXPECT_EQ(chooser.choose({}, load(0), trials()), CodecSpec{});
  EXPECT_EQ(chooser.choose({}, load(10e9), trials()), CodecSpec{});
  EXPECT_EQ(chooser.choose({}, load(0.45e9), trials()), CodecSpec{}) << "9.3 ms a message";
}

TEST(CodecChooser, AsMuchAsTheLinkNeedsAndNoMore) {
  const CodecChooser chooser(0.01);
  EXPECT_EQ(chooser.choose({}, load(0.3e9), trials()), codec("bf16")) << "14 ms against 7 ms";
  EXPECT_EQ(chooser.choose({}, load(0.15e9), trials()), codec("h8")) << "bf16 would take 14 ms";
}

TEST(CodecChooser, OnAVerySlowLinkTheFewestBytesWithinTheBudget) {
  EXPECT_EQ(CodecChooser(0.01).choose({}, load(1e6), trials()), codec("lin8"))
      << "4.5 % fewer bytes than h8";
  EXPECT_EQ(CodecChooser(0.007).choose({}, load(1e6), trials()), codec("h8"));
  EXPECT_EQ(CodecChooser(0.1).choose({}, load(1e6), trials()), codec("h4")) << "as short as int4";
  EXPECT_EQ(CodecChooser(0.001).choose({}, load(1e6), trials()), CodecSpec{});
}

TEST(CodecChooser, WhatIsNotFiniteNeverQualifies) {
  std::vector<CodecTrial> tried = trials();
  for (CodecTrial& trial : tried) trial.relative_error = std::nan("");
  EXPECT_EQ(CodecChooser(0.5).choose({}, load(1e6), tried), CodecSpec{});
}

TEST(CodecChooser, ASlowCodecIsNoGain) {
  EXPECT_EQ(CodecChooser(0.01).choose({}, load(0.3e9), trials(1e-8)), CodecSpec{})
      << "10 ms of encoding more than the 4 ms saved";
}

TEST(CodecChooser, SmallDifferencesChangeNothing) {
  const CodecChooser chooser(0.01);
  // none takes 10.5 ms on the link, the device 10.1: not worth a change, nor a change back.
  EXPECT_EQ(chooser.choose({}, load(0.4e9), trials()), CodecSpec{});
  EXPECT_EQ(chooser.choose(codec("bf16"), load(0.4e9), trials()), codec("bf16"));
  EXPECT_EQ(chooser.choose(codec("h8"), load(1e6), trials()), codec("h8"));
  EXPECT_EQ(chooser.choose(codec("h8"), load(0), trials()), CodecSpec{}) << "more exact, as fast";
}

TEST(CodecChooser, APresentCodecBeyondTheBudgetIsLeft) {
  EXPECT_EQ(CodecChooser(0.01).choose(codec("h4"), load(1e6), trials()), codec("lin8"));
}

TEST(CodecChooser, LinksAndDevicesShareTheLoad) {
  BoundaryLoad shared = load(0.15e9);
  shared.links = 4;
  EXPECT_EQ(CodecChooser(0.01).choose({}, shared, trials()), CodecSpec{});
  EXPECT_DOUBLE_EQ(CodecChooser::pace({}, {.elements = 0, .device_seconds = 3, .devices = 0}), 3);
}

}  // namespace
}  // namespace swarmline
