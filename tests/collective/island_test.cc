// Members on one host sum first, one of them speaks for the island.
#include "engine/collective/island.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/byte_ops.h"
#include "base/rng.h"
#include "engine/collective/slices.h"
#include "tests/collective/chunk_bag.h"

namespace swarmline {
namespace {

constexpr CodecSpec kNone{};
constexpr CodecSpec kBf16{.kind = CodecKind::kBf16};
constexpr CodecSpec kLin8{.kind = CodecKind::kLin8, .block = 64};

using Speakers = std::vector<std::uint32_t>;

struct Case {
  Speakers speakers;
  std::uint64_t elements = 0;
  DType dtype = DType::kF32;
  CodecSpec scatter = kNone;
  CodecSpec gather = kNone;
  std::size_t chunk_bytes = 1024;
  std::uint64_t seed = 1;
  bool feedback = false;
};

// All members of a round in one process, and the network between them as a bag of messages.
class Group {
 public:
  explicit Group(const Case& c) : case_(c), rng_(c.seed) {
    const auto ranks = static_cast<std::uint32_t>(c.speakers.size());
    for (std::uint32_t r = 0; r < ranks; ++r) {
      inputs_.push_back(random_values(c.elements, c.dtype, rng_));
      sealed_.push_back(Buffer::copy_of(inputs_[r].bytes()));
      outputs_.emplace_back(inputs_[r].size());
      residuals_.push_back(Buffer::zeroed(inputs_[r].size()));
      next_residuals_.emplace_back(inputs_[r].size());
    }
    speaking_ = IslandRanks{.rank = 0, .speakers = c.speakers}.speaking();
    std::vector<double> weights;
    for (std::size_t i = 0; i < speaking_.size(); ++i)
      weights.push_back(rng_.below(5) == 0 ? 0 : rng_.uniform());
    weights[rng_.below(weights.size())] = 0.4;
    bounds_ = slice_bounds(c.elements, weights, 1 + rng_.below(64));
    begin();
  }

  void begin() {
    members_.clear();
    for (std::uint32_t r = 0; r < case_.speakers.size(); ++r)
      members_.push_back(make_island_all_reduce({.rank = r, .speakers = case_.speakers},
                                                between(case_.speakers[r]), inputs_[r].bytes(),
                                                outputs_[r].bytes(), residual(r)));
  }
  // Another round: new values, the residuals of the last one.
  void next_round() {
    std::swap(residuals_, next_residuals_);
    for (std::uint32_t r = 0; r < inputs_.size(); ++r) {
      inputs_[r] = random_values(case_.elements, case_.dtype, rng_);
      sealed_[r] = Buffer::copy_of(inputs_[r].bytes());
    }
    begin();
  }

  ButterflySpec between(std::uint32_t speaker) const {
    const auto own = std::ranges::find(speaking_, speaker);
    return {.rank = static_cast<std::uint32_t>(own - speaking_.begin()),
            .ranks = static_cast<std::uint32_t>(speaking_.size()),
            .elements = case_.elements,
            .dtype = case_.dtype,
            .bounds = bounds_,
            .scatter = std::vector<CodecSpec>(speaking_.size(), case_.scatter),
            .gather = case_.gather,
            .key = {},
            .chunk_bytes = case_.chunk_bytes};
  }
  Residual residual(std::uint32_t r) {
    if (!case_.feedback) return {};
    return {.current = residuals_[r].bytes(), .next = next_residuals_[r].bytes()};
  }

