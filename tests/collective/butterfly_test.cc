#include "engine/collective/butterfly.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "base/byte_ops.h"
#include "base/rng.h"
#include "engine/collective/slices.h"
#include "tests/collective/chunk_bag.h"

namespace swarmline {
namespace {

constexpr CodecSpec kNone{};
constexpr CodecSpec kFp16{.kind = CodecKind::kFp16};
constexpr CodecSpec kBf16{.kind = CodecKind::kBf16};
constexpr CodecSpec kLin8{.kind = CodecKind::kLin8, .block = 64};

struct Case {
  std::uint32_t ranks = 2;
  std::uint64_t elements = 0;
  DType dtype = DType::kF32;
  CodecSpec scatter = kNone;
  std::optional<CodecSpec> odd_scatter = {};  // what members of odd ranks send parts with
  CodecSpec gather = kNone;
  std::size_t chunk_bytes = 4096;
  std::uint64_t seed = 1;
  bool feedback = false;
  std::optional<kernels::StochasticKey> key = {};
};

// All members of a round in one process, and the network between them as a bag of messages.
class Group {
 public:
  explicit Group(const Case& c) : case_(c), rng_(c.seed) {
    std::vector<double> weights;
    for (std::uint32_t r = 0; r < c.ranks; ++r)
      weights.push_back(rng_.below(5) == 0 ? 0 : rng_.uniform());
    weights[rng_.below(c.ranks)] = 0.4;
    bounds_ = slice_bounds(c.elements, weights, 1 + rng_.below(64));
    for (std::uint32_t r = 0; r < c.ranks; ++r) {
      inputs_.push_back(random_values(c.elements, c.dtype, rng_));
      sealed_.push_back(Buffer::copy_of(inputs_.back().bytes()));
      outputs_.emplace_back(inputs_.back().size());
      std::fill_n(outputs_.back().data(), outputs_.back().size(), std::byte{0xAB});
    }
    for (std::uint32_t r = 0; r < c.ranks; ++r) {
      residuals_.push_back(Buffer::zeroed(inputs_[r].size()));
      next_residuals_.emplace_back(inputs_[r].size());
    }
    begin();
  }

  void begin() {
    members_.clear();
    for (std::uint32_t r = 0; r < case_.ranks; ++r) {
      Residual residual;
      if (case_.feedback)
        residual = {.current = residuals_[r].bytes(), .next = next_residuals_[r].bytes()};
      members_.push_back(std::make_unique<ButterflyAllReduce>(spec(r), inputs_[r].bytes(),
                                                              outputs_[r].bytes(), residual));
    }
  }
  // Another round: new values, the residuals of the last one.
  void next_round() {
    std::swap(residuals_, next_residuals_);
    for (std::uint32_t r = 0; r < case_.ranks; ++r) {
      inputs_[r] = random_values(case_.elements, case_.dtype, rng_);
      sealed_[r] = Buffer::copy_of(inputs_[r].bytes());
    }
    begin();
  }

  const CodecSpec& scatter_of(std::uint32_t sender) const {
    return case_.odd_scatter && sender % 2 == 1 ? *case_.odd_scatter : case_.scatter;
  }
  ButterflySpec spec(std::uint32_t rank) const {
    return {.rank = rank,
            .ranks = case_.ranks,
            .elements = case_.elements,
            .dtype = case_.dtype,
            .bounds = bounds_,
            .scatter = std::vector<CodecSpec>(case_.ranks, scatter_of(rank)),
            .gather = case_.gather,
            .key = case_.key,
            .chunk_bytes = case_.chunk_bytes};
  }

  void run(Order order) {
    for (std::uint32_t r = 0; r < case_.ranks; ++r)
      while (members_[r]->send_more([&](ChunkSend send) { bag_.post(r, std::move(send)); })) {
      }
    while (!bag_.empty()) {
      deliver(bag_.take(order, rng_));
      if (::testing::Test::HasFatalFailure()) return;
    }
  }

  void expect_same_bits() const {
    for (std::uint32_t r = 0; r < case_.ranks; ++r) {
      EXPECT_TRUE(members_[r]->done()) << "rank " << r;
      EXPECT_TRUE(same_bytes(outputs_[r].bytes(), outputs_[0].bytes())) << "rank " << r;
      EXPECT_TRUE(same_bytes(inputs_[r].bytes(), sealed_[r].bytes())) << "input written";
      EXPECT_EQ(members_[r]->progress().chunks_waiting, 0U);
    }
  }

