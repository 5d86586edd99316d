#include "engine/net/frame_reader.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <iterator>
#include <utility>

#include <gtest/gtest.h>

#include "base/byte_ops.h"
#include "base/limits.h"
#include "base/rng.h"
#include "engine/net/message_pieces.h"

namespace swarmline {
namespace {

struct Sample {
  std::string wire;
  std::vector<Frame> frames;
};

Sample make_sample(std::uint64_t seed, int count, std::size_t payload_max) {
  Rng rng(seed);
  Sample sample;
  for (int i = 0; i < count; ++i) {
    Frame frame{.kind = static_cast<std::uint16_t>(i), .request = rng.next_u64()};
    frame.meta.resize(rng.below(2) == 0 ? 0 : rng.below(2000));
    for (char& c : frame.meta) c = static_cast<char>(rng.next_u32());
    const std::size_t payload_bytes = rng.below(3) == 0 ? 0 : rng.below(payload_max);
    if (payload_bytes > 0) {
      Buffer payload(payload_bytes);
      for (std::byte& byte : payload.bytes()) byte = static_cast<std::byte>(rng.next_u32());
      frame.payload.emplace_back(std::move(payload));
    }
    sample.wire += as_text(encode_header(frame.header()));
    sample.wire += frame.meta;
    sample.wire += as_text(frame.received_payload());
    sample.frames.push_back(std::move(frame));
  }
  return sample;
}

// Feeds `wire`, at most `next_size()` bytes a commit, and returns the frames in order.
Result<std::vector<Frame>> feed(FrameReader& reader, std::string_view wire,
                                const std::function<std::size_t()>& next_size) {
  std::vector<Frame> frames;
  while (!wire.empty()) {
    const auto space = reader.space();
    EXPECT_FALSE(space[1].empty());
    const std::size_t room = space[0].size() + space[1].size();
    const std::size_t count = std::min({wire.size(), room, std::max<std::size_t>(next_size(), 1)});
    const std::size_t first = std::min(count, space[0].size());
    if (first > 0) std::memcpy(space[0].data(), wire.data(), first);
    if (count > first) std::memcpy(space[1].data(), wire.data() + first, count - first);
    SWARMLINE_TRY(reader.commit(count));
    wire.remove_prefix(count);
    while (auto frame = reader.next()) frames.push_back(std::move(*frame));
  }
  return frames;
}

void expect_same(const std::vector<Frame>& got, const std::vector<Frame>& sent) {
  ASSERT_EQ(got.size(), sent.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].kind, sent[i].kind);
    EXPECT_EQ(got[i].request, sent[i].request);
    EXPECT_EQ(got[i].meta, sent[i].meta);
    EXPECT_TRUE(same_bytes(got[i].received_payload(), sent[i].received_payload()));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(got[i].received_payload().data()) % kBufferAlignment,
              0U);
  }
}