  // `deliveries`: no more than so many, and then nobody of `lost` says or hears anything.
  void run(Order order, std::uint64_t deliveries = ~0ULL,
           const std::set<std::uint32_t>& lost = {}) {
    for (std::uint32_t r = 0; r < members_.size(); ++r)
      while (members_[r]->send_more([&](ChunkSend send) { bag_.post(r, std::move(send)); })) {
      }
    while (!bag_.empty()) {
      const ChunkBag::Message message = bag_.take(order, rng_);
      if (deliveries > 0)
        --deliveries;
      else if (lost.contains(message.from) || lost.contains(message.send.to)) {
        ++dropped_;
        continue;
      }
      deliver(message);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }

  bool all_done() const {
    return std::ranges::all_of(members_, [](const auto& member) { return member->done(); });
  }
  void expect_same_bits() const {
    for (std::uint32_t r = 0; r < members_.size(); ++r) {
      EXPECT_TRUE(members_[r]->done()) << "rank " << r;
      EXPECT_TRUE(same_bytes(outputs_[r].bytes(), outputs_[0].bytes())) << "rank " << r;
      EXPECT_TRUE(same_bytes(inputs_[r].bytes(), sealed_[r].bytes())) << "input written";
      EXPECT_EQ(members_[r]->progress().chunks_waiting, 0U);
    }
  }

  // Islands summed by a loop, and a butterfly of these sums.
  template <typename T>
  std::vector<T> expected() const {
    std::vector<Buffer> sums, outputs;
    std::vector<std::unique_ptr<ButterflyAllReduce>> reduces;
    for (const std::uint32_t speaker : speaking_) {
      Buffer& sum = sums.emplace_back(Buffer::copy_of(inputs_[speaker].bytes()));
      for (std::uint32_t r = speaker + 1; r < inputs_.size(); ++r)
        if (case_.speakers[r] == speaker)
          for (std::size_t i = 0; i < case_.elements; ++i) sum.as<T>()[i] += inputs_[r].as<T>()[i];
      outputs.emplace_back(sum.size());
    }
    ChunkBag bag;
    for (std::uint32_t i = 0; i < sums.size(); ++i) {
      reduces.push_back(std::make_unique<ButterflyAllReduce>(between(speaking_[i]), sums[i].bytes(),
                                                             outputs[i].bytes()));
      while (reduces[i]->send_more([&](ChunkSend send) { bag.post(i, std::move(send)); })) {
      }
    }
    Rng in_order(0);
    while (!bag.empty()) {
      const auto [from, send] = bag.take(Order::kInOrder, in_order);
      bag.post(send.to, *reduces[send.to]->on_chunk(from, send.part, send.chunk, send.whole()));
    }
    const auto out = outputs[0].as<T>();
    return {out.begin(), out.end()};
  }

  template <typename T>
  std::span<const T> output(std::uint32_t rank) const {
    return outputs_[rank].as<T>();
  }
  std::span<const float> input(std::uint32_t rank) const { return inputs_[rank].as<float>(); }
  std::span<const float> next_residual(std::uint32_t rank) const {
    return next_residuals_[rank].as<float>();
  }
  const AllReduce& member(std::uint32_t rank) const { return *members_[rank]; }
  std::uint64_t delivered() const { return delivered_; }
  std::uint64_t dropped() const { return dropped_; }
  // Wire bytes between members that do not have the same speaker.
  std::uint64_t bytes_between() const { return bytes_between_; }

 private:
  void deliver(const ChunkBag::Message& message) {
    ++delivered_;
    const ChunkSend& send = message.send;
    AllReduce& to = *members_[send.to];
    ASSERT_TRUE(to.deals_with(message.from)) << message.from << " to " << send.to;
    if (case_.speakers[message.from] != case_.speakers[send.to]) bytes_between_ += send.bytes();
    for (int copy = 0; copy < 1 + (rng_.below(4) == 0); ++copy) {
      EXPECT_EQ(to.has_taken(message.from, send.part, send.chunk), copy == 1);
      auto sends = to.on_chunk(message.from, send.part, send.chunk, send.whole());
      ASSERT_TRUE(sends) << sends.error().what;
      if (copy == 1) ASSERT_TRUE(sends->empty()) << "a duplicate was taken";
      bag_.post(send.to, std::move(*sends));
    }
    const std::size_t mates = std::ranges::count(case_.speakers, send.to);
    ASSERT_LE(to.progress().chunks_waiting,
              std::uint64_t{
                  ButterflyAllReduce::window_chunks(static_cast<std::uint32_t>(speaking_.size()))} *
                      (speaking_.size() - 1) +
                  (mates > 1 ? kIslandWindowChunks * (mates - 1) : 0));
  }

  Case case_;
  Rng rng_;
  std::vector<std::uint32_t> speaking_;
  std::vector<std::uint64_t> bounds_;
  std::vector<Buffer> inputs_, sealed_, outputs_, residuals_, next_residuals_;
  std::vector<std::unique_ptr<AllReduce>> members_;
  ChunkBag bag_;
  std::uint64_t delivered_ = 0, dropped_ = 0, bytes_between_ = 0;
};

// At least two islands; of each member one that began before, or a new one.
Speakers random_islands(std::uint32_t members, Rng& rng) {
  Speakers speakers;
  for (std::uint32_t r = 0; r < members; ++r) {
    const auto own = static_cast<std::uint32_t>(rng.below(r + 1));
    speakers.push_back(r == 1 || rng.below(3) == 0 ? r : speakers.empty() ? 0 : speakers[own % r]);
  }
  return speakers;
}

template <typename T>
void expect_expected_sums(const Case& c, Order order) {
  SCOPED_TRACE(::testing::Message() << ::testing::PrintToString(c.speakers) << ", " << c.elements
                                    << " elements, scatter " << to_string(c.scatter) << ", gather "
                                    << to_string(c.gather) << ", seed " << c.seed);
  Group group(c);
  group.run(order);
  group.expect_same_bits();
  EXPECT_TRUE(std::ranges::equal(group.output<T>(0), group.expected<T>()));
}

TEST(IslandTest, RandomIslandsOfAnySizeInAnyOrder) {
  Rng rng(17);
  for (int round = 0; round < 40; ++round) {
    Case c{.speakers = random_islands(2 + static_cast<std::uint32_t>(rng.below(9)), rng),
           .elements = rng.below(2) == 0 ? rng.below(50) : rng.below(30'000),
           .seed = 1000 + static_cast<std::uint64_t>(round)};
    const CodecSpec codecs[] = {kNone, kBf16, kLin8};
    c.scatter = codecs[rng.below(3)];
    c.gather = codecs[rng.below(3)];
    for (const Order order : {Order::kInOrder, Order::kLast, Order::kRandom}) {
      expect_expected_sums<float>(c, order);
      Case wide = c;
      wide.dtype = DType::kF64;
      expect_expected_sums<double>(wide, order);
    }
  }
}

// Of which sums pass the caches.
TEST(IslandTest, AMillionElements) {
  for (const CodecSpec& codec : {kNone, kBf16})
    expect_expected_sums<float>({.speakers = {0, 1, 0, 1, 1},
                                 .elements = 1'100'003,
                                 .scatter = codec,
                                 .gather = codec,
                                 .chunk_bytes = 64 * 1024},
                                Order::kRandom);
}

// Nobody waits for what can't be sent.
TEST(IslandTest, MoreIslandsThanTheFirstWindowHasChunks) {
  Speakers speakers;
  for (std::uint32_t r = 0; r < 100; ++r) speakers.push_back(r / 2 * 2);
  ASSERT_GT(speakers.size() / 2, kIslandFirstChunks);
  for (const Order order : {Order::kLast, Order::kRandom})
    expect_expected_sums<float>({.speakers = speakers, .elements = 30'000}, order);
}

// A plain loop over the inputs, nothing of the code under test in it.
TEST(IslandTest, TheSumIsTheSum) {
  Group group({.speakers = {0, 1, 0, 1}, .elements = 5000});
  group.run(Order::kRandom);
  for (std::size_t i = 0; i < 5000; ++i) {
    const float first = group.input(0)[i] + group.input(2)[i];
    const float second = group.input(1)[i] + group.input(3)[i];
    ASSERT_EQ(group.output<float>(3)[i], first + second) << i;
  }
}

TEST(IslandTest, OneOfEachIslandSends) {
  const Case c{.speakers = {0, 0, 2, 2}, .elements = 40'000};
  Group islands(c), alone({.speakers = {0, 1, 2, 3}, .elements = 40'000});
  islands.run(Order::kInOrder);
  alone.run(Order::kInOrder);
  const double half = static_cast<double>(islands.bytes_between());
  // Of two hosts each sends half of the vector for the other's slice, and the sum of its own.
  EXPECT_NEAR(half, 2 * 40'000 * sizeof(float), 0.2 * half);
  std::uint64_t said = 0;
  for (std::uint32_t r = 0; r < 4; ++r) said += islands.member(r).progress().bytes_to_send;
  EXPECT_EQ(said, islands.bytes_between());
  EXPECT_EQ(islands.member(1).progress().bytes_to_send, 0U);
  EXPECT_GT(islands.member(1).progress().bytes_received, 40'000 * sizeof(float));
}

// Rounds on rounds: what has not arrived yet is in the residuals, to the last element.
TEST(IslandTest, FeedbackLosesNothing) {
  for (const char* name : {"none", "int4", "bf16", "topk"}) {
    for (const Speakers& speakers : {Speakers{0, 0, 2}, Speakers{0, 1, 0, 1, 4}}) {
      const CodecSpec codec = *parse_codec(name, {.topk = 0.02});
      const auto speak = IslandRanks{.rank = 0, .speakers = speakers}.speaking().size();
      Group group(
          {.speakers = speakers,
           .elements = 20'000,
           .scatter = codec,
           .gather = codec.kind == CodecKind::kTopK
                         ? codec_of_sum(codec, static_cast<std::uint32_t>(speak), DType::kF32)
                         : codec,
           .feedback = true});
      std::vector<double> given(20'000, 0), arrived(20'000, 0);
      for (int round = 0; round < 4; ++round) {
        if (round > 0) group.next_round();
        group.run(Order::kRandom);
        group.expect_same_bits();
        for (std::size_t i = 0; i < given.size(); ++i) {
          for (std::uint32_t r = 0; r < speakers.size(); ++r) given[i] += group.input(r)[i];
          arrived[i] += group.output<float>(0)[i];
        }
      }
      for (std::size_t i = 0; i < given.size(); ++i) {
        double left = 0;
        for (std::uint32_t r = 0; r < speakers.size(); ++r) left += group.next_residual(r)[i];
        ASSERT_NEAR(arrived[i] + left, given[i], 1e-4) << name << ", " << i;
      }
    }
  }
}

// Whoever is lost, at whichever message: the round stands still, nobody ends with other bits, and
// the next attempt, from the same inputs, ends.
TEST(IslandTest, AMemberLostAtEachPoint) {
  const Case c{.speakers = {0, 0, 2, 2, 0}, .elements = 3000};
  Group whole(c);
  whole.run(Order::kInOrder);
  const std::uint64_t messages = whole.delivered();
  for (std::uint32_t lost = 0; lost < 5; ++lost) {
    for (std::uint64_t at = 0; at < messages; at += 1 + at / 8) {
      Group group(c);
      group.run(Order::kInOrder, at, {lost});
      EXPECT_EQ(group.all_done(), group.dropped() == 0) << lost << " after " << at;
      for (std::uint32_t r = 0; r < 5; ++r)
        if (group.member(r).done())
          EXPECT_TRUE(std::ranges::equal(group.output<float>(r), whole.output<float>(0)));
      group.begin();
      group.run(Order::kRandom);
      group.expect_same_bits();
      EXPECT_TRUE(std::ranges::equal(group.output<float>(1), whole.output<float>(0)));
    }
  }
}

}  // namespace
}  // namespace swarmline
