// The bytes of a frame are fixed: golden files hold them, docs/formats/frame.md explains them.
#include "engine/net/frame.h"

#include <cstring>

#include <gtest/gtest.h>

#include "base/limits.h"
#include "engine/net/frame_reader.h"
#include "tests/golden/golden.h"

namespace swarmline {
namespace {

std::string golden_name(const std::string& name) {
  return "frames/" + name + ".bin";
}

std::string wire_bytes_of(const Frame& frame) {
  std::string bytes(as_text(encode_header(frame.header())));
  bytes += frame.meta;
  for (const SharedBytes& part : frame.payload) bytes += as_text(part.view());
  return bytes;
}

struct Golden {
  std::string name;
  Frame frame;
};

std::vector<Golden> goldens() {
  Buffer payload(100);
  for (std::size_t i = 0; i < payload.size(); ++i)
    payload.bytes()[i] = static_cast<std::byte>(i * 7);
  return {
      {"empty", {}},
      {"message", {.kind = 3, .meta = "meta bytes"}},
      {"request", {.kind = 0x0102, .request = 0x1122334455667788, .meta = "ask"}},
      {"reply_error",
       {.kind = 0x0102,
        .request = 0x1122334455667788,
        .flags = 3,
        .meta = std::string("\x08\x04\x12\x02no", 6)}},
      {"tensor", {.kind = 0xFFFF, .meta = "t", .payload = {SharedBytes(std::move(payload))}}},
  };
}

Result<Frame> parse(const std::string& bytes) {
  FrameReader reader;
  const auto space = reader.space();
  std::memcpy(space[1].data(), bytes.data(), bytes.size());
  SWARMLINE_TRY(reader.commit(bytes.size()));
  auto frame = reader.next();
  if (!frame || !reader.between_frames()) return fail(ErrorCode::kCorrupt, "not exactly one frame");
  return *frame;
}

TEST(Frame, BytesAreThoseOfTheGoldenFiles) {
  for (const Golden& golden : goldens())
    expect_golden(golden_name(golden.name), wire_bytes_of(golden.frame));
}

TEST(Frame, GoldenFilesReadAsTheFramesTheyWereWrittenFrom) {
  for (const Golden& golden : goldens()) {
    const Result<Frame> frame = parse(read_golden(golden_name(golden.name)));
    ASSERT_TRUE(frame.has_value()) << golden.name << ": " << frame.error().what;
    EXPECT_EQ(frame->kind, golden.frame.kind);
    EXPECT_EQ(frame->request, golden.frame.request);
    EXPECT_EQ(frame->flags, golden.frame.flags);
    EXPECT_EQ(frame->meta, golden.frame.meta);
    EXPECT_EQ(as_text(frame->received_payload()), as_text(golden.frame.received_payload()));
  }
}

TEST(Frame, FieldsSitWhereTheFormatPageSaysThey) {
  const std::string bytes = read_golden(golden_name("request"));
  EXPECT_EQ(bytes.substr(0, 4), "SWRM");
  EXPECT_EQ(bytes.substr(4, 2), std::string("\x01\x00", 2));
  EXPECT_EQ(bytes.substr(6, 2), "\x02\x01");
  EXPECT_EQ(bytes.substr(8, 8), "\x88\x77\x66\x55\x44\x33\x22\x11");
  EXPECT_EQ(bytes.substr(16, 4), std::string("\x03\0\0\0", 4));
  EXPECT_EQ(bytes.substr(40), "ask");
}

TEST(Frame, EveryFlippedBitOfHeaderAndMetaIsSeen) {
  const std::string good = read_golden(golden_name("message"));
  ASSERT_TRUE(parse(good).has_value());
  for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    const Result<Frame> frame = parse(bad);
    ASSERT_FALSE(frame.has_value()) << "bit " << bit;
    EXPECT_EQ(frame.error().code, ErrorCode::kCorrupt);
  }
}

TEST(Frame, LengthsOverTheLimitsAreRefusedEvenWithAGoodHash) {
  const auto decode = [](FrameHeader header) { return decode_header(encode_header(header)); };
  const auto meta_max = static_cast<std::uint32_t>(Limits::frame_meta_bytes_max);
  const std::uint64_t payload_max = Limits::frame_payload_bytes_max;
  EXPECT_TRUE(decode({.meta_bytes = meta_max, .payload_bytes = payload_max}).has_value());
  for (const FrameHeader& header :
       {FrameHeader{.meta_bytes = meta_max + 1}, FrameHeader{.meta_bytes = ~0U},
        FrameHeader{.payload_bytes = payload_max + 1},
        FrameHeader{.payload_bytes = ~std::uint64_t{0}}}) {
    const auto decoded = decode(header);
    ASSERT_FALSE(decoded.has_value());
    EXPECT_EQ(decoded.error().code, ErrorCode::kCorrupt);
    EXPECT_NE(decoded.error().what.find("at most"), std::string::npos) << decoded.error().what;
  }
}

// Whoever typed the port of another service is told so.
TEST(Frame, WhatAnotherServiceSendsIsShown) {
  const std::string page = "HTTP/1.1 400 Bad Request\r\nServer: something\r\n\r\n";
  ASSERT_GE(page.size(), kFrameHeaderBytes);
  const auto decoded =
      decode_header(BytesView(reinterpret_cast<const std::byte*>(page.data()), kFrameHeaderBytes));
  ASSERT_FALSE(decoded.has_value());
  EXPECT_EQ(decoded.error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(decoded.error().what,
            "this is no frame of Swarmline's, it begins with \"HTTP/1.1\"; another service?");
}

TEST(Frame, AFrameOverTheLimitsIsAProgrammersError) {
  Frame frame;
  frame.meta.resize(Limits::frame_meta_bytes_max + 1);
  EXPECT_DEATH((void)frame.header(), "bytes of meta");
}

}  // namespace
}  // namespace swarmline
