#include "engine/config/load.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/limits.h"
#include "engine/config/begun_run.h"
#include "engine/config/schema.h"
#include "tests/store/temp_folder.h"

namespace swarmline {
namespace {

constexpr std::string_view kLeast = "config_version = 1\n[data]\nfiles = [\"x\"]\n";

RunConfig least_with(const std::vector<std::string>& overrides) {
  Result<RunConfig> config = run_config_from_text(kLeast, "t", overrides);
  EXPECT_TRUE(config) << (config ? "" : config.error().what);
  return config.value_or(RunConfig{});
}

TEST(LoadRunConfig, FillsInEveryDefault) {
  RunConfig expected;
  expected.data.files = {"x"};
  EXPECT_EQ(least_with({}), expected);
}

// Gives every field a value that is not its default, through the table, and finds all of them
// again.
TEST(LoadRunConfig, RoundTripsEveryKey) {
  const std::string text = R"(config_version = 1
[run]
init = "hf:there"
name = "a_b-c.9"
seed = 9223372036854775807
dir = 'C:\odd "dir" ü'
steps = 7
on_nonfinite = "skip"
etcd = ["10.0.0.1:2379", "etcd-2:2379"]
etcd_lease_seconds = 12
wait_seconds = 6
[model]
layers = 12
d_model = 96
heads = 8
kv_heads = 2
d_ff = 200
vocab = 300
norm = "rmsnorm"
activation = "swiglu"
positions = "rotary"
bias = false
tied_embeddings = false
dropout = 0.1
norm_eps = 1e-6
rope_theta = 500000
init_std = 0.1234567890123456789
share_layers = 2
dtype = "fp64"
precision = "fp32"
head_dim = 24
qk_norm = true
window = 16
window_pattern = "SL"
boundary = "maxout"
boundary_factor = 4
[data]
kind = "tokens"
files = ["a", "b/**/*.bin"]
token_format = "llmc"
held_out = 0.125
validation = "v.bin"
bytes_max = 1000
from_step = 7
from_sequence = 84
mask_documents = true
[batch]
batch = 12
microbatch = 3
sequence = 17
[optimizer]
kind = "lamb"
lr = 0.0017
beta1 = 0.8
beta2 = 0.99
eps = 1e-7
weight_decay = 0
clip = 0.5
muon_momentum = 0.9
muon_steps = 6
schedule = "linear"
lr_decay_steps = 900
decay_ratio = 0.3
warmup_steps = 3
final_lr = 0
state_memory = "host"
[pipeline]
stages = 3
peers = [1, 2, 3]
delay = 1
recompute = true
wiring = "static"
order = "1f1b"
in_flight = 5
layers = [4, 6, 2]
[codec]
forward = "lin8"
backward = "auto"
averaging = "topk"
block = 64
scales = "bf16"
stochastic = true
topk = 0.25
error_feedback = true
error_budget = 0.5
checksums = "always"
[wiring]
alpha = 0.3
in_flight_per_peer = 2
hop_timeout_seconds = 1.5
hedge_share = 0.25
stay_in_zone = false
[balance]
shadows = "auto"
moves = false
period_seconds = 7
[checkpoint]
every_steps = 2
every_minutes = 0.5
keep = 1
keep_every = 500
keep_best = 2
optimizer = false
peers_write = false
store = "s3://bucket/runs"
python = "python3.11"
[eval]
every_steps = 4
sequences_max = 6
[net]
peers_wait_seconds = 7
build_seconds = 8
outlast_seconds = 9
listen = "0.0.0.0:4700"
page = "0.0.0.0:8080"
admit_bytes = 123
heartbeat_seconds = 0.25
peer_silence_seconds = 1
collect_seconds = 2
coordinator_patience_seconds = 3
standby = ["127.0.0.1:4701"]
transport = "ucx"
streams = 5
islands = "host"
fabric = "none"
advertise = "192.0.2.1:4700"
[security]
insecure = true
loopback = true
trusted_networks = ["10.0.0.0/8", "fd00::/8"]
etcd_authority = "ca.pem"
etcd_certificate = "own.pem"
etcd_key = "own.key"
[log]
level = "debug"
tensorboard = true
command = "cat > /dev/null"
[money]
currency = "EUR"
egress_price = 0.09
coordinator_price = 0.1
budget = 20
budget_hours = 12
)";
  Result<RunConfig> config = run_config_from_text(text, "t");
  ASSERT_TRUE(config) << config.error().what;
  for (const KeySpec& spec : run_keys()) {
    // compute = "fp8", stream = "bf16" and state = "8bit" have no fp64, and weights no bytes_max.
    if (spec.key == "state" || spec.key == "compute" || spec.key == "stream" ||
        spec.key == "weights")
      continue;
    EXPECT_NE(value_text(spec, {.run = &*config}), default_text(spec))
        << spec.section << "." << spec.key;
  }
  const Result<RunConfig> again = run_config_from_text(to_toml(*config), "printed");
  ASSERT_TRUE(again) << again.error().what;
  EXPECT_EQ(*again, *config);
  EXPECT_EQ(to_toml(*again), to_toml(*config));
  EXPECT_EQ(config->run.dir, "C:\\odd \"dir\" ü");
  EXPECT_EQ(config->model.init_std, 0.1234567890123456789);
  EXPECT_EQ(config->pipeline.recompute, Recompute::kAlways);
  EXPECT_EQ(config->pipeline.peers, (std::vector<std::uint32_t>{1, 2, 3}));
}

TEST(LoadRunConfig, WeightsRoundTrip) {
  const auto config = run_config_from_text(
      "config_version = 1\n[data]\nfiles = [\"a\", \"b\"]\nweights = [3, 0.5]\n", "t");
  ASSERT_TRUE(config) << config.error().what;
  EXPECT_EQ(config->data.weights, (std::vector<double>{3, 0.5}));
  EXPECT_NE(to_toml(*config).find("weights = [3.0, 0.5]"), std::string::npos);
  EXPECT_EQ(*run_config_from_text(to_toml(*config), "printed"), *config);
}

TEST(LoadRunConfig, OneNumberOfPeersMeansEveryStage) {
  EXPECT_EQ(least_with({"pipeline.stages=3", "pipeline.peers=2"}).pipeline.peers,
            (std::vector<std::uint32_t>{2, 2, 2}));
  EXPECT_EQ(least_with({"pipeline.stages=2"}).pipeline.peers, (std::vector<std::uint32_t>{1, 1}));
  EXPECT_EQ(least_with({"pipeline.stages=2", "pipeline.peers=[4,1]"}).pipeline.peers,
            (std::vector<std::uint32_t>{4, 1}));
  // The last one given counts.
  EXPECT_EQ(
      least_with({"pipeline.peers=[4,1]", "pipeline.stages=3", "pipeline.peers=5"}).pipeline.peers,
      (std::vector<std::uint32_t>{5, 5, 5}));
}

TEST(LoadRunConfig, OverridesTakeTomlAndBareWords) {
  const RunConfig config =
      least_with({"run.name=nightly-7", "run.dir=a=b", "optimizer.kind=lamb", "optimizer.lr=1",
                  "run.seed=5", "run.seed=0x10", "model.bias=false", "pipeline.recompute=false",
                  "balance.shadows=2", "data.files=/usr/include/**/*.h", "model.dtype='fp64'"});
  EXPECT_EQ(config.run.name, "nightly-7");
  EXPECT_EQ(config.run.dir, "a=b");
  EXPECT_EQ(config.optimizer.kind, OptimizerKind::kLamb);
  EXPECT_EQ(config.optimizer.lr, 1.0);
  EXPECT_EQ(config.run.seed, 16);
  EXPECT_FALSE(config.model.bias);
  EXPECT_EQ(config.pipeline.recompute, Recompute::kNever);
  EXPECT_EQ(config.balance.shadows.count, 2U);
  EXPECT_EQ(config.data.files, (std::vector<std::string>{"/usr/include/**/*.h"}));
  EXPECT_EQ(config.model.dtype, DType::kF64);
}

TEST(LoadRunConfig, ANameMayLookLikeANumberOrADate) {
  EXPECT_EQ(least_with({"run.name=7"}).run.name, "7");
  EXPECT_EQ(least_with({"run.name=2026-01-01"}).run.name, "2026-01-01");
  EXPECT_EQ(least_with({"run.name=true"}).run.name, "true");
}

TEST(LoadRunConfig, SizesMayHaveAUnit) {
  EXPECT_EQ(least_with({"data.bytes_max=1G"}).data.bytes_max, std::uint64_t{1} << 30);
  EXPECT_EQ(least_with({"net.admit_bytes=\"1.5k\""}).net.admit_bytes, 1536);
  EXPECT_EQ(least_with({"net.admit_bytes=\"4096\""}).net.admit_bytes, 4096);
}

// Whoever does not use them has no word of them in the config that peers of any version get.
TEST(LoadRunConfig, WhereNumbersGoIsPrintedOnlyIfItWasSet) {
  EXPECT_EQ(to_toml(least_with({})).find("tensorboard"), std::string::npos);
  EXPECT_EQ(to_toml(least_with({})).find("command"), std::string::npos);
  const std::string text = to_toml(least_with({"log.tensorboard=true", "log.command=cat"}));
  EXPECT_NE(text.find("tensorboard = true\n"), std::string::npos) << text;
  EXPECT_NE(text.find("command = \"cat\"\n"), std::string::npos) << text;
}

TEST(LoadRunConfig, TakesTablesInlineAndDotted) {
  const Result<RunConfig> config =
      run_config_from_text("config_version = 1\nmodel = {layers = 3}\ndata.files = \"x\"\n", "t");
  ASSERT_TRUE(config) << config.error().what;
  EXPECT_EQ(config->model.layers, 3);
  EXPECT_EQ(config->data.files, (std::vector<std::string>{"x"}));
}

TEST(LoadRunConfig, TheExamplesLoad) {
  for (const char* name : {"quickstart", "tiny", "gpt2_small", "llama_like"}) {
    const std::string path = std::string(SWARMLINE_SOURCE_DIR) + "/configs/" + name + ".toml";
    const Result<RunConfig> config = load_run_config(path);
    ASSERT_TRUE(config) << config.error().what;
    const Result<RunConfig> again = run_config_from_text(to_toml(*config), "printed");
    ASSERT_TRUE(again) << again.error().what;
    EXPECT_EQ(*again, *config);
  }
}

// A published example of another system trained with a learning rate of 0, and averaged nothing.
TEST(LoadRunConfig, TheExamplesTrain) {
  for (const char* name : {"quickstart", "tiny", "gpt2_small", "llama_like"}) {
    const Result<RunConfig> config =
        load_run_config(std::string(SWARMLINE_SOURCE_DIR) + "/configs/" + name + ".toml");
    ASSERT_TRUE(config) << config.error().what;
    EXPECT_GT(config->optimizer.lr, 0) << name;
    EXPECT_LT(config->optimizer.warmup_steps, config->run.steps) << name;
    EXPECT_GT(std::ranges::max(config->pipeline.peers), 1U) << name << ": nobody to average with";
  }
}

TEST(LoadRunConfig, NamesTheFile) {
  const TempFolder folder;
  const std::string path = folder.write("run.toml", std::string(kLeast) + "[run]\nstep = 3\n");
  const Result<RunConfig> config = load_run_config(path);
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error().code, ErrorCode::kUserMistake);
  EXPECT_EQ(config.error().what,
            path +
                ":5: run.step: found an unknown key, expected a key of [run]; did "
                "you mean steps?");
}

