// `swarmline fleet plan` without the program: the model's laws, the file, the report. How close
// predictions come is in tests/bench/fleet_prediction_test.cc.
#include <algorithm>

#include <gtest/gtest.h>

#include "balancer/cut.h"
#include "engine/config/load.h"
#include "engine/store/files.h"
#include "engine/store/json_value.h"
#include "node/stage_memory.h"
#include "pipeline/protocol/run_status.h"
#include "tests/golden/golden.h"
#include "tests/store/temp_folder.h"
#include "tools/predict/fleet_prediction_report.h"
#include "tools/predict/fleet_prices.h"

namespace swarmline {
namespace {

constexpr const char* kRun = R"(config_version = 1
[run]
name = "fleet-test"
[model]
layers = 8
d_model = 256
vocab = 512
[data]
files = ["x"]
[batch]
batch = 256
microbatch = 1
sequence = 128
[pipeline]
stages = 4
)";

FleetQuestion question_of(std::vector<FleetClass> classes) {
  FleetQuestion question;
  question.config = *run_config_from_text(kRun, "t");
  question.model = *resolve_model(question.config, 512);
  question.classes = std::move(classes);
  return question;
}
FleetClass devices(std::uint32_t count, double tflops) {
  return {.name = "device", .count = count, .flops_per_second = tflops * 1e12};
}

TEST(PredictFleet, TwiceAsFastDevicesTrainTwiceAsMuch) {
  const auto one = predict_fleet(question_of({devices(8, 0.01)}));
  const auto two = predict_fleet(question_of({devices(8, 0.02)}));
  ASSERT_TRUE(one && two);
  EXPECT_NEAR(two->tokens_per_second / one->tokens_per_second, 2, 1e-6);
  EXPECT_EQ(one->bottleneck, FleetPart::kDevices);
}

TEST(PredictFleet, NoDeviceIsMoreThanBusyAndNothingIsFasterThanItsBound) {
  for (const double tflops : {0.001, 0.1, 10.0}) {
    for (const double bits : {0.0, 1e7, 1e9}) {
      FleetClass some = devices(6, tflops), others = devices(5, tflops / 7);
      some.bits_per_second = bits;
      others.bits_per_second = bits / 3;
      others.latency_seconds = 0.05;
      const auto predicted = predict_fleet(question_of({some, others}));
      ASSERT_TRUE(predicted);
      double serving = 0;
      for (const FleetStage& stage : predicted->stages) {
        EXPECT_LE(stage.device_busy, 1 + 1e-9);
        EXPECT_LE(stage.link_busy, 1 + 1e-9);
        EXPECT_GT(stage.device_busy, 0);
        for (const std::uint32_t count : stage.seats) serving += count;
      }
      EXPECT_EQ(serving, 11);
      EXPECT_GT(predicted->drain_seconds, 0);
      EXPECT_GT(predicted->step_seconds, predicted->batch_seconds);
    }
  }
}

TEST(PredictFleet, NamesWhatAStepWaitsFor) {
  FleetQuestion slow_stage = question_of({devices(7, 1), devices(1, 0.01)});
  slow_stage.seats = {{2, 0}, {2, 0}, {0, 1}, {2, 0}};
  auto predicted = predict_fleet(slow_stage);
  ASSERT_TRUE(predicted);
  EXPECT_EQ(predicted->bottleneck, FleetPart::kDevices);
  EXPECT_EQ(predicted->bottleneck_stage, 2U);

  FleetQuestion thin = question_of({devices(4, 100)});
  thin.classes[0].bits_per_second = 1e7;
  predicted = predict_fleet(thin);
  ASSERT_TRUE(predicted);
  EXPECT_EQ(predicted->bottleneck, FleetPart::kLinks);
  EXPECT_TRUE(predicted->bottleneck_stage == 1 || predicted->bottleneck_stage == 2)
      << "the middle sends both ways";

  thin.classes[0].count = 64;  // parameters to average, hardly any activations
  thin.config.batch.batch = 64;
  predicted = predict_fleet(thin);
  ASSERT_TRUE(predicted);
  EXPECT_EQ(predicted->bottleneck, FleetPart::kAveraging);

  FleetQuestion far = question_of({devices(4, 100)});
  far.classes[0].latency_seconds = 0.2;
  predicted = predict_fleet(far);
  ASSERT_TRUE(predicted);
  EXPECT_EQ(predicted->bottleneck, FleetPart::kLatency);
}

TEST(PredictFleet, RefusesWhatItCannotPredict) {
  const auto few = predict_fleet(question_of({devices(3, 1)}));
  ASSERT_FALSE(few);
  EXPECT_EQ(few.error().code, ErrorCode::kUserMistake);
  FleetQuestion ordered = question_of({devices(8, 1)});
  ordered.config.pipeline.wiring = WiringKind::kStatic;
  EXPECT_TRUE(predict_fleet(ordered));
  ordered.config.pipeline.order = OrderKind::kGPipe;
  EXPECT_FALSE(predict_fleet(ordered));
}

TEST(PredictFleet, FixedRoutesWaitForTheSlowest) {
  FleetQuestion question = question_of({devices(4, 1), devices(4, 0.1)});
  question.seats = {{1, 1}, {1, 1}, {1, 1}, {1, 1}};
  const auto wired = predict_fleet(question);
  question.config.pipeline.wiring = WiringKind::kStatic;
  const auto fixed = predict_fleet(question);
  ASSERT_TRUE(wired && fixed);
  EXPECT_GT(wired->tokens_per_second, 3 * fixed->tokens_per_second);
}

TEST(PredictFleet, BytesBetweenPeersCostTheirSendersPrice) {
  FleetQuestion question = question_of({devices(6, 1), devices(2, 2)});
  question.config.codec.forward = "none";
  question.config.codec.backward = "bf16";
  constexpr double kTilesMax = 0.002;  // share of what is sent: tiles' headers
  const auto free = predict_fleet(question);
  ASSERT_TRUE(free);
  // 256 microbatches over 3 boundaries: 128 x 256 activations of 4 bytes, gradients of 2.
  EXPECT_NEAR(free->traffic.boundary_bytes, 256.0 * 3 * 128 * 256 * (4 + 2),
              kTilesMax * free->traffic.boundary_bytes);
  double parameters = 0;  // every member but one sends a stage's gradient and its sum
  for (const FleetStage& stage : free->stages) {
    const std::uint32_t members = stage.seats[0] + stage.seats[1];
    parameters +=
        static_cast<double>(make_layout(question.model, stage.stage).elements) * (members - 1);
  }
  EXPECT_NEAR(free->traffic.averaging_bytes, 2 * 4 * parameters,
              kTilesMax * free->traffic.averaging_bytes);
  EXPECT_EQ(free->dollars_per_billion_tokens, 0);

  for (FleetClass& machine : question.classes) machine.egress_dollars_per_gb = 0.09;
  const auto paid = predict_fleet(question);
  ASSERT_TRUE(paid);
  EXPECT_NEAR(paid->traffic.dollars, 0.09 * free->traffic.bytes() / 1e9, 1e-9);
  EXPECT_NEAR(paid->egress_dollars_per_hour, paid->traffic.dollars * 3600 / paid->step_seconds,
              1e-9);
  EXPECT_NEAR(paid->dollars_per_billion_tokens,
              paid->traffic.dollars / static_cast<double>(question.config.tokens_per_step()) * 1e9,
              1e-6);
  question.classes[1].egress_dollars_per_gb = 0;
  EXPECT_LT(predict_fleet(question)->traffic.dollars, paid->traffic.dollars);
}

bool names(const std::vector<FleetChange>& changes, std::string_view what) {
  return std::ranges::any_of(changes, [&](const FleetChange& change) {
    return change.what.find(what) != std::string::npos && change.gain > 0;
  });
}

TEST(FleetChanges, ACodecWhereLinksAreTheLimitAMoveWhereAStageIs) {
  FleetQuestion thin = question_of({devices(8, 100)});
  thin.classes[0].bits_per_second = 1e7;
  auto changes = fleet_changes(thin, *predict_fleet(thin));
  EXPECT_TRUE(names(changes, "codec.forward and codec.backward"));
  EXPECT_TRUE(std::ranges::is_sorted(changes, std::greater<>(), &FleetChange::gain));

  FleetQuestion uneven = question_of({devices(8, 0.01)});
  uneven.seats = {{3}, {1}, {2}, {2}};
  changes = fleet_changes(uneven, *predict_fleet(uneven));
  EXPECT_TRUE(names(changes, "move device from stage 0 to 1"));
  EXPECT_FALSE(names(changes, "codec."));
}

TEST(FleetChanges, MoreLayersWhereDevicesAreFaster) {
  // One of each stage: two are seven times as fast, and stand still most of the time.
  FleetQuestion question = question_of({devices(2, 0.07), devices(2, 0.01)});
  const FleetPrediction now = *predict_fleet(question);
  for (const FleetChange& change : fleet_changes(question, now)) {
    if (!change.what.starts_with("pipeline.layers = [")) continue;
    EXPECT_GT(change.gain, 0.5);
    // The ends have more to do than layers: who serves them is as fast as before.
    const std::string layers = change.what.substr(0, change.what.find(']') + 1);
    const auto config = run_config_from_text(std::string(kRun) + layers.substr(9) + "\n", "t");
    ASSERT_TRUE(config) << config.error().what;
    question.config.pipeline.layers = config->pipeline.layers;
    const FleetPrediction with = *predict_fleet(question);
    EXPECT_EQ(with.tokens_per_second, change.tokens_per_second);
    for (const FleetStage& stage : with.stages) {
      const auto count = stage.stage.last_layer - stage.stage.first_layer;
      EXPECT_EQ(stage.seats[0] > 0, count > 2) << "stage " << stage.stage.stage.value;
    }
    return;
  }
  FAIL() << "equal layers on unequal devices are no good cut";
}

TEST(FleetChanges, EqualDevicesKeepTheirCut) {
  const FleetQuestion question = question_of({devices(4, 0.01)});
  EXPECT_FALSE(names(fleet_changes(question, *predict_fleet(question)), "pipeline.layers"));
}

TEST(PredictFleet, NobodyIsSeatedWhereItDoesNotFit) {
  FleetQuestion question = question_of({devices(4, 1), devices(4, 1)});
  question.config.pipeline.layers = {5, 1, 1, 1};
  question.classes[0].memory_bytes = std::uint64_t{1} << 40;
  question.classes[1].memory_bytes = std::uint64_t{1} << 40;
  const std::uint32_t before = predict_fleet(question)->stages[0].seats[1];
  ASSERT_GT(before, 0U);
  RunConfig config = question.config;
  config.pipeline.peers.assign(4, 1);
  const auto cut = cut_layers(model_costs(question.model), {.stages = 4, .layers = {5, 1, 1, 1}});
  ASSERT_TRUE(cut);
  const auto needed = [&](std::uint32_t s) {
    return cuda_peer_memory({.config = config, .model = question.model, .cut = *cut, .stage = s},
                            true)
        .device.total();
  };
  question.classes[1].memory_bytes = needed(0) - 1;
  ASSERT_GE(question.classes[1].memory_bytes, needed(1));
  const auto predicted = predict_fleet(question);
  ASSERT_TRUE(predicted) << predicted.error().what;
  EXPECT_EQ(predicted->stages[0].seats[1], 0U);
  question.classes[0].memory_bytes = needed(0) - 1;
  const auto none = predict_fleet(question);
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().what.find("too few peers have that"), std::string::npos);
}

