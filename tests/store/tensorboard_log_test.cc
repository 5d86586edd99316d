// What is written for TensorBoard is read back: the records' checks, and what the events say.
#include "engine/store/tensorboard_log.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/store/files.h"
#include "engine/store/tensorboard_events.pb.h"
#include "tests/store/temp_folder.h"

namespace swarmline {
namespace {

constexpr std::uint64_t kFileBytesMax = 1 << 20;

// Bit by bit, as the polynomial is defined.
std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t crc = 0xFFFFFFFF;
  for (const char byte : bytes) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0x82F63B78 : 0);
  }
  return ~crc;
}

std::uint32_t masked(std::string_view bytes) {
  const std::uint32_t crc = crc32c(bytes);
  return (crc >> 15 | crc << 17) + 0xA282EAD8;
}

template <typename Number>
Number number_at(std::string_view text, std::size_t at) {
  Number number = 0;
  std::memcpy(&number, text.substr(at, sizeof(Number)).data(), sizeof(Number));
  return number;
}

std::vector<tensorboard::Event> read_events(const std::string& path) {
  const std::string text = read_text_file(path, kFileBytesMax).value_or("");
  std::vector<tensorboard::Event> events;
  for (std::size_t at = 0; at < text.size();) {
    if (text.size() - at < 16) {
      ADD_FAILURE() << "a record is cut";
      break;
    }
    const auto length = number_at<std::uint64_t>(text, at);
    EXPECT_EQ(number_at<std::uint32_t>(text, at + 8), masked(std::string_view(text).substr(at, 8)));
    const std::string bytes = text.substr(at + 12, length);
    EXPECT_EQ(bytes.size(), length);
    EXPECT_EQ(number_at<std::uint32_t>(text, at + 12 + length), masked(bytes));
    EXPECT_TRUE(events.emplace_back().ParseFromString(bytes));
    at += 16 + length;
  }
  return events;
}

std::map<std::string, float> values_of(const tensorboard::Event& event) {
  std::map<std::string, float> values;
  for (const auto& value : event.summary().value()) values[value.tag()] = value.simple_value();
  return values;
}

LogPoint step(std::uint64_t number, double loss) {
  StepLogLine line;
  line.step = number - 1;
  line.version = number;
  line.loss = loss;
  line.tokens = 100;
  line.seconds = 0.5;
  line.wall_seconds = 1000.0 + static_cast<double>(number);
  line.learning_rate = 0.25;
  line.gradient_norm = 1.5;
  line.peers = {{PeerId{1}, StageId{0}, 4}, {PeerId{2}, StageId{1}, 4}};
  return point_of(line);
}

TEST(TensorboardLog, TheChecksumIsTheOneThatOthersCompute) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283) << "the published check value of CRC-32C";
  const std::string record = tensorboard_record("abc");
  ASSERT_EQ(record.size(), 8U + 4 + 3 + 4);
  EXPECT_EQ(number_at<std::uint64_t>(record, 0), 3U);
  EXPECT_EQ(number_at<std::uint32_t>(record, 15), masked("abc"));
}

TEST(TensorboardLog, StepsAndEvaluationsAreReadBack) {
  const TempFolder folder;
  const std::string path = folder.at("events");
  {
    auto log = TensorboardLog::create(path, 999.5);
    ASSERT_TRUE(log) << log.error().what;
    ASSERT_TRUE(log->add(step(1, 5.5)));
    ASSERT_TRUE(log->add(step(2, 4.5)));
    ASSERT_TRUE(log->add(point_of(EvalLogLine{.version = 1, .loss = 6, .wall_seconds = 1003})));
  }
  const auto events = read_events(path);
  ASSERT_EQ(events.size(), 4U);
  EXPECT_EQ(events[0].file_version(), "brain.Event:2");
  EXPECT_EQ(events[0].wall_time(), 999.5);
  EXPECT_EQ(events[1].step(), 1);
  EXPECT_EQ(events[1].wall_time(), 1001);
  EXPECT_EQ(values_of(events[1]), (std::map<std::string, float>{{"loss/train", 5.5F},
                                                                {"optimizer/learning_rate", 0.25F},
                                                                {"optimizer/gradient_norm", 1.5F},
                                                                {"swarm/peers", 2},
                                                                {"speed/tokens_per_second", 200}}));
  EXPECT_EQ(events[3].step(), 1);
  EXPECT_EQ(values_of(events[3]), (std::map<std::string, float>{{"loss/held_out", 6}}));
}

// A file that begins in the middle of a run, and steps that are computed again, void what was
// written of these steps before.
TEST(TensorboardLog, StepsThatBeginAnewSaySo) {
  const TempFolder folder;
  auto log = TensorboardLog::create(folder.at("events"), 1);
  ASSERT_TRUE(log);
  ASSERT_TRUE(log->add(step(51, 3)));
  ASSERT_TRUE(log->add(step(52, 2)));
  ASSERT_TRUE(log->add(point_of(EvalLogLine{.version = 50, .loss = 6}))) << "a late evaluation";
  ASSERT_TRUE(log->add(step(53, 2)));
  ASSERT_TRUE(log->add(step(41, 4)));
  std::vector<std::int64_t> begins;
  for (const auto& event : read_events(folder.at("events")))
    if (event.session_log().status() == tensorboard::SessionLog::START)
      begins.push_back(event.step());
  EXPECT_EQ(begins, (std::vector<std::int64_t>{51, 41}));
}

TEST(TensorboardLog, ALossThatIsNotFiniteStaysSo) {
  const TempFolder folder;
  auto log = TensorboardLog::create(folder.at("events"), 1);
  ASSERT_TRUE(log);
  ASSERT_TRUE(log->add(step(1, std::numeric_limits<double>::quiet_NaN())));
  EXPECT_TRUE(std::isnan(values_of(read_events(folder.at("events")).back()).at("loss/train")));
}

TEST(TensorboardLog, AFolderThatIsNotThereIsTold) {
  const TempFolder folder;
  const auto log = TensorboardLog::create(folder.at("no/such/file"), 1);
  ASSERT_FALSE(log);
  EXPECT_EQ(log.error().code, ErrorCode::kIo);
  EXPECT_NE(log.error().what.find("no/such/file"), std::string::npos);
}

TEST(TensorboardLog, FilesOfOneFolderSortInTheOrderOfTheirTimes) {
  EXPECT_EQ(tensorboard_file_name(1750000000.7, "node-1", 77),
            "events.out.tfevents.1750000001.node-1.77");
  EXPECT_LT(tensorboard_file_name(999999999, "z", 9), tensorboard_file_name(1750000000, "a", 1));
}

}  // namespace
}  // namespace swarmline
