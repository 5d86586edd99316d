#include "pipeline/protocol/run_status.h"

#include <gtest/gtest.h>

#include "node/summary.h"
#include "tests/golden/golden.h"

namespace swarmline {
namespace {

const std::string kGolden = "cli/status.json";

TEST(RunStatus, ReadsTheGoldenStatus) {
  auto status = parse_status(read_golden(kGolden));
  ASSERT_TRUE(status) << status.error().what;
  EXPECT_EQ(status->run, "quickstart");
  EXPECT_EQ(status->state, "training");
  EXPECT_EQ(status->step, 143U);
  EXPECT_EQ(status->steps, 400U);
  EXPECT_DOUBLE_EQ(*status->loss, 2.4312);
  EXPECT_FALSE(status->held_out_loss);
  EXPECT_EQ(status->refused,
            "peer 4 \"gpu-box\" of stage 1 (10.0.0.7:40001): this machine has no CUDA");
  EXPECT_TRUE(status->unprotected.starts_with("peer-b of stage 1: ")) << status->unprotected;
  EXPECT_EQ(status->segment, 2U);
  EXPECT_NE(describe(*status).find("segment 2 from step 101: optimizer.lr 0.003 -> 0.001"),
            std::string::npos);
  EXPECT_EQ(status->since_step, 40U);
  EXPECT_EQ(status->stages[1].peers[0].seconds_per_microbatch, 0.025);
  EXPECT_EQ(status->page, "http://127.0.0.1:40123/");
  EXPECT_FALSE(status->over());
  ASSERT_EQ(status->stages.size(), 2U);
  EXPECT_EQ(status->peers(), 3U);
  EXPECT_EQ(status->stages[1].peers[0].name, "peer-2");
  EXPECT_DOUBLE_EQ(status->stages[1].peers[0].share, 0.75);
  EXPECT_EQ(status->stages[1].peers[0].reach, "no");
  EXPECT_TRUE(status->balance_moves);
  EXPECT_EQ(status->balance_shadows, 2);
  EXPECT_EQ(status->stages[0].cost, 0.025);
  EXPECT_EQ(status->stages[0].state_bytes, 1234567U);
  const PeerStatus& moving = status->stages[0].peers[0];
  EXPECT_EQ(moving.speed, 1.25);
  EXPECT_TRUE(moving.arriving);
  EXPECT_EQ(moving.moves_to, 1);
  EXPECT_EQ(moving.barred, 0);
  EXPECT_EQ(moving.memory_bytes, 16000000000U);
  EXPECT_EQ(moving.shadow_memory_bytes, 2000000U);
  EXPECT_EQ(moving.slow_seconds, 3.5);
  EXPECT_EQ(moving.zone, "eu-1");
  EXPECT_EQ(moving.host, "gpu-box");
  ASSERT_EQ(status->relays.size(), 1U);
  EXPECT_EQ(status->relays[0].bytes, 123456789U);
  const std::string text = describe(*status);
  EXPECT_NE(text.find("  zone eu-1\n"), std::string::npos) << text;
  EXPECT_NE(text.find("relay relay-7 at 192.0.2.7:7401: 2 links, 123.5 MB passed on"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("takes no connections  2 links over relays, 12.3 MB sent"), std::string::npos)
      << text;
  EXPECT_EQ(text.find("0 links over relays"), std::string::npos) << text;
  ASSERT_EQ(status->boundaries.size(), 1U);
  EXPECT_EQ(status->boundaries[0].forward_codec_bytes, 4194304U);
  EXPECT_EQ(status->boundaries[0].gradients, 64U);
  EXPECT_EQ(status->boundaries[0].forward_codec, "h8");
  EXPECT_EQ(status->boundaries[0].forward_error, 0.006);
  EXPECT_EQ(status->boundaries[0].forward_bytes_per_second, 125e6);
  EXPECT_FALSE(status->boundaries[0].backward_error);
  EXPECT_EQ(status->losses.size(), 4U);
}

TEST(RunStatus, SaysWhatTheRunCosts) {
  auto status = parse_status(read_golden(kGolden));
  ASSERT_TRUE(status && status->cost);
  EXPECT_EQ(status->cost->steps_again, 43U);
  const std::string text = describe(*status);
  for (const char* line :
       {"  cost 12.50 of 20.00 USD   1.92 an hour   21,341.00 a billion tokens   0.0136 of 12 "
        "hours\n",
        "    0.121 USD a step, counted since step 40\n",
        "    paid for peers 11.00 USD, coordinator 0.5 USD, egress 1.00 USD for 12.3 GB\n",
        "    waste idle peers 20.0 %, waiting to train 4.0 %, steps computed again 8.0 %, fetched "
        "states 2.0 %\n",
        "    1 peer says no price: it is not in the cost\n"})
    EXPECT_TRUE(text.contains(line)) << line << text;
  status->cost.reset();
  EXPECT_FALSE(describe(*status).contains("cost")) << "nobody says a price";
}

TEST(RunStatus, SaysThatItsBudgetIsSpent) {
  RunStatus status{.elapsed_seconds = 7200};
  EXPECT_FALSE(status.budget_is_spent());
  status.cost = CostStatus{.total = 19.9, .budget = 20, .budget_hours = 2.5};
  EXPECT_FALSE(status.budget_is_spent());
  status.cost->total = 20;
  EXPECT_TRUE(status.budget_is_spent());
  status.cost->total = 1;
  status.cost->budget_hours = 2;
  EXPECT_TRUE(status.budget_is_spent());
}

TEST(RunStatus, IsWrittenAsItIsRead) {
  auto status = parse_status(read_golden(kGolden));
  ASSERT_TRUE(status) << status.error().what;
  expect_golden(kGolden, to_json(*status) + "\n");
}

TEST(RunStatus, RefusesAnotherFormatAndNonsense) {
  auto newer = parse_status(R"({"format":2})");
  ASSERT_FALSE(newer);
  EXPECT_EQ(newer.error().code, ErrorCode::kIncompatible);
  EXPECT_NE(newer.error().what.find("format 2"), std::string::npos);
  EXPECT_FALSE(parse_status("training"));
  EXPECT_FALSE(parse_status("[]"));
}

TEST(RunStatus, MissingMembersAreAbsentNotZero) {
  auto status = parse_status(R"({"format":1,"loss":null,"bigram_entropy":0})");
  ASSERT_TRUE(status);
  EXPECT_FALSE(status->loss);
  EXPECT_FALSE(status->bigram_entropy);
  EXPECT_EQ(plain_line(*status), "step 0/0  loss -  - tokens/s  ETA -  0 in flight");
}

TEST(Summary, APeerIsCalledByItsName) {
  auto status = parse_status(read_golden(kGolden));
  ASSERT_TRUE(status);
  const std::string text = describe(*status);
  EXPECT_NE(text.find("    peer-2 (peer 2)  "), std::string::npos) << text;
  EXPECT_NE(text.find("  stage 0  layers 0-3\n"), std::string::npos) << text;
}

TEST(Summary, OfARunThatIsOverNobodyIsReady) {
  auto status = parse_status(read_golden(kGolden));
  ASSERT_TRUE(status);
  ASSERT_NE(describe(*status).find(" ready "), std::string::npos);
  for (const char* state : {"done", "stopped", "failed"}) {
    status->state = state;
    const std::string text = describe(*status);
    EXPECT_EQ(text.find(" ready "), std::string::npos) << text;
    EXPECT_NE(text.find(" ended "), std::string::npos) << text;
  }
}

TEST(Summary, SaysWhatIsUnprotectedAndWhatWentWrongLately) {
  auto status = parse_status(read_golden(kGolden));
  ASSERT_TRUE(status);
  status->wall_seconds = 1000;
  status->events = {{.wall_seconds = 940, .kind = "start", .detail = "4 peers", .level = "info"},
                    {.wall_seconds = 970,
                     .kind = "peer_lost",
                     .detail = "gpu-box (peer 3, stage 1): closed",
                     .level = "warn"}};
  const std::string text = describe(*status);
  EXPECT_NE(text.find("  unprotected: peer-b of stage 1: "), std::string::npos) << text;
  EXPECT_NE(text.find("  30s ago  peer lost: gpu-box (peer 3, stage 1): closed\n"),
            std::string::npos)
      << text;
  EXPECT_EQ(text.find("4 peers"), std::string::npos) << "that is no trouble: " << text;
}

// Tokens, seconds and their quotient are of the same steps.
TEST(Summary, CountsTokensAndSecondsOfOneSpan) {
  RunStatus status{.run = "t", .state = "done", .step = 400, .steps = 400};
  status.tokens = 204'800;
  status.elapsed_seconds = 20;
  status.mean_tokens_per_second = 10'240;
  const RunFolder folder("runs/t");
  EXPECT_TRUE(
      summary(status, folder, true)
          .starts_with("Run t: 400 of 400 steps, 204,800 tokens in 20s (10,240 tokens/s)\n"))
      << summary(status, folder, true);
  status.since_step = 50;
  status.mean_tokens_per_second = 179'200 / 20.0;
  EXPECT_TRUE(summary(status, folder, true)
                  .starts_with("Run t: 400 of 400 steps, 179,200 tokens in 20s (8,960 tokens/s) "
                               "since step 50\n"))
      << summary(status, folder, true);
}

TEST(Summary, ADrainedRunSaysHowToGoOnAndQuotesItsPath) {
  RunStatus status{.run = "t", .state = "done", .step = 19, .steps = 60};
  const std::string text = summary(status, RunFolder("my runs/t"), false);
  EXPECT_NE(text.find("Next:\n  swarmline launch 'my runs/t/config.toml'\n"), std::string::npos)
      << text;
  status.step = 60;
  const std::string whole = summary(status, RunFolder("my runs/t"), true);
  EXPECT_NE(whole.find("swarmline launch 'my runs/t/config.toml' --reference\n"), std::string::npos)
      << whole;
  EXPECT_NE(whole.find("swarmline checkpoint diff 'my runs/t' 'my runs/t-reference'\n"),
            std::string::npos)
      << whole;
}

TEST(Summary, SaysWhoFetchesTheData) {
  auto status = parse_status(read_golden(kGolden));
  ASSERT_TRUE(status);
  EXPECT_EQ(describe(*status).find("fetches"), std::string::npos);
  status->stages[0].peers[0].data = "fetches its data from peer 3: 12 of 240 pieces";
  EXPECT_NE(describe(*status).find("fetches its data from peer 3: 12 of 240 pieces\n"),
            std::string::npos)
      << describe(*status);
}

TEST(Summary, ComparesWithTheEntropiesOfTheData) {
  auto status = parse_status(read_golden(kGolden));
  ASSERT_TRUE(status);
  const RunFolder folder("runs/quickstart");
  status->held_out_loss = *status->bigram_entropy - 0.1;
  EXPECT_NE(summary(*status, folder, true).find("below the bigram entropy: it predicts"),
            std::string::npos);
  status->held_out_loss = *status->bigram_entropy + 0.1;
  const std::string text = summary(*status, folder, true);
  EXPECT_NE(text.find("not yet below"), std::string::npos);
  EXPECT_NE(text.find("boundary 0->1   64.0 KiB forward, 64.0 KiB back a microbatch"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("framing 0.50 %"), std::string::npos) << text;
  EXPECT_NE(text.find("Next:"), std::string::npos);
  EXPECT_EQ(summary(*status, folder, false).find("Next:"), std::string::npos);
}

}  // namespace
}  // namespace swarmline
