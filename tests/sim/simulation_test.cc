// Scenarios: what is read, what is refused and how, and what simulating them gives.
#include "sim/scenario/simulation.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "compression/codec.h"

namespace swarmline {
namespace {

// Two stages of two layers, eight equal machines, links that cost next to nothing.
const std::string kQuiet = R"(scenario_format = 1
[scenario]
seconds = 120
[model]
layers = 4
d_model = 256
heads = 4
tied_embeddings = false
[batch]
batch = 64
sequence = 128
microbatch = 1
[pipeline]
stages = 2
[codec]
forward = "none"
backward = "none"
[machines.gpu]
count = 8
forward_ms = 20
backward_ms = 40
)";

Scenario scenario(const std::string& text) {
  auto parsed = parse_scenario(text, "s.toml", SWARMLINE_SOURCE_DIR "/configs/scenarios");
  EXPECT_TRUE(parsed.has_value()) << parsed.error().what;
  return parsed ? *parsed : Scenario();
}
ScenarioResult result_of(const std::string& text) {
  auto result = simulate(scenario(text));
  EXPECT_TRUE(result.has_value()) << result.error().what;
  if (!result) return {};
  EXPECT_TRUE(result->findings.empty()) << result->findings.front();
  return *result;
}

std::string mistake(const std::string& text) {
  const auto parsed = parse_scenario(text, "s.toml", ".");
  EXPECT_FALSE(parsed.has_value());
  if (parsed) return {};
  EXPECT_EQ(parsed.error().code, ErrorCode::kUserMistake);
  return parsed.error().what;
}

TEST(Scenario, MistakesAreOneSentenceWithTheirLine) {
  EXPECT_EQ(mistake("a = 1\n"), "s.toml: no line \"scenario_format = 1\": not a scenario");
  EXPECT_EQ(mistake("scenario_format = 2\n"), "s.toml: scenario_format is 2, this program reads 1");
  const auto with = [](const std::string& more) { return mistake(kQuiet + more); };
  EXPECT_EQ(with("cuont = 2\n"),
            "s.toml:22: machines.gpu.cuont: there is no such key; did you mean gpu.count?");
  EXPECT_EQ(with("price = \"much\"\n"),
            "s.toml:22: machines.gpu.price: found \"much\", expected a number from 0 to 1000000");
  EXPECT_EQ(with("tflops = 3\n"),
            "s.toml:22: machines.gpu.tflops: machine \"gpu\" needs its speed: either tflops, or "
            "forward_ms and backward_ms");
  EXPECT_EQ(with("[faults.one]\nkind = \"frees\"\n"),
            "s.toml:23: faults.one.kind: found \"frees\", expected one of kill, restart, freeze, "
            "slow, partition, one-way, reset, join, broken-join, drain, stage, corrupt, stall, "
            "power-loss, isolate, mute, deaf, half-open, half-way, full, zone-loss, "
            "disk-full, disk-error, disk-slow, disk-stuck, "
            "journal-error, journal-slow, journal-silent, store-cut");
  EXPECT_EQ(with("[faults.one]\nkind = \"kill\"\nmachine = 9\n"),
            "s.toml:24: faults.one.machine: found 9, expected a whole number from 1 to 8");
  EXPECT_EQ(with("[faults.one]\nkind = \"kill\"\nmachine = \"coordinator\"\n"),
            "s.toml:24: faults.one.machine: found \"coordinator\", which can be stopped, "
            "restarted, cut off or corrupt, or have a journal that fails, but not this; "
            "expected the number of a machine");
  // A run's keys keep their lines.
  EXPECT_EQ(with("[optimizer]\nlr = -1\n").substr(0, 26), "s.toml:23: optimizer.lr: f");
  EXPECT_NE(mistake("scenario_format = 1\n[pipeline]\nstages = 2\n").find("machines"),
            std::string::npos);
}

TEST(Simulation, AQuietSwarmReachesItsOptimumAndWastesNothing) {
  std::string text = kQuiet;
  text.replace(text.find("batch = 64"), 10, "batch = 256");
  const ScenarioResult result = result_of(text);
  EXPECT_FALSE(result.ended_badly) << result.sentence;
  // Four machines a stage, 60 ms a microbatch.
  EXPECT_NEAR(result.samples.front().optimum, 4 / 0.060, 1e-9);
  EXPECT_GT(result.share_of_optimum(), 0.95);
  EXPECT_LE(result.share_of_optimum(), 1);
  EXPECT_EQ(result.passes_done, result.passes_counted);
  EXPECT_EQ(result.passes_counted, 2 * 2 * result.microbatches);
  EXPECT_NEAR(result.machine_hours, 8 * 120.0 / 3600, 1e-9);
}

TEST(Simulation, BytesAreThoseOfTheTensors) {
  const ScenarioResult result = result_of(kQuiet);
  const auto boundary =
      static_cast<double>(encoded_bytes({}, std::uint64_t{256} * 128, DType::kF32));  // as they are
  EXPECT_EQ(static_cast<double>(result.boundary_bytes), boundary);
  const auto microbatches = static_cast<double>(result.microbatches);
  EXPECT_GE(result.traffic.activations, microbatches * boundary);
  EXPECT_LE(result.traffic.activations, (microbatches + 64) * (boundary + 1024));
  EXPECT_GE(result.traffic.gradients, microbatches * boundary);
  // Butterfly: each of n members sends and takes (n - 1) / n of the gradient twice.
  const double gradient = 4.0 * static_cast<double>(result.parameters);
  EXPECT_NEAR(result.traffic.averaging / static_cast<double>(result.steps), 2 * 3 * gradient,
              0.2 * gradient);
}

// Tensors wait for each other on links that take longer for them than a hop may: what is sent again
// makes them wait longer still, until nothing comes in time.
TEST(Simulation, WhatSlowLinksDelayIsNotSentAgainAndAgain) {
  const ScenarioResult result =
      result_of(kQuiet + "bandwidth_mbit = 1\n[wiring]\nhop_timeout_seconds = 4\n" +
                "[checkpoint]\nevery_minutes = 0\n");
  const double boundary = static_cast<double>(result.boundary_bytes);
  EXPECT_GT(result.microbatches, 0U);
  EXPECT_LT(result.traffic.activations,
            1.3 * (static_cast<double>(result.microbatches) + 64) * boundary);
  EXPECT_LT(static_cast<double>(result.passes_done),
            1.1 * static_cast<double>(result.passes_counted) + 4 * 64);
}

// A stage's part of a checkpoint, 13 GB, takes longer than an answer of the coordinator may.
TEST(Simulation, ALargeModelSavesItselfOverSlowLinks) {
  std::string text = kQuiet + "bandwidth_mbit = 1000\n[checkpoint]\nevery_minutes = 10\n";
  text.replace(text.find("layers = 4"), 10, "layers = 8");
  text.replace(text.find("d_model = 256"), 13, "d_model = 8192");
  text.replace(text.find("seconds = 120"), 13, "seconds = 3600");
  const ScenarioResult result = result_of(text);
  EXPECT_EQ(result.lost, 0U);
  EXPECT_GT(result.steps, 2U);
  const double checkpoint = 4.0 * static_cast<double>(result.parameters);
  EXPECT_GE(result.traffic.checkpoints, checkpoint);
  EXPECT_LE(result.traffic.checkpoints, 6 * checkpoint) << "each part once";
}

TEST(Simulation, SlowLinksAndSlowMachinesCostWhatTheyCost) {
  const double quiet = static_cast<double>(result_of(kQuiet).microbatches);
  // 131 kB up and down a microbatch, at 4 Mbit/s: 3.8 a second a machine at most.
  const auto narrow = result_of(kQuiet + "bandwidth_mbit = 4\n");
  EXPECT_LT(static_cast<double>(narrow.microbatches), 0.6 * quiet);
  EXPECT_DOUBLE_EQ(narrow.samples.front().optimum, 4 / 0.060);
  const std::string slow =
      "[faults.s]\nkind = \"slow\"\nmachine = 1\nfactor = 4\nfor_seconds = 999\n";
  const auto slowed = result_of(kQuiet + slow);
  EXPECT_NEAR(slowed.samples.back().optimum, 3.25 / 0.060, 1e-9);
  EXPECT_LT(static_cast<double>(slowed.microbatches), quiet);
}

TEST(ZoneLinks, AreReadOrRefusedWithTheirLine) {
  const auto links =
      parse_zone_links("# swarmline links: 1\n# name: three\nb a 5 100\n\na c 80 10\n",
                       std::chrono::milliseconds(2));
  ASSERT_TRUE(links.has_value()) << links.error().what;
  EXPECT_EQ(links->name, "three");
  for (const auto& [from, to] : {std::pair("a", "b"), std::pair("b", "a")}) {
    const SimLink* const link = links->between(from, to);
    ASSERT_NE(link, nullptr);
    EXPECT_EQ(link->latency, std::chrono::milliseconds(5));
    EXPECT_EQ(link->jitter, std::chrono::milliseconds(2));
    EXPECT_EQ(link->bytes_per_second, 12.5e6);
  }
  EXPECT_EQ(links->between("b", "c"), nullptr);
  EXPECT_EQ(links->between("a", "a"), nullptr);
  EXPECT_TRUE(links->knows("c"));
  EXPECT_FALSE(links->knows("d"));
  const auto refused = [](const std::string& text) {
    const auto parsed = parse_zone_links("# swarmline links: 1\n" + text, Duration{});
    return parsed ? "read" : parsed.error().what;
  };
  const std::string expected = "line 2: expected ZONE ZONE ONE_WAY_MS MBIT_PER_SECOND";
  for (const char* line : {"a b 5", "a b 5 0", "a b -1 10", "a b 5 10 7", "a b x 10", "a b 5 nan"})
    EXPECT_EQ(refused(line), expected) << line;
  EXPECT_EQ(refused("a a 5 10"), "line 2: expected two zones, found \"a\" twice");
  EXPECT_EQ(refused("a b 5 10\nb a 5 10"), "line 3: expected each pair once, found b and a again");
  EXPECT_EQ(refused(""), "no links, expected some");
  EXPECT_EQ(parse_zone_links("a b 5 10\n", Duration{}).error().what,
            "line 1: expected the line \"# swarmline links: 1\" above all links");
}

TEST(Scenario, ZonesWithoutLinksAreMistakes) {
  const auto with = [](const std::string& zone, const std::string& section) {
    const auto parsed = parse_scenario(kQuiet + "zone = \"" + zone + "\"\n[zone_links]\n" + section,
                                       "s.toml", SWARMLINE_SOURCE_DIR "/configs/scenarios");
    return parsed ? "read" : parsed.error().what;
  };
  const std::string file = "file = \"../links/gcp12.links\"\n";
  EXPECT_EQ(with("Iowa", file + "coordinator = \"NL\"\n"), "read");
  EXPECT_EQ(
      with("Ohio", file),
      "s.toml:22: machines.gpu.zone: found \"Ohio\", expected a zone of ../links/gcp12.links");
  EXPECT_EQ(with("Iowa", file + "coordinator = \"Ohio\"\n"),
            "s.toml:25: zone_links.coordinator: found \"Ohio\", expected a zone of "
            "../links/gcp12.links");
  EXPECT_NE(with("Iowa", "file = \"none.links\"\n").find("none.links"), std::string::npos);
}

// Half of the machines on the other side of the world: steps take as much longer as their tensors.
TEST(Simulation, ZonesAreAsFarApartAsTheirLinksSay) {
  const auto steps_in = [](const std::string& zone) {
    std::string text = kQuiet;
    text.replace(text.find("count = 8"), 9, "count = 4\nzone = \"Belgium\"");
    return result_of(text +
                     "[machines.other]\ncount = 4\nforward_ms = 20\nbackward_ms = 40\nzone = \"" +
                     zone + "\"\n[zone_links]\nfile = \"../links/gcp12.links\"\n")
        .steps;
  };
  const std::uint64_t near = steps_in("NL"), far = steps_in("Australia");
  EXPECT_GT(near, far);
  EXPECT_GT(far, 0U);
}

TEST(Simulation, MachinesThatDieAreMissedAndThoseThatComeServe) {
  const std::string text =
      kQuiet +
      "price = 3600\n"
      "[machines.late]\ncount = 2\njoin_seconds = 60\nforward_ms = 20\nbackward_ms = 40\n"
      "[faults.a]\nkind = \"kill\"\nmachine = 3\nat_seconds = 20\n"
      "[faults.b]\nkind = \"restart\"\nmachine = 5\nat_seconds = 30\nfor_seconds = 10\n"
      "[faults.c]\nkind = \"freeze\"\nmachine = 4\nat_seconds = 80\nfor_seconds = 1\n";
  const ScenarioResult result = result_of(text);
  EXPECT_FALSE(result.ended_badly) << result.sentence;
  EXPECT_EQ(result.faults.at(FaultKind::kKill), 1U);
  EXPECT_EQ(result.joined, 3U + result.moved);
  EXPECT_EQ(result.lost, 2U);
  EXPECT_EQ(result.samples.back().machines, 9U);
  EXPECT_GT(result.passes_done, result.passes_counted);
  EXPECT_GT(result.traffic.state, 0);
  // 8 for 20 s, 7 for 10 s, 6 for 10 s, 7 for 80 s; what comes late is free.
  EXPECT_NEAR(result.dollars, 8 * 20 + 7 * 10 + 6 * 10 + 7 * 80, 8);
  const ScenarioResult again = result_of(text);
  EXPECT_EQ(result.trace_hash, again.trace_hash);
  EXPECT_EQ(result.microbatches, again.microbatches);
}

TEST(Simulation, WhatNobodyIsToldOfIsFoundOut) {
  const std::string text =
      kQuiet +
      "[faults.a]\nkind = \"power-loss\"\nmachine = 3\nat_seconds = 10\n"
      "for_seconds = 20\n"
      "[faults.b]\nkind = \"mute\"\nmachine = 5\nat_seconds = 20\nfor_seconds = 9\n"
      "[faults.c]\nkind = \"half-open\"\nmachine = 4\nother = 7\nat_seconds = 30\n"
      "[faults.d]\nkind = \"stall\"\nmachine = 6\nat_seconds = 60\nfor_seconds = 9\n"
      "[faults.e]\nkind = \"full\"\nmachine = \"coordinator\"\nat_seconds = 70\n";
  const ScenarioResult result = result_of(text);
  EXPECT_FALSE(result.ended_badly) << result.sentence;
  EXPECT_EQ(result.faults.at(FaultKind::kHalfOpen), 1U);
  EXPECT_EQ(result.lost, 3U);
  EXPECT_EQ(result.joined, 3U + result.moved);
}

// Three zones of three machines, in turn: by numbers alone each stage would be one zone's.
std::string zones_in_turn(bool told, const std::string& faults) {
  std::string text = kQuiet.substr(0, kQuiet.find("[machines.gpu]")) + "[checkpoint]\n";
  text.replace(text.find("layers = 4"), 10, "layers = 6");
  text.replace(text.find("stages = 2"), 10, "stages = 3");
  for (int i = 0; i < 9; ++i) {
    text += "[machines.m" + std::to_string(i) + "]\ncount = 1\nforward_ms = 20\nbackward_ms = 40\n";
    if (told) text += std::string("zone = \"") + "abc"[i % 3] + "\"\n";
  }
  return text + faults;
}
std::string power_loss(int machine) {
  return "[faults.m" + std::to_string(machine) +
         "]\nkind = \"power-loss\"\nmachine = " + std::to_string(machine) +
         "\nat_seconds = 30\nfor_seconds = 1000\n";
}
bool went_back(const ScenarioResult& result) {
  return result.ended_badly || std::ranges::any_of(result.log, [](const std::string& line) {
           return line.contains(": new_era: ");
         });
}

TEST(Simulation, NoZonesLossEmptiesAStage) {
  for (const int machine : {1, 2, 3}) {
    const ScenarioResult result = result_of(
        zones_in_turn(true,
                      "[faults.zone]\nkind = \"zone-loss\"\nat_seconds = 30\nfor_seconds = 1000\n"
                      "machine = " +
                          std::to_string(machine) + "\n"));
    EXPECT_FALSE(went_back(result)) << result.sentence;
    EXPECT_EQ(result.lost, 3U);
    EXPECT_EQ(result.samples.back().machines, 6U);
    EXPECT_GT(result.share_of_optimum(), 0.6);
  }
}

// The same fleet and the same loss, and nobody says where the machines are.
TEST(Simulation, AZoneThatNobodyToldOfTakesAStage) {
  const std::string zone_a = power_loss(1) + power_loss(4) + power_loss(7);
  EXPECT_TRUE(went_back(result_of(zones_in_turn(false, zone_a))));
  EXPECT_FALSE(went_back(result_of(zones_in_turn(true, zone_a))));
}

TEST(Simulation, ASwarmThatLosesAllEndsAsItWould) {
  std::string text = kQuiet;
  for (int machine = 1; machine <= 8; ++machine)
    text += "[faults.k" + std::to_string(machine) +
            "]\nkind = \"kill\"\nat_seconds = 20\nmachine = " + std::to_string(machine) + "\n";
  const ScenarioResult result = result_of(text);
  EXPECT_TRUE(result.ended_badly);
  EXPECT_LT(result.seconds, 90) << "a minute after everybody was gone";
}

// One of 21 goes after half a minute, with notice; a minute later another one comes.
TEST(Simulation, AFleetComesAndGoes) {
  std::string text = kQuiet;
  text.replace(text.find("count = 8\n"), 10, "");
  text +=
      "[fleet]\nfile = \"../fleets/aws-p3.fleet\"\nmachine = \"gpu\"\nfrom_hours = 5.925\n"
      "notice_seconds = 20\n";
  EXPECT_EQ(scenario(text).fleet_at_start(), 21U);
  const ScenarioResult result = result_of(text);
  EXPECT_FALSE(result.ended_badly) << result.sentence;
  EXPECT_EQ(result.samples.front().machines, 21U);
  EXPECT_EQ(result.left, 1U);
  EXPECT_EQ(result.joined, 1U + result.moved);
  EXPECT_EQ(result.lost, 0U);
  EXPECT_EQ(std::ranges::min(result.samples, {}, &ScenarioSample::machines).machines, 20U);
  EXPECT_EQ(result.samples.back().machines, 21U);
}

}  // namespace
}  // namespace swarmline