TEST(LoadRunConfig, FilesThatCannotBeRead) {
  const TempFolder folder;
  const std::string missing = folder.path() + "/missing.toml";
  const Result<RunConfig> absent = load_run_config(missing);
  ASSERT_FALSE(absent);
  EXPECT_EQ(absent.error().code, ErrorCode::kUserMistake);
  EXPECT_EQ(absent.error().what, missing +
                                     ": found no such file, expected a TOML file; name one that "
                                     "exists, for example configs/quickstart.toml");

  const Result<RunConfig> directory = load_run_config(folder.path());
  ASSERT_FALSE(directory);
  EXPECT_EQ(directory.error().code, ErrorCode::kUserMistake);
  EXPECT_NE(directory.error().what.find("found no regular file"), std::string::npos);

  const std::string comment(Limits::config_file_bytes_max, '#');
  const Result<RunConfig> huge =
      load_run_config(folder.write("huge.toml", std::string(kLeast) + comment));
  ASSERT_FALSE(huge);
  EXPECT_EQ(huge.error().code, ErrorCode::kUserMistake);
  EXPECT_NE(huge.error().what.find("bytes, expected a config of at most 1048576"),
            std::string::npos);
}

TEST(LoadPeerConfig, ReadsEveryKeyAndRoundTrips) {
  const std::string text = R"(config_version = 1
[peer]
device = "cuda:1"
data = "/srv/data/corpus"
data_root = "/srv/data"
threads = 3
memory_bytes = 4000000000
shadow_memory_bytes = 1000000
listen = "[::]:4701"
advertise = "peer.example:4701"
fetch_data = true
fetch_data_folder = "/srv/pieces"
fetch_data_cache_mb = 100
join_patience_seconds = 5
zone = "eu-1"
price = 0.31
egress_price = 0.02
bandwidth = 1e9
insecure = true
key = "peer.key"
notices = "command"
notice_command = "wait-for-notice"
notice_url = "http://127.0.0.1:8169"
emulate = {forward_ms = 10, backward_ms = 20.5, jitter = 0.1}
)";
  Result<PeerConfig> config = peer_config_from_text(text, "p");
  ASSERT_TRUE(config) << config.error().what;
  for (const KeySpec& spec : peer_keys())
    EXPECT_NE(value_text(spec, {.peer = &*config}), default_text(spec)) << spec.key;
  EXPECT_EQ(config->emulate_forward_ms, 10);
  EXPECT_EQ(config->emulate_backward_ms, 20.5);
  EXPECT_EQ(config->emulate_jitter, 0.1);
  const Result<PeerConfig> again = peer_config_from_text(to_toml(*config), "printed");
  ASSERT_TRUE(again) << again.error().what;
  EXPECT_EQ(*again, *config);
}