  // The sum by the rules, slice by slice, chunk by chunk, without messages.
  template <typename T>
  std::vector<T> expected() const {
    std::vector<T> sums(case_.elements);
    const std::uint64_t chunk = case_.chunk_bytes / sizeof(T);
    for (std::uint32_t r = 0; r < case_.ranks; ++r) {
      for (std::uint64_t first = bounds_[r]; first < bounds_[r + 1]; first += chunk) {
        const std::uint64_t count = std::min(chunk, bounds_[r + 1] - first);
        std::vector<T> sum(count);
        for (std::uint32_t from = 0; from < case_.ranks; ++from) {
          const auto* part = inputs_[from].as<T>().data() + first;
          std::vector<T> values(part, part + count);
          if (from != r) values = through(scatter_of(from), values);
          for (std::uint64_t i = 0; i < count; ++i)
            sum[i] = from == 0 ? values[i] : sum[i] + values[i];
        }
        if (case_.ranks > 1) sum = through(case_.gather, sum);
        std::ranges::copy(sum, sums.begin() + static_cast<std::ptrdiff_t>(first));
      }
    }
    return sums;
  }

  template <typename T>
  std::span<const T> output(std::uint32_t rank) const {
    return outputs_[rank].as<T>();
  }
  Buffer& input(std::uint32_t rank) { return inputs_[rank]; }
  std::span<const float> next_residual(std::uint32_t rank) const {
    return next_residuals_[rank].as<float>();
  }
  const ButterflyAllReduce& member(std::uint32_t rank) const { return *members_[rank]; }

 private:
  template <typename T>
  std::vector<T> through(const CodecSpec& codec, const std::vector<T>& values) const {
    const BytesView bytes{reinterpret_cast<const std::byte*>(values.data()),
                          values.size() * sizeof(T)};
    const Buffer wire = encode(codec, bytes, case_.dtype);
    std::vector<T> out(values.size());
    EXPECT_TRUE(decode(wire.bytes(), case_.dtype,
                       {reinterpret_cast<std::byte*>(out.data()), out.size() * sizeof(T)}));
    return out;
  }

  void deliver(const ChunkBag::Message& message) {
    ButterflyAllReduce& to = *members_[message.send.to];
    const ChunkSend& send = message.send;
    for (int copy = 0; copy < 1 + (rng_.below(4) == 0); ++copy) {
      auto sends = to.on_chunk(message.from, send.part, send.chunk, send.whole());
      ASSERT_TRUE(sends) << sends.error().what;
      if (copy == 1) ASSERT_TRUE(sends->empty()) << "a duplicate was taken";
      bag_.post(send.to, std::move(*sends));
    }
    ASSERT_LE(to.progress().chunks_waiting,
              std::uint64_t{ButterflyAllReduce::window_chunks(case_.ranks)} * (case_.ranks - 1));
  }

