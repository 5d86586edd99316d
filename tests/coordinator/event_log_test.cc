// What is said of what happens: by name, at its level, and on after a restart.
#include "pipeline/coordinator/run/event_log.h"

#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/store/json_value.h"
#include "tests/coordinator/parts_bench.h"

namespace swarmline {
namespace {

struct Log {
  std::vector<std::string> lines;
  std::map<PeerId, std::string> names{{PeerId{5}, "gpu-box"}};
  PartsBench bench;
  EventLog events{bench.clock.node(0), bench.journal,
                  [this](const std::string& line) { lines.push_back(line); },
                  [this](PeerId peer) { return names[peer]; }};

  JsonValue newest() {
    bench.writer.flush();
    bench.clock.run_for(std::chrono::seconds(1));
    events.flush();
    EXPECT_FALSE(lines.empty());
    return lines.empty() ? JsonValue() : parse_json(lines.back()).value_or(JsonValue());
  }
};

TEST(EventLog, APeerIsCalledByItsName) {
  Log log;
  const Seat seat{PeerId{5}, StageId{1}, Incarnation{1}};
  EXPECT_EQ(log.events.who(seat), "gpu-box (peer 5, stage 1)");
  EXPECT_EQ(log.events.who({PeerId{5}, StageId{1}, Incarnation{3}}),
            "gpu-box (peer 5, stage 1, incarnation 3)");
  EXPECT_EQ(log.events.who({PeerId{6}, StageId{0}, Incarnation{1}}), "peer 6 (stage 0)");
  EXPECT_EQ(log.events.who(PeerId{5}), "gpu-box (peer 5)");
  EXPECT_EQ(log.events.who(PeerId{6}), "peer 6");
}

TEST(EventLog, TheLineHasTheNameAndTheNumber) {
  Log log;
  log.events.of_peer({PeerId{5}, StageId{1}, Incarnation{2}}, "peer_lost", ": closed",
                     LogLevel::kWarn);
  const JsonValue line = log.newest();
  EXPECT_EQ(line["kind"].string, "peer_lost");
  EXPECT_EQ(line["level"].string, "warn");
  EXPECT_EQ(line["detail"].string, "gpu-box (peer 5, stage 1, incarnation 2): closed");
  EXPECT_EQ(line["name"].string, "gpu-box");
  EXPECT_EQ(line["peer"].count(), 5U);
  EXPECT_EQ(line["stage"].count(), 1U);
  EXPECT_EQ(line["incarnation"].count(), 2U);
}

TEST(EventLog, WhatHappenedBeforeARestartIsKept) {
  Log log;
  log.events.event("start", "here", LogLevel::kInfo);
  std::vector<EventRecord> before;
  for (int i = 0; i < 40; ++i)
    before.push_back({.wall_seconds = double(i), .kind = "k" + std::to_string(i)});
  before.back().level = LogLevel::kWarn;
  log.events.restore(before);
  ASSERT_EQ(log.events.newest().size(), EventLog::kNewestKept);
  EXPECT_EQ(log.events.newest().back().kind, "start") << "the newest stays the newest";
  const EventRecord& last_before = log.events.newest()[EventLog::kNewestKept - 2];
  EXPECT_EQ(last_before.kind, "k39");
  EXPECT_EQ(last_before.level, LogLevel::kWarn);
}

}  // namespace
}  // namespace swarmline