TEST(FrameReader, FramesDoNotDependOnHowTheStreamIsCut) {
  const Sample sample = make_sample(1, 60, 20'000);
  Rng rng(2);
  const std::function<std::size_t()> cuts[] = {
      [] { return std::size_t{1}; },
      [] { return std::size_t{39}; },
      [] { return std::size_t{41}; },
      [] { return std::size_t{1} << 30; },
      [&rng] { return static_cast<std::size_t>(rng.below(5000)); },
  };
  for (const auto& cut : cuts) {
    FrameReader reader;
    const auto frames = feed(reader, sample.wire, cut);
    ASSERT_TRUE(frames.has_value()) << frames.error().what;
    expect_same(*frames, sample.frames);
    EXPECT_TRUE(reader.between_frames());
  }
}

TEST(FrameReader, ReadersThatRestShareTheirStagingMemory) {
  const Sample sample = make_sample(7, 40, 5000);
  const std::string_view wire = sample.wire;
  std::vector<FrameReader> readers(3);
  std::vector<std::vector<Frame>> frames(readers.size());
  Buffer spare;
  Rng rng(8);
  for (std::size_t at = 0; at < wire.size();) {  // each reads the same stream, in the same cuts
    const std::size_t count = std::min<std::size_t>(1 + rng.below(3000), wire.size() - at);
    for (std::size_t r = 0; r < readers.size(); ++r) {
      if (!readers[r].has_staging()) readers[r].lend(std::exchange(spare, Buffer()));
      auto got = feed(readers[r], wire.substr(at, count), [count] { return count; });
      ASSERT_TRUE(got.has_value());
      std::ranges::move(*got, std::back_inserter(frames[r]));
      if (Buffer staging = readers[r].rest(); !staging.empty()) spare = std::move(staging);
    }
    at += count;
  }
  for (const auto& got : frames) expect_same(got, sample.frames);
  EXPECT_FALSE(readers[0].has_staging()) << "a stream between frames holds none";
  EXPECT_EQ(spare.size(), FrameReader::kStagingBytes);
}

TEST(FrameReader, LargePayloadsGoStraightIntoTheirBuffer) {
  const Sample sample = make_sample(3, 6, 3'000'000);
  FrameReader reader;
  const auto frames = feed(reader, sample.wire, [] { return std::size_t{1} << 30; });
  ASSERT_TRUE(frames.has_value());
  expect_same(*frames, sample.frames);

  FrameReader fresh;
  Frame frame{.kind = 1, .payload = {SharedBytes(Buffer::zeroed(1'000'000))}};
  const auto header = encode_header(frame.header());
  std::memcpy(fresh.space()[1].data(), header.data(), header.size());
  ASSERT_TRUE(fresh.commit(header.size()).has_value());
  const auto space = fresh.space();
  EXPECT_EQ(space[0].size(), 1'000'000U) << "the whole payload can be read in one call";
  EXPECT_EQ(space[1].size(), FrameReader::kStagingBytes);
  EXPECT_FALSE(fresh.between_frames());
  std::memset(space[0].data(), 5, space[0].size());
  const std::byte* where = space[0].data();
  ASSERT_TRUE(fresh.commit(space[0].size()).has_value());
  EXPECT_EQ(fresh.next()->received_payload().data(), where) << "no copy in between";
}

TEST(FrameReader, ALargeMetaIsOneMessageHoweverTheStreamIsCut) {
  Frame frame{.kind = 1, .meta = std::string(4'000'000, 'm')};
  for (std::size_t i = 0; i < frame.meta.size(); i += 1000) frame.meta[i] = static_cast<char>(i);
  std::string wire(as_text(encode_header(frame.header())));
  wire += frame.meta;
  for (const std::size_t cut : {std::size_t{777}, std::size_t{1} << 20, std::size_t{1} << 30}) {
    FrameReader reader;
    const auto frames = feed(reader, wire, [cut] { return cut; });
    ASSERT_TRUE(frames.has_value()) << frames.error().what;
    expect_same(*frames, {frame});
  }
}

// A header costs its sender 40 bytes.
TEST(FrameReader, MemoryForAMetaIsTakenAsItComes) {
  const auto header = encode_header({.kind = 1, .meta_bytes = std::uint32_t{kFrameMetaBytesTaken}});
  FrameReader reader;
  std::memcpy(reader.space()[1].data(), header.data(), header.size());
  ASSERT_TRUE(reader.commit(header.size()).has_value());
  EXPECT_LE(reader.space()[0].size(), Limits::frame_meta_ahead_bytes_max);
  std::size_t came = 0;
  while (came < kFrameMetaBytesTaken) {
    const std::size_t room = reader.space()[0].size();
    ASSERT_GT(room, 0U);
    EXPECT_LE(room, std::max<std::size_t>(came, Limits::frame_meta_ahead_bytes_max));
    const bool parsed = reader.commit(room).has_value();
    came += room;
    EXPECT_EQ(parsed, came < kFrameMetaBytesTaken) << "all of it is not what its hash says";
  }
}

TEST(FrameReader, FramesBeforeBadBytesAreStillDelivered) {
  const Sample sample = make_sample(4, 3, 100);
  const std::string wire = sample.wire + std::string(40, 'x');
  FrameReader reader;
  const auto space = reader.space();
  std::memcpy(space[1].data(), wire.data(), wire.size());
  const Result<void> result = reader.commit(wire.size());
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, ErrorCode::kCorrupt);
  int frames = 0;
  while (reader.next()) ++frames;
  EXPECT_EQ(frames, 3);
}

TEST(FrameReader, AWrongMetaIsCorrupt) {
  Frame frame{.kind = 1, .meta = "hello"};
  std::string wire(as_text(encode_header(frame.header())));
  wire += "hullo";
  FrameReader reader;
  const auto frames = feed(reader, wire, [] { return std::size_t{7}; });
  ASSERT_FALSE(frames.has_value());
  EXPECT_EQ(frames.error().code, ErrorCode::kCorrupt);
}

}  // namespace
}  // namespace swarmline