TEST(FleetChanges, TheyAreWhatThePredictionOfTheChangedRunSays) {
  FleetQuestion question = question_of({devices(8, 1)});
  question.classes[0].bits_per_second = 1e8;
  for (const FleetChange& change : fleet_changes(question, *predict_fleet(question))) {
    if (change.what != "codec.averaging = \"h4\"") continue;
    question.config.codec.averaging = "h4";
    EXPECT_EQ(predict_fleet(question)->tokens_per_second, change.tokens_per_second);
    return;
  }
  FAIL() << "averaging fp32 over 100 Mb/s is worth a codec";
}

// ---- The file -----------------------------------------------------------------------------------

std::string refused(const std::string& text) {
  const TempFolder folder;
  const std::string path = folder.path() + "/fleet.toml";
  EXPECT_TRUE(write_text_file_atomically(path, text));
  const auto question = load_fleet_question(*run_config_from_text(kRun, "t"), "run.toml", path, "");
  if (question) return "taken";
  EXPECT_EQ(question.error().code, ErrorCode::kUserMistake) << question.error().what;
  return question.error().what.substr(folder.path().size() + 1);
}

TEST(FleetFile, MistakesGetOneSentenceWithTheirLine) {
  const std::string head = "fleet_format = 1\n";
  EXPECT_EQ(refused("\n"),
            "fleet.toml: found no fleet_format; write fleet_format = 1 as its first line");
  EXPECT_EQ(refused("fleet_format = 2\n"),
            "fleet.toml:1: fleet_format: found 2, this program reads 1");
  EXPECT_EQ(refused("fleet_format = 1\nrun = \"run.toml\"\n"),
            "fleet.toml:2: run: the run is not named here any more; remove the line and write "
            "swarmline fleet plan RUN.toml --prices FILE");
  EXPECT_EQ(refused(head),
            "fleet.toml: expected [devices.NAME] sections or --status FILE, one of them");
  EXPECT_EQ(refused(head + "[device]\ncount = 1\n"),
            "fleet.toml:2: device: there is no such section; there are defaults and devices");
  EXPECT_EQ(refused(head + "[devices.a]\ncount = 1\ntflop = 3\n"),
            "fleet.toml:4: devices.a.tflop: there is no such key; did you mean tflops?");
  EXPECT_EQ(refused(head + "[devices.a]\ncount = 1.5\ntflops = 3\n"),
            "fleet.toml:3: devices.a.count: found 1.5, expected a whole number from 1 to 10000");
  EXPECT_EQ(refused(head + "[devices.a]\ncount = 1\ntflops = 0\n"),
            "fleet.toml:4: devices.a.tflops: found 0, expected a number above 0");
  EXPECT_EQ(
      refused(head + "[devices.a]\ncount = 1\ntflops = 3\nforward_ms = 1\nbackward_ms = 2\n"),
      "fleet.toml:3: devices.a: expected either tflops, as reached in training, or forward_ms "
      "and backward_ms, of one layer and one microbatch");
  EXPECT_EQ(refused(head + "[devices.a]\ntflops = 3\n"),
            "fleet.toml:3: devices.a: expected a count of peers");
  EXPECT_EQ(refused(head + "[defaults]\ncount = 3\n"),
            "fleet.toml:3: defaults.count: there is no such key; there are price, on_demand_price, "
            "bandwidth, latency_ms, egress_price");
  EXPECT_EQ(
      refused(head + "[devices]\nt4 = 3\n"),
      "fleet.toml:3: devices.t4: expected a section of its own; write for example [devices.t4]");
  EXPECT_NE(refused(head + "[devices.a\n").find("not TOML"), std::string::npos);
  EXPECT_EQ(refused(head + "[devices.a]\ncount = 1\ntflops = 3\n"), "taken");
}