TEST(LoadPeerConfig, SizesAndRatesMayHaveAUnit) {
  const Result<PeerConfig> config = peer_config_from_text(
      "config_version = 1\n[peer]\nmemory_bytes = \"16G\"\nshadow_memory_bytes = \"512M\"\n"
      "fetch_data_cache_mb = \"4G\"\nbandwidth = \"2.5g\"\n",
      "p");
  ASSERT_TRUE(config) << config.error().what;
  EXPECT_EQ(config->memory_bytes, std::uint64_t{16} << 30);
  EXPECT_EQ(config->shadow_memory_bytes, std::uint64_t{512} << 20);
  EXPECT_EQ(config->fetch_data_cache_mb, 4096);
  EXPECT_EQ(config->bandwidth, 2.5e9);
}

TEST(LoadPeerConfig, NeedsNoFile) {
  const std::vector<std::string> overrides = {"peer.device=cuda", "peer.emulate.jitter=0.5"};
  const Result<PeerConfig> config = load_peer_config("", overrides);
  ASSERT_TRUE(config) << config.error().what;
  PeerConfig expected;
  expected.device = "cuda";
  expected.emulate_jitter = 0.5;
  EXPECT_EQ(*config, expected);
}

// Peers that don't know the key are told of it by none but a run that has it.
TEST(LoadRunConfig, MaskedDocumentsAreOfTheWholeRun) {
  const RunConfig begun = least_with({}), wanted = least_with({"data.mask_documents=true"});
  EXPECT_EQ(to_toml(begun).find("mask_documents"), std::string::npos);
  EXPECT_NE(to_toml(wanted).find("mask_documents = true"), std::string::npos);
  EXPECT_EQ(fixed_difference(begun, wanted),
            "data.mask_documents: found true, but the run began with false");
  EXPECT_EQ(fixed_difference(wanted, wanted), std::nullopt);
}

// As a run folder of an earlier version has it.
TEST(LoadRunConfig, KeysOfEarlierVersionsArePassedOver) {
  const auto config = run_config_from_text(
      "config_version = 1\n[data]\nfiles = [\"x\"]\n[codec]\nstate = \"none\"\n"
      "[net]\nconnect_timeout_seconds = 10.0\nheartbeat_seconds = 2\n",
      "t");
  ASSERT_TRUE(config) << config.error().what;
  EXPECT_EQ(config->net.heartbeat_seconds, 2);
  EXPECT_EQ(to_toml(*config).find("connect_timeout_seconds"), std::string::npos);
  for (const RetiredKey& retired : retired_keys())
    EXPECT_EQ(find_key(run_keys(), retired.section, retired.key), nullptr) << retired.key;
}

}  // namespace
}  // namespace swarmline
