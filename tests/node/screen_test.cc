#include "console/screen.h"

#include <algorithm>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

#include "console/text.h"
#include "node/summary.h"

namespace swarmline {
namespace {

RunStatus busy_status(std::size_t stages, std::size_t peers) {
  RunStatus status;
  status.run = "quickstart";
  status.state = "training";
  status.sentence = std::string(200, 'x');
  status.step = 143;
  status.steps = 400;
  status.loss = 2.4312;
  status.tokens_per_second = 12345.6;
  status.eta_seconds = 85;
  status.losses.assign(60, 2.5);
  for (std::size_t s = 0; s < stages; ++s) {
    StageStatus stage{.stage = s, .first_layer = s, .last_layer = s + 1, .peers = {}};
    for (std::size_t p = 0; p < peers; ++p) {
      stage.peers.push_back({.peer = p, .name = "peer-" + std::to_string(p), .state = "ready"});
    }
    status.stages.push_back(stage);
    if (s > 0) status.boundaries.push_back({.from = s - 1, .to = s});
  }
  return status;
}

// Where the run went back to is said until it ends and there is more to say.
TEST(Screen, SaysWhereTheNewestEraBegan) {
  RunStatus status;
  status.run = "r";
  status.state = "training";
  status.era = 2;
  status.era_sentence =
      "era 2 begins with version 40 (runs/r/checkpoints/step-40): peer 3 was lost";
  const ScreenStyle style{.columns = 120, .rows = 24, .color = false, .utf8 = false};
  const auto shows = [&](const std::string& text) {
    const std::vector<std::string> lines = render_screen(status, "", style);
    return std::ranges::find(lines, text) != lines.end();
  };
  EXPECT_TRUE(shows(status.era_sentence));
  EXPECT_NE(describe(status).find(status.era_sentence), std::string::npos);
  status.sentence = "finished 60 steps";
  EXPECT_TRUE(shows("finished 60 steps"));
  EXPECT_FALSE(shows(status.era_sentence));
}

// ... and a journal that can't be written before all else.
TEST(Screen, SaysThatTheJournalCantBeWritten) {
  RunStatus status;
  status.run = "r";
  status.state = "training";
  status.era_sentence = "era 2 begins with version 40";
  status.journal = "the journal could not be written for 7 s: database or disk is full";
  const std::vector<std::string> lines =
      render_screen(status, "", {.columns = 120, .rows = 24, .color = false, .utf8 = false});
  EXPECT_NE(std::ranges::find(lines, status.journal), lines.end());
  EXPECT_NE(describe(status).find(status.journal), std::string::npos);
}

TEST(Screen, FitsEveryTerminal) {
  for (const std::size_t rows : {8, 12, 24, 60}) {
    for (const std::size_t columns : {40, 80, 200}) {
      for (const std::size_t stages : {0, 1, 4, 40}) {
        const ScreenStyle style{.columns = columns, .rows = rows, .color = true, .utf8 = true};
        const auto lines = render_screen(busy_status(stages, 20), "note", style);
        EXPECT_LT(lines.size(), rows);
        for (const std::string& line : lines) EXPECT_LE(display_columns(line), columns) << line;
      }
    }
  }
}

// Where there is one line, it loses peers, not their number, nor the shadows.
TEST(Screen, CountsPeersThatHaveNoRoom) {
  RunStatus status = busy_status(1, 20);
  status.stages[0].shadows = {{.state = "ready"}, {.state = "fetching"}};
  const auto stage_of = [&](std::size_t columns) {
    const ScreenStyle style{.columns = columns, .rows = 8, .color = false, .utf8 = false};
    for (const std::string& line : render_screen(status, "", style))
      if (line.starts_with("stage 0")) return line;
    return std::string();
  };
  const std::string line = stage_of(80);
  EXPECT_TRUE(line.ends_with("* peer-1 0 %  and 18 more  1/2 shadows")) << line;
  EXPECT_TRUE(stage_of(400).ends_with("* peer-19 0 %  1/2 shadows"));
}

TEST(Screen, ShowsWhatMatters) {
  RunStatus status = busy_status(4, 2);
  status.stages[0].peers[1].data = "fetches its data from peer 3: 12 of 240 pieces";
  const auto lines = render_screen(status, "note", {});
  std::string all;
  for (const std::string& line : lines) all += line + "\n";
  for (const char* part : {"quickstart", "training", "143 / 400", "36 %", "ETA 1m 25s", "2.4312",
                           "12,345 tokens/s", "stage 3", "boundary 2", "peer-1", "note",
                           "peer-1 fetches its data from peer 3: 12 of 240 pieces"}) {
    EXPECT_NE(all.find(part), std::string::npos) << part;
  }
}

TEST(Screen, WithoutColorAndUtf8IsPlainAscii) {
  const ScreenStyle style{.columns = 80, .rows = 24, .color = false, .utf8 = false};
  for (const std::string& line : render_screen(busy_status(4, 2), "note", style)) {
    for (const char c : line) EXPECT_TRUE(c >= ' ' && c <= '~') << line;
  }
}

TEST(Screen, SaysWhatHappenedAndHowLongAgo) {
  RunStatus status = busy_status(2, 2);
  status.wall_seconds = 1000;
  for (int i = 0; i < 12; ++i)
    status.events.push_back({.wall_seconds = 900.0 + i, .kind = "checkpoint", .detail = "c"});
  status.events.push_back({.wall_seconds = 988,
                           .kind = "peer_lost",
                           .detail = "peer 3 (stage 1, incarnation 1): closed by the other end"});
  for (const std::size_t rows : {24U, 60U}) {
    const auto lines = render_screen(status, "note", {.columns = 90, .rows = rows, .color = false});
    EXPECT_TRUE(std::ranges::any_of(lines, [](const std::string& line) {
      return line ==
             "  12s ago  peer lost: peer 3 (stage 1, incarnation 1): closed by the other end";
    })) << rows;
  }
  const auto all = render_screen(status, "note", {.columns = 90, .rows = 60, .color = false});
  EXPECT_EQ(
      std::ranges::count_if(all, [](const std::string& line) { return line.contains(" ago  "); }),
      13);
}

TEST(Screen, WhatIsBadStandsOutByItsLevel) {
  RunStatus status = busy_status(2, 2);
  status.wall_seconds = 1000;
  status.events = {
      {.wall_seconds = 990, .kind = "start", .detail = "4 peers", .level = "info"},
      {.wall_seconds = 995, .kind = "fail_slow", .detail = "b is let go", .level = "warn"}};
  const auto lines = render_screen(status, "", {.columns = 100, .rows = 40});
  const auto shows = [&](const std::string& text) {
    return std::ranges::any_of(lines, [&](const std::string& line) { return line.contains(text); });
  };
  EXPECT_TRUE(shows("\x1b[33mfail slow\x1b[0m: b is let go"));
  EXPECT_TRUE(shows("10s ago  start: 4 peers"));
}

// What it costs stands at the end of an event's sentence.
TEST(Screen, BreaksALongEventInsteadOfCuttingIt) {
  RunStatus status = busy_status(2, 2);
  status.wall_seconds = 1000;
  status.events = {
      {.wall_seconds = 990,
       .kind = "new_era",
       .detail = std::string("era 1 begins with version 0 (the initial parameters): ") +
                 "gpu-box (peer 2, stage 1) was lost; steps 1 to 144 are computed again",
       .level = "warn"}};
  std::string all;
  for (const std::string& line :
       render_screen(status, "", {.columns = 80, .rows = 24, .color = false}))
    all += line + "\n";
  EXPECT_TRUE(all.contains("steps 1 to 144")) << all;
}

// Where there is no line for events, the one that is said is the news.
TEST(Screen, OnALowTerminalNewsAreSaid) {
  RunStatus status = busy_status(3, 2);
  status.sentence.clear();
  status.unprotected = "peer-a of stage 1: nobody else holds its state";
  status.wall_seconds = 1000;
  const auto all = [&] {
    std::string text;
    for (const std::string& line :
         render_screen(status, "note", {.columns = 60, .rows = 10, .color = false}))
      text += line + "\n";
    return text;
  };
  EXPECT_TRUE(all().contains("unprotected: peer-a of stage 1")) << all();
  status.events = {{.wall_seconds = 990, .kind = "peer_lost", .detail = "b", .level = "warn"}};
  EXPECT_TRUE(all().contains("peer lost: b")) << all();
  status.wall_seconds = 2000;
  EXPECT_FALSE(all().contains("peer lost: b")) << "it is no news any more";
}

// A narrow terminal shows the dead, and leaves out the layers for them.
TEST(Screen, OnANarrowTerminalPeersStay) {
  RunStatus status = busy_status(2, 2);
  status.stages[0].peers[0].share = 1;
  status.stages[0].peers[1].state = "lost";
  const auto lines =
      render_screen(status, "", {.columns = 40, .rows = 10, .color = false, .utf8 = false});
  EXPECT_NE(std::ranges::find(lines, "stage 0   * peer-0 100 %  x peer-1 lost"), lines.end());
}

// One line, on a low terminal, too; none where nobody says a price.
TEST(Screen, SaysWhatTheRunCosts) {
  RunStatus status = busy_status(2, 2);
  const auto line = [&](std::size_t columns, std::size_t rows) {
    for (const std::string& shown :
         render_screen(status, "", {.columns = columns, .rows = rows, .color = false}))
      if (shown.starts_with("cost ")) return shown;
    return std::string();
  };
  EXPECT_EQ(line(100, 40), "");
  status.cost = CostStatus{.currency = "EUR",
                           .total = 1234.5,
                           .per_hour = 0.25,
                           .per_billion_tokens = 3.217,
                           .budget = 2000};
  EXPECT_EQ(line(80, 10), "cost 1,234.50 of 2,000.00 EUR   0.25 an hour   3.22 a billion tokens");
  status.cost->budget = 0;
  status.cost->budget_hours = 10;
  status.elapsed_seconds = 18000;
  status.state = "done";
  EXPECT_EQ(line(80, 40), "cost 1,234.50 EUR   3.22 a billion tokens   5 of 10 hours");
}

TEST(Screen, SaysWhoseLossWouldTakeTheRunBack) {
  RunStatus status = busy_status(2, 1);
  status.unprotected = "peer-0 of stage 0: nobody else holds its state";
  const auto lines = render_screen(status, "", {.columns = 100, .rows = 24, .color = false});
  EXPECT_NE(std::ranges::find(lines, "unprotected: " + status.unprotected), lines.end());
}

TEST(Screen, TellsTheDeadFromTheLivingWithoutColour) {
  RunStatus status = busy_status(1, 3);
  status.stages[0].peers[1].state = "lost";
  status.stages[0].peers[2].state = "joining";
  status.stages[0].peers[2].name.clear();
  const auto line = [&](bool utf8) {
    for (const std::string& line :
         render_screen(status, "", {.columns = 100, .rows = 24, .color = false, .utf8 = utf8}))
      if (line.starts_with("stage 0")) return line;
    return std::string();
  };
  EXPECT_TRUE(line(false).ends_with("* peer-0 0 %  x peer-1 lost  o peer 2 joining"))
      << line(false);
  EXPECT_TRUE(line(true).ends_with("● peer-0 0 %  ✗ peer-1 lost  ○ peer 2 joining")) << line(true);
}

// Seven peers a stage have room on a common terminal.
TEST(Screen, UsesTheLinesThereAreForPeers) {
  const RunStatus status = busy_status(2, 7);
  std::string all;
  for (const std::string& line : render_screen(status, "", {.columns = 80, .rows = 24}))
    all += line + "\n";
  EXPECT_FALSE(all.contains("more")) << all;
  EXPECT_TRUE(all.contains("peer-6")) << all;
}

TEST(Screen, OnALowTerminalStagesStayAndLessMattersGoes) {
  std::string all;
  for (const std::string& line :
       render_screen(busy_status(3, 2), "note", {.columns = 40, .rows = 10, .color = false}))
    all += line + "\n";
  for (const char* part : {"step 143", "stage 0", "stage 2", "note"})
    EXPECT_TRUE(all.contains(part)) << part << "\n" << all;
  EXPECT_FALSE(all.contains("entropy")) << all;
}

TEST(Screen, SaysHowManyPeersAreMissing) {
  RunStatus status = busy_status(2, 1);
  status.state = "waiting";
  for (StageStatus& stage : status.stages) stage.wanted = 2;
  status.stages[1].peers[0].state = "lost";
  std::string all;
  for (const std::string& line : render_screen(status, "", {})) all += line + "\n";
  EXPECT_TRUE(all.contains("1 of 4 peers are here")) << all;
  EXPECT_TRUE(describe(status).contains("1 of 4 peers are here")) << describe(status);
}

// What matters in it stands at its end.
TEST(Screen, BreaksALongSentenceInsteadOfCuttingIt) {
  RunStatus status = busy_status(2, 2);
  status.sentence.clear();
  status.era_sentence =
      "era 1 begins with version 0 (the initial parameters): peer 2 \"b\" of stage 1 was lost: "
      "nothing was heard from it for 7.8 s; steps 0 to 144 are computed again";
  std::string all;
  for (const std::string& line :
       render_screen(status, "", {.columns = 80, .rows = 24, .color = false}))
    all += line + "\n";
  EXPECT_TRUE(all.contains("steps 0 to 144")) << all;
}

}  // namespace
}  // namespace swarmline