TEST(FleetFile, EgressCostsWhatTheFileSaysOrTheRun) {
  const TempFolder folder;
  const std::string path = folder.path() + "/fleet.toml";
  const auto prices = [&](const std::string& defaults) {
    EXPECT_TRUE(write_text_file_atomically(
        path, "fleet_format = 1\n" + defaults + "[devices.a]\ncount = 1\ntflops = 3\n" +
                  "[devices.b]\ncount = 1\ntflops = 3\negress_price = 0\n"));
    const auto question = load_fleet_question(
        *run_config_from_text(kRun + std::string("[money]\negress_price = 0.12\n"), "t"),
        "run.toml", path, "");
    EXPECT_TRUE(question) << question.error().what;
    return std::pair(question->classes[0].egress_dollars_per_gb,
                     question->classes[1].egress_dollars_per_gb);
  };
  EXPECT_EQ(prices(""), std::pair(0.12, 0.0));
  EXPECT_EQ(prices("[defaults]\negress_price = 0.09\n"), std::pair(0.09, 0.0));
}

TEST(FleetFile, MillisecondsOfALayerAreFlopsPerSecondOfIt) {
  const TempFolder folder;
  const std::string path = folder.path() + "/fleet.toml";
  ASSERT_TRUE(write_text_file_atomically(
      path,
      "fleet_format = 1\n[defaults]\nprice = 0.5\nbandwidth = 1e8\n"
      "[devices.a]\ncount = 4\nforward_ms = 10\nbackward_ms = 30\nlatency_ms = 7\n"
      "[devices.b]\ncount = 2\ntflops = 3\nbandwidth = 5\n"));
  const auto question = load_fleet_question(*run_config_from_text(kRun, "t"), "run.toml", path, "");
  ASSERT_TRUE(question) << question.error().what;
  ASSERT_EQ(question->classes.size(), 2U);
  const FleetClass& a = question->classes[0];
  EXPECT_EQ(a.name, "a");
  EXPECT_EQ(a.count, 4U);
  EXPECT_NEAR(model_costs(question->model).layer_flops[0] / a.flops_per_second, 0.04, 1e-12);
  EXPECT_EQ(a.forward_share, 0.25);
  EXPECT_EQ(a.dollars_per_hour, 0.5);
  EXPECT_EQ(a.bits_per_second, 1e8);
  EXPECT_EQ(a.latency_seconds, 0.007);
  EXPECT_EQ(question->classes[1].flops_per_second, 3e12);
  EXPECT_EQ(question->classes[1].bits_per_second, 5);
  EXPECT_EQ(question->classes[1].latency_seconds, 0);
}