  Case case_;
  Rng rng_;
  std::vector<std::uint64_t> bounds_;
  std::vector<Buffer> inputs_;
  std::vector<Buffer> sealed_;
  std::vector<Buffer> outputs_;
  std::vector<Buffer> residuals_, next_residuals_;
  std::vector<std::unique_ptr<ButterflyAllReduce>> members_;
  ChunkBag bag_;
};

template <typename T>
void expect_expected_sums(const Case& c, Order order) {
  SCOPED_TRACE(::testing::Message() << c.ranks << " ranks, " << c.elements << " elements, scatter "
                                    << to_string(c.scatter) << ", gather " << to_string(c.gather)
                                    << ", seed " << c.seed);
  Group group(c);
  group.run(order);
  group.expect_same_bits();
  const std::vector<T> expected = group.expected<T>();
  EXPECT_TRUE(std::ranges::equal(group.output<T>(0), expected));
}

TEST(ButterflyTest, PlainSumsForAnySizeAndNumberOfRanks) {
  for (std::uint32_t ranks = 1; ranks <= 8; ++ranks) {
    for (const std::uint64_t elements : {0, 1, 7, 31, 32, 33, 1000, 1024, 4096, 20'001}) {
      for (const Order order : {Order::kInOrder, Order::kLast, Order::kRandom}) {
        const std::uint64_t seed = ranks * 100'000 + elements;
        expect_expected_sums<float>({.ranks = ranks, .elements = elements, .seed = seed}, order);
        expect_expected_sums<double>(
            {.ranks = ranks, .elements = elements, .dtype = DType::kF64, .seed = seed}, order);
      }
    }
  }
}

// Each exchanges something with each other.
TEST(ButterflyTest, HundredsOfRanks) {
  expect_expected_sums<float>({.ranks = 300, .elements = 2400, .seed = 11}, Order::kLast);
}

TEST(ButterflyTest, AMillionElements) {
  for (const std::uint32_t ranks : {2U, 5U, 8U}) {
    expect_expected_sums<float>(
        {.ranks = ranks, .elements = 1'000'003, .chunk_bytes = 64 * 1024, .seed = ranks},
        Order::kRandom);
    expect_expected_sums<double>({.ranks = ranks,
                                  .elements = 1'000'003,
                                  .dtype = DType::kF64,
                                  .chunk_bytes = Limits::reduce_chunk_bytes,
                                  .seed = ranks},
                                 Order::kRandom);
  }
}

// A plain loop over the inputs in rank order, nothing of the code under test in it.
TEST(ButterflyTest, TheSumIsTheSum) {
  Group group({.ranks = 4, .elements = 5000});
  group.run(Order::kRandom);
  for (std::size_t i = 0; i < 5000; ++i) {
    float sum = group.input(0).as<float>()[i];
    for (std::uint32_t r = 1; r < 4; ++r) sum += group.input(r).as<float>()[i];
    ASSERT_EQ(group.output<float>(3)[i], sum) << i;
  }
}

TEST(ButterflyTest, SameBitsAtEveryMemberForEveryCodec) {
  std::uint64_t seed = 0;
  for (const CodecSpec& scatter : {kNone, kFp16, kBf16, kLin8}) {
    for (const CodecSpec& gather : {kNone, kFp16, kBf16, kLin8}) {
      for (const std::uint32_t ranks : {2U, 3U, 7U}) {
        for (const std::uint64_t elements : {1, 1000, 30'001}) {
          expect_expected_sums<float>({.ranks = ranks,
                                       .elements = elements,
                                       .scatter = scatter,
                                       .gather = gather,
                                       .seed = ++seed},
                                      Order::kRandom);
          expect_expected_sums<double>({.ranks = ranks,
                                        .elements = elements,
                                        .dtype = DType::kF64,
                                        .scatter = scatter,
                                        .gather = gather,
                                        .seed = ++seed},
                                       Order::kRandom);
        }
      }
    }
  }
}

// A codec is a link's: what comes as it is and what is decoded meet in one sum.
TEST(ButterflyTest, LinksOfSeveralCodecs) {
  std::uint64_t seed = 900;
  for (const CodecSpec& gather : {kNone, kBf16}) {
    for (const std::uint32_t ranks : {2U, 3U, 5U, 8U}) {
      for (const Order order : {Order::kInOrder, Order::kLast, Order::kRandom}) {
        Case c{.ranks = ranks,
               .elements = 30'001,
               .scatter = kLin8,
               .odd_scatter = kNone,
               .gather = gather,
               .seed = ++seed};
        expect_expected_sums<float>(c, order);
        std::swap(c.scatter, *c.odd_scatter);
        expect_expected_sums<float>(c, order);
        c.elements = 1'100'000;  // of which sums pass the caches
        c.chunk_bytes = 256 * 1024;
        expect_expected_sums<float>(c, order);
      }
    }
  }
}

TEST(ButterflyTest, ArrivalOrderLeavesNoTrace) {
  const Case c{.ranks = 5, .elements = 20'000, .scatter = kLin8, .gather = kBf16};
  Group first(c);
  first.run(Order::kInOrder);
  for (const Order order : {Order::kLast, Order::kRandom}) {
    Group again(c);
    again.run(order);
    EXPECT_TRUE(std::ranges::equal(again.output<float>(2), first.output<float>(2)));
  }
}

CodecSpec codec_named(const char* name) {
  return *parse_codec(name, {.topk = 0.02});
}

// Rounds on rounds: what has not arrived yet is in the residuals, to the last element.
TEST(ButterflyTest, FeedbackLosesNothing) {
  for (const char* name : {"none", "int4", "h4", "lin8", "bf16", "topk"}) {
    for (const std::uint32_t ranks : {1U, 2U, 3U, 6U}) {
      const CodecSpec codec = codec_named(name);
      const bool sparse = codec.kind == CodecKind::kTopK;
      Group group({.ranks = ranks,
                   .elements = 20'000,
                   .scatter = codec,
                   .gather = sparse ? codec_of_sum(codec, ranks, DType::kF32) : codec,
                   .seed = ranks,
                   .feedback = true});
      std::vector<double> given(20'000, 0), arrived(20'000, 0);
      for (int round = 0; round < 4; ++round) {
        if (round > 0) group.next_round();
        group.run(Order::kRandom);
        group.expect_same_bits();
        for (std::size_t i = 0; i < given.size(); ++i) {
          for (std::uint32_t r = 0; r < ranks; ++r) given[i] += group.input(r).as<float>()[i];
          arrived[i] += group.output<float>(0)[i];
        }
      }
      for (std::size_t i = 0; i < given.size(); ++i) {
        double left = 0;
        for (std::uint32_t r = 0; r < ranks; ++r) left += group.next_residual(r)[i];
        ASSERT_NEAR(arrived[i] + left, given[i], 1e-4) << name << ", " << ranks << " ranks, " << i;
      }
    }
  }
}

TEST(ButterflyTest, SparsePartsMakeASparseSum) {
  const CodecSpec topk = codec_named("topk");
  const auto bytes = [&](const CodecSpec& scatter, const CodecSpec& gather) {
    Group group({.ranks = 4,
                 .elements = 400'000,
                 .scatter = scatter,
                 .gather = gather,
                 .chunk_bytes = Limits::reduce_chunk_bytes,
                 .feedback = true});
    group.run(Order::kRandom);
    std::size_t zeros = 0;
    for (const float value : group.output<float>(0)) zeros += value == 0;
    EXPECT_EQ(zeros > 360'000, scatter.kind == CodecKind::kTopK) << zeros;
    std::uint64_t sent = 0;
    for (std::uint32_t r = 0; r < 4; ++r) sent += group.member(r).progress().bytes_to_send;
    return sent;
  };
  const CodecSpec sum = codec_of_sum(topk, 4, DType::kF32);
  ASSERT_EQ(sum.kind, CodecKind::kTopK);
  EXPECT_LT(bytes(topk, sum), bytes(kNone, kNone) / 10);
  EXPECT_EQ(codec_of_sum(topk, 40, DType::kF32), kNone);
  EXPECT_EQ(codec_of_sum(topk, 2, DType::kF64), kNone);
}

TEST(ButterflyTest, StochasticRoundsAreNamedByTheirKey) {
  Case c{.ranks = 3, .elements = 9000, .scatter = codec_named("int4"), .gather = kLin8};
  const auto sums = [](const Case& of) {
    Group group(of);
    group.run(Order::kRandom);
    group.expect_same_bits();
    const auto out = group.output<float>(0);
    return std::vector<float>(out.begin(), out.end());
  };
  const std::vector<float> nearest = sums(c);
  c.key = kernels::StochasticKey{.seed = 5, .stream = {7, 1, 0}};
  const std::vector<float> first = sums(c);
  EXPECT_EQ(sums(c), first);
  EXPECT_NE(first, nearest);
  c.key->stream[0] = 8;
  EXPECT_NE(sums(c), first);
}

TEST(ButterflyTest, NonFiniteValuesReachEveryMember) {
  for (const CodecSpec& codec : {kNone, kFp16, kLin8}) {
    Group group({.ranks = 3, .elements = 3000, .scatter = codec, .gather = codec});
    group.input(1).as<float>()[5] = std::numeric_limits<float>::quiet_NaN();
    group.input(2).as<float>()[2990] = std::numeric_limits<float>::infinity();
    group.run(Order::kRandom);
    for (std::uint32_t r = 0; r < 3; ++r) {
      EXPECT_TRUE(std::isnan(group.output<float>(r)[5]));
      EXPECT_FALSE(std::isfinite(group.output<float>(r)[2990]));
      EXPECT_TRUE(
          same_bytes(std::as_bytes(group.output<float>(r)), std::as_bytes(group.output<float>(0))));
    }
  }
}

TEST(ButterflyTest, OneMemberAloneCopiesWithoutACodec) {
  Group group({.ranks = 1, .elements = 1000, .scatter = kLin8, .gather = kLin8});
  group.run(Order::kInOrder);
  EXPECT_TRUE(group.member(0).done());
  EXPECT_TRUE(std::ranges::equal(group.output<float>(0), group.input(0).as<float>()));
  EXPECT_EQ(group.member(0).progress().bytes_to_send, 0U);
}

TEST(ButterflyTest, WireBytesAreTwiceTheVectorLessTheOwnShare) {
  const std::uint64_t elements = 1 << 20;
  const std::uint64_t bytes = elements * sizeof(float);
  Group group({.ranks = 4, .elements = elements, .chunk_bytes = Limits::reduce_chunk_bytes});
  group.run(Order::kInOrder);
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
  for (std::uint32_t r = 0; r < 4; ++r) {
    sent += group.member(r).progress().bytes_to_send;
    received += group.member(r).progress().bytes_received;
  }
  EXPECT_EQ(sent, received);
  EXPECT_GE(sent, 2 * 3 * bytes);
  EXPECT_LE(sent, 2 * 3 * bytes + 2 * 3 * bytes / 100);
}

}  // namespace
}  // namespace swarmline