TEST(FleetFile, AStatusSaysWhoServesWhatAndHowFast) {
  const TempFolder folder;
  RunStatus status{.run = "fleet-test", .state = "training", .elapsed_seconds = 100};
  for (std::uint64_t s = 0; s < 4; ++s) {
    StageStatus stage{.stage = s, .first_layer = 2 * s, .last_layer = 2 * s + 2, .wanted = 2};
    for (std::uint64_t r = 0; r < 2; ++r)
      stage.peers.push_back({.peer = 2 * s + r + 1,
                             .state = s == 3 && r == 1 ? "lost" : "ready",
                             .seconds_per_microbatch = 0.5 / static_cast<double>(r + 1)});
    status.stages.push_back(stage);
    if (s > 0)
      status.boundaries.push_back(
          {.from = s - 1, .to = s, .forward_bytes_per_second = s == 1 ? 1e6 : 0});
  }
  const std::string file = folder.path() + "/fleet.toml";
  const std::string json = folder.path() + "/status.json";
  ASSERT_TRUE(write_text_file_atomically(file, "fleet_format = 1\n[defaults]\nbandwidth = 3e7\n"));
  ASSERT_TRUE(write_text_file_atomically(json, to_json(status)));
  const auto question =
      load_fleet_question(*run_config_from_text(kRun, "t"), "run.toml", file, json);
  ASSERT_TRUE(question) << question.error().what;
  ASSERT_EQ(question->classes.size(), 7U);
  EXPECT_EQ(question->seats[1], (std::vector<std::uint32_t>{0, 0, 1, 1, 0, 0, 0}));
  EXPECT_EQ(question->seats[3], (std::vector<std::uint32_t>{0, 0, 0, 0, 0, 0, 1}));
  EXPECT_NEAR(question->classes[1].flops_per_second / question->classes[0].flops_per_second, 2,
              1e-9);
  EXPECT_EQ(question->classes[0].bits_per_second, 8e6) << "measured at its boundary";
  EXPECT_EQ(question->classes[2].bits_per_second, 3e7) << "not measured";
  EXPECT_TRUE(predict_fleet(*question));

  status.stages[2].peers[0].seconds_per_microbatch = 0;
  ASSERT_TRUE(write_text_file_atomically(json, to_json(status)));
  const auto early = load_fleet_question(*run_config_from_text(kRun, "t"), "run.toml", file, json);
  ASSERT_FALSE(early);
  EXPECT_EQ(early.error().code, ErrorCode::kUserMistake);
  EXPECT_NE(early.error().what.find(" of the status has not computed yet"), std::string::npos);
}

TEST(FleetReport, OfTheExampleIsTheGoldenOne) {
  const std::string root = SWARMLINE_SOURCE_DIR;
  const auto config = load_run_config(root + "/configs/gpt2_small.toml");
  ASSERT_TRUE(config) << config.error().what;
  const auto question = load_fleet_question(*config, "gpt2_small.toml",
                                            root + "/configs/fleets/t4_and_a100.toml", "");
  ASSERT_TRUE(question) << question.error().what;
  const auto prediction = predict_fleet(*question);
  ASSERT_TRUE(prediction) << prediction.error().what;
  const auto changes = fleet_changes(*question, *prediction);
  const std::string text = fleet_prediction_text(*question, *prediction, changes);
  const std::string json = fleet_prediction_json(*question, *prediction, changes);
  const auto parsed = parse_json(json);
  ASSERT_TRUE(parsed) << parsed.error().what;
  EXPECT_EQ((*parsed)["tokens_per_second"].number, prediction->tokens_per_second);
  expect_golden("fleet/prediction.txt", text);
  expect_golden("fleet/prediction.json", json);
}

}  // namespace
}  // namespace swarmline
