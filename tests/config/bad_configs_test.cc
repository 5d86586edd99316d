// Every mistake a config can hold, with the sentence it gets.

#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "engine/config/load.h"

namespace swarmline {
namespace {

// Lines 1 to 3 of what most cases share; their own text starts on line 4.
constexpr std::string_view kLeast = "config_version = 1\n[data]\nfiles = [\"x\"]\n";

struct Case {
  std::string_view name;
  std::string text;
  std::string_view sentence;  // its beginning
};
void PrintTo(const Case& bad, std::ostream* out) {
  *out << bad.name;
}

Case after_least(std::string_view name, std::string_view text, std::string_view sentence) {
  return {name, std::string(kLeast) + std::string(text), sentence};
}

std::vector<Case> syntax_and_version() {
  return {
      {"Empty", "",
       "t:1: config_version: found none, expected 1; write config_version = 1 as the first line"},
      {"NoVersion", "[data]\nfiles = [\"x\"]\n", "t:1: config_version: found none, expected 1;"},
      {"NewerVersion", "config_version = 2\nwhat = 1\n",
       "t:1: config_version: found 2, expected 1; this file needs a newer swarmline"},
      {"OlderVersion", "\nconfig_version = 0\n",
       "t:2: config_version: found 0, expected 1; write config_version = 1"},
      {"TextVersion", "config_version = \"1\"\n", "t:1: config_version: found \"1\", expected 1;"},
      {"VersionInsideASection", "[run]\nconfig_version = 1\n", "t:1: config_version: found none"},
      after_least("MissingValue", "[run]\nsteps =\n", "t:5: not TOML: "),
      after_least("UnclosedText", "[run]\nname = \"abc\n", "t:5: not TOML: "),
      after_least("DuplicateKey", "[run]\nsteps = 1\nsteps = 2\n", "t:6: not TOML: "),
      after_least("DuplicateSection", "[run]\nsteps = 1\n[run]\nseed = 2\n", "t:6: not TOML: "),
      after_least("NotUtf8", "[run]\nname = \"\xFF\"\n", "t:5: not TOML: "),
      after_least("StrayLetterAfterAValue", "[run]\nsteps = 1 \u00A7\n", "t:5: not TOML: "),
      after_least("StrayLetterAsKey", "[run]\n\u03B1 = 1\n", "t:5: not TOML: "),
      after_least("ThreeBrackets", "[[[run]]]\n", "t:4: not TOML: "),
      after_least("Yaml", "run:\n  steps: 3\n", "t:4: not TOML: "),
  };
}

std::vector<Case> unknown_names() {
  return {
      after_least("UnknownKey", "[model]\nlayrs = 3\n",
                  "t:5: model.layrs: found an unknown key, expected a key of [model]; did you mean "
                  "layers?"),
      after_least("SwappedLetters", "[pipeline]\nstages = 2\nrecompuet = true\n",
                  "t:6: pipeline.recompuet: found an unknown key, expected a key of [pipeline]; "
                  "did you mean "
                  "recompute?"),
      after_least("KeyOfAnotherSection", "[model]\nlr = 0.1\n",
                  "t:5: model.lr: found an unknown key, expected a key of [model]; it belongs into "
                  "[optimizer]"),
      after_least(
          "KeyLikeNoOther", "[log]\nverbosity = 3\n",
          "t:5: log.verbosity: found an unknown key, expected a key of [log]; its keys are level"),
      after_least("TableForAKey", "[run.steps]\nx = 3\n",
                  "t:5: run.steps.x: found an unknown key, expected a key of [run]; "),
      after_least(
          "UnknownSection", "[modle]\nlayers = 3\n",
          "t:4: [modle]: found an unknown section, expected one of run, model, data, "
          "batch, optimizer, "
          "pipeline, codec, wiring, balance, checkpoint, eval, net, security, log, money; did you "
          "mean [model]?"),
      after_least("UnknownEmptySection", "[frobnicate]\n",
                  "t:4: [frobnicate]: found an unknown section, expected one of run,"),
      after_least("PeerSectionInARun", "[peer]\ndevice = \"cpu\"\n",
                  "t:4: [peer]: found an unknown section,"),
      {"KeyAboveTheSections", "config_version = 1\nstages = 4\n",
       "t:2: stages: found an unknown key, expected config_version or a [section]; it belongs into "
       "[pipeline]"},
      {"NonsenseAboveTheSections", "config_version = 1\nx = 4\n",
       "t:2: x: found an unknown key, expected config_version or a [section]; move it into its "
       "section or take it "
       "out"},
      {"SectionAsValue", "config_version = 1\nmodel = 3\n",
       "t:2: model: found 3, expected a section; write [model] above its keys"},
      {"ArrayOfSections", "config_version = 1\n[[model]]\nlayers = 3\n",
       "t:2: model: found [a table], expected a section; write [model] above its keys"},
      after_least("TheFirstMistakeIsTold", "[run]\nstepz = 1\n[batch]\nbatsh = 1\n",
                  "t:5: run.stepz: "),
  };
}

std::vector<Case> types_and_ranges() {
  return {
      after_least("TextForInteger", "[model]\nlayers = \"eight\"\n",
                  "t:5: model.layers: found \"eight\", expected an integer from 1 to 4096; write "
                  "for example layers "
                  "= 8"),
      after_least("RealForInteger", "[model]\nlayers = 8.0\n",
                  "t:5: model.layers: found 8.0, expected an integer from 1 to 4096; "),
      after_least("BoolForInteger", "[batch]\nbatch = true\n",
                  "t:5: batch.batch: found true, expected an integer "),
      after_least("ListForInteger", "[batch]\nbatch = [1, 2]\n",
                  "t:5: batch.batch: found [1, 2], expected an integer from 1 to 16777216; write "
                  "for example batch "
                  "= 32"),
      after_least("DateForInteger", "[run]\nseed = 2026-01-01\n",
                  "t:5: run.seed: found a date or time, expected an integer of at least 0; write "
                  "for example seed = "
                  "1"),
      after_least("TextForReal", "[optimizer]\nlr = \"3e-4\"\n",
                  "t:5: optimizer.lr: found \"3e-4\", expected a number above 0 and at most 100; "
                  "write for example lr "
                  "= 0.0003"),
      after_least(
          "IntegerForBool", "[model]\nbias = 1\n",
          "t:5: model.bias: found 1, expected true or false; write for example bias = true"),
      after_least(
          "IntegerForText", "[run]\nname = 7\n",
          "t:5: run.name: found 7, expected text in quotes; write for example name = \"run\""),
      after_least("ControlCharacterInText", "[run]\ndir = \"a\\nb\"\n",
                  "t:5: run.dir: found \"a\\u000Ab\", expected text in quotes; "),
      {"NumberForFiles", "config_version = 1\n[data]\nfiles = 3\n",
       "t:3: data.files: found 3, expected text in quotes, or a list of texts; write for example "
       "files = "
       "[\"texts/**/*.txt\"]"},
      {"NumberAmongFiles", "config_version = 1\n[data]\nfiles = [\"x\", 3]\n",
       "t:3: data.files: found [\"x\", 3], expected text in quotes, or a list of texts; "},
      after_least("ZeroLayers", "[model]\nlayers = 0\n",
                  "t:5: model.layers: found 0, expected an integer from 1 to "),
      after_least("NegativeSeed", "[run]\nseed = -1\n",
                  "t:5: run.seed: found -1, expected an integer of at least 0; "),
      after_least("ZeroSteps", "[run]\nsteps = 0\n",
                  "t:5: run.steps: found 0, expected an integer of at least 1; "),
      after_least("HugeWidth", "[model]\nd_model = 4294967296\n",
                  "t:5: model.d_model: found 4294967296, expected an integer from 1 to 65536; "),
      after_least("TooManyStages", "[pipeline]\nstages = 1025\n",
                  "t:5: pipeline.stages: found 1025, expected an integer from 1 to 1024; "),
      after_least("DropoutOfOne", "[model]\ndropout = 1\n",
                  "t:5: model.dropout: found 1, expected a number of at least 0 and below 1; "),
      after_least("NegativeDropout", "[model]\ndropout = -0.1\n",
                  "t:5: model.dropout: found -0.1, expected a number "),
      after_least("DropoutIsNan", "[model]\ndropout = nan\n",
                  "t:5: model.dropout: found nan, expected a number "),
      after_least("InfiniteClip", "[optimizer]\nclip = inf\n",
                  "t:5: optimizer.clip: found inf, expected a finite number of at least 0; "),
      after_least("ZeroLearningRate", "[optimizer]\nlr = 0\n",
                  "t:5: optimizer.lr: found 0, expected a number above 0"),
      after_least("BetaOfOne", "[optimizer]\nbeta2 = 1.0\n", "t:5: optimizer.beta2: found 1"),
      after_least("HeldOutAll", "[data.x]\ny = 1\n", "t:5: data.x.y: found an unknown key, "),
      {"HeldOutMost", "config_version = 1\n[data]\nheld_out = 0.9\nfiles = [\"x\"]\n",
       "t:3: data.held_out: found 0.9, expected a number from 0 to 0.5; "},
      after_least("DelayOfTwo", "[pipeline]\ndelay = 2\n",
                  "t:5: pipeline.delay: found 2, expected an integer from 0 to 1; write for "
                  "example delay = 0"),
      after_least("ZeroPeers", "[pipeline]\npeers = 0\n",
                  "t:5: pipeline.peers: found 0, expected an integer from 1 to 1024, or a list "
                  "with one for each stage; "
                  "write for example peers = 2"),
      after_least(
          "ZeroAmongPeers", "[pipeline]\nstages = 2\npeers = [1, 0]\n",
          "t:6: pipeline.peers: found [1, 0], expected an integer from 1 to 1024, or a list "),
      after_least("OneNumberAsCut", "[pipeline]\nlayers = 4\n",
                  "t:5: pipeline.layers: found 4, expected a list with, for each stage, an integer "
                  "from 1 to 4096; "
                  "write for example layers = [3, 3, 2]"),
      after_least(
          "ShadowsAsReal", "[balance]\nshadows = 1.5\n",
          "t:5: balance.shadows: found 1.5, expected \"auto\" or an integer from 0 to 16384; "),
      after_least("InFlightPerPeerTooLarge", "[wiring]\nin_flight_per_peer = 65\n",
                  "t:5: wiring.in_flight_per_peer: found 65, expected an integer from 1 to 64; "),
      after_least("NoTimeout", "[wiring]\nhop_timeout_seconds = 0\n",
                  "t:5: wiring.hop_timeout_seconds: found 0, expected a number above 0 and at most "
                  "86400; "),
      after_least("LongTextIsCut", "[run]\nseed = \"" + std::string(200, 'a') + "\"\n",
                  "t:5: run.seed: found "
                  "\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa..., expected an "
                  "integer"),
  };
}

std::vector<Case> choices() {
  return {
      after_least("NonFinite", "[run]\non_nonfinite = \"skpi\"\n",
                  "t:5: run.on_nonfinite: found \"skpi\", expected \"skip\" or \"stop\"; did you "
                  "mean \"skip\"?"),
      after_least("Norm", "[model]\nnorm = \"layer_norm\"\n",
                  "t:5: model.norm: found \"layer_norm\", expected \"layernorm\" or \"rmsnorm\"; "
                  "did you mean "
                  "\"layernorm\"?"),
      after_least("Activation", "[model]\nactivation = \"relu\"\n",
                  "t:5: model.activation: found \"relu\", expected \"gelu\", \"gelu_tanh\" or "
                  "\"swiglu\"; "),
      after_least("Positions", "[model]\npositions = \"alibi\"\n",
                  "t:5: model.positions: found \"alibi\", expected \"learned\" or \"rotary\"; "
                  "write for example "
                  "positions = \"learned\""),
      after_least("DType", "[model]\ndtype = \"bf16\"\n",
                  "t:5: model.dtype: found \"bf16\", expected \"fp32\" or \"fp64\"; "),
      after_least(
          "Optimizer", "[optimizer]\nkind = \"adam\"\n",
          "t:5: optimizer.kind: found \"adam\", expected \"adamw\", \"lamb\" or \"muon\"; did you "
          "mean \"adamw\"?"),
      after_least("Schedule", "[optimizer]\nschedule = \"cosin\"\n",
                  "t:5: optimizer.schedule: found \"cosin\", expected \"constant\", \"linear\", "
                  "\"cosine\" or \"wsd\"; did you "
                  "mean \"cosine\"?"),
      after_least(
          "Wiring", "[pipeline]\nwiring = \"random\"\n",
          "t:5: pipeline.wiring: found \"random\", expected \"stochastic\" or \"static\"; "),
      after_least(
          "OrderWithoutRoutes", "[pipeline]\norder = \"gpipe\"\n",
          "t:5: pipeline.order: found an order with wiring = \"stochastic\", expected fixed "
          "routes, whose shares are known beforehand; write wiring = \"static\" or order = "
          "\"free\""),
      after_least(
          "GPipeBeyondInFlight",
          "[pipeline]\norder = \"gpipe\"\nwiring = \"static\"\n[batch]\nbatch = 36\n",
          "t:5: pipeline.order: found in_flight_per_peer = 8 with 9 microbatches a step for a "
          "peer, expected at least as many, "),
      after_least("Recompute", "[pipeline]\nrecompute = \"always\"\n",
                  "t:5: pipeline.recompute: found \"always\", expected true, false or \"auto\"; "),
      after_least(
          "Codec", "[codec]\nforward = \"lin9\"\n",
          "t:5: codec.forward: found \"lin9\", expected \"none\", \"fp16\", \"bf16\", "
          "\"lin8\", \"dyn8\", \"h8\", \"fp8\", \"e5m2\", \"int4\", \"h4\" or \"auto\"; did "
          "you mean \"lin8\"?"),
      after_least(
          "CodecOfOldName", "[codec]\nbackward = \"int8\"\n",
          "t:5: codec.backward: found \"int8\", expected \"none\", \"fp16\", \"bf16\", "
          "\"lin8\", \"dyn8\", \"h8\", \"fp8\", \"e5m2\", \"int4\", \"h4\" or \"auto\"; int8 "
          "is called lin8 now"),
      after_least("AutoAveraging", "[codec]\naveraging = \"auto\"\n",
                  "t:5: codec.averaging: found \"auto\", expected \"none\", "),
      after_least("TopKActivations", "[codec]\nforward = \"topk\"\n",
                  "t:5: codec.forward: found \"topk\", expected \"none\", "),
      after_least("LossyState", "[codec]\nstate = \"h8\"\n",
                  "t:5: codec.state: found a key of earlier versions, which does nothing: A joiner "
                  "receives its state bit for bit. Take it out"),
      after_least("Scales", "[codec]\nscales = \"fp16\"\n",
                  "t:5: codec.scales: found \"fp16\", expected \"fp32\" or \"bf16\"; "),
      after_least("OptimizerState", "[optimizer]\nstate = \"int8\"\n",
                  "t:5: optimizer.state: found \"int8\", expected \"fp32\" or \"8bit\"; "),
      after_least("StateMemory", "[optimizer]\nstate_memory = \"gpu\"\n",
                  "t:5: optimizer.state_memory: found \"gpu\", expected \"device\" or \"host\"; "),
      after_least("LogLevel", "[log]\nlevel = \"warning\"\n",
                  "t:5: log.level: found \"warning\", expected \"debug\", "),
      after_least("EnumAsInteger", "[optimizer]\nkind = 1\n",
                  "t:5: optimizer.kind: found 1, expected \"adamw\", \"lamb\" or \"muon\"; write "
                  "for example "
                  "kind = \"adamw\""),
      {"DataKind", "config_version = 1\n[data]\nkind = \"byte\"\n",
       "t:3: data.kind: found \"byte\", expected \"bytes\" or \"tokens\"; did you mean \"bytes\"?"},
      {"TokenFormat", "config_version = 1\n[data]\ntoken_format = \"uint61\"\n",
       "t:3: data.token_format: found \"uint61\", expected \"auto\", \"uint16\", \"uint32\" or "
       "\"llmc\"; did you mean "
       "\"uint16\"?"},
  };
}

std::vector<Case> relations_of_run_model_and_data() {
  return {
      after_least("NameWithASlash", "[run]\nname = \"a/b\"\n",
                  "t:5: run.name: found \"a/b\", expected 1 to 100 "),
      after_least("NameUpwards", "[run]\nname = \"..\"\n",
                  "t:5: run.name: found \"..\", expected 1 to 100 letters"),
      after_least("NoName", "[run]\nname = \"\"\n",
                  "t:5: run.name: found \"\", expected 1 to 100 "),
      after_least("NoDir", "[run]\ndir = \"\"\n", "t:5: run.dir: found \"\", expected a folder; "),
      after_least("OddBoundaryFactor", "[model]\nboundary_factor = 3\n",
                  "t:5: model.boundary_factor: found 3, expected 2 or 4; "),
      after_least(
          "BoundaryDoesntDivide",
          "[model]\nd_model = 66\nheads = 3\nboundary = \"maxout\"\nboundary_factor = 4\n",
          "t:8: model.boundary_factor: found boundary_factor = 4 with d_model = 66, expected "
          "it to divide d_model; "),
      after_least(
          "Fp8OfDoubles", "[model]\ncompute = \"fp8\"\ndtype = \"fp64\"\n",
          "t:5: model.compute: found compute = \"fp8\" with dtype = \"fp64\", expected dtype "
          "= \"fp32\"; "),
      after_least(
          "Bf16StreamOfDoubles", "[model]\nstream = \"bf16\"\ndtype = \"fp64\"\n",
          "t:5: model.stream: found stream = \"bf16\" with dtype = \"fp64\", expected dtype "
          "= \"fp32\"; "),
      after_least(
          "CodedStateOfDoubles", "[model]\ndtype = \"fp64\"\n[optimizer]\nstate = \"8bit\"\n",
          "t:7: optimizer.state: found state = \"8bit\" with dtype = \"fp64\", expected dtype "
          "= \"fp32\"; "),
      after_least("HeadsDontDivide", "[model]\nd_model = 100\nheads = 3\n",
                  "t:6: model.heads: found heads = 3 with d_model = 100, expected heads to divide "
                  "d_model; change one "
                  "of them"),
      after_least("DefaultHeadsDontDivide", "[model]\nd_model = 130\n",
                  "t:5: model.d_model: found heads = 4 with d_model = 130, expected heads to "
                  "divide d_model; "),
      after_least("KvHeadsDontDivide", "[model]\nheads = 4\nkv_heads = 3\n",
                  "t:6: model.kv_heads: found kv_heads = 3 with heads = 4, expected kv_heads to "
                  "divide heads; "),
      after_least("MoreKvHeadsThanHeads", "[model]\nheads = 4\nkv_heads = 8\n",
                  "t:6: model.kv_heads: found kv_heads = 8 with heads = 4, "),
      after_least("RotaryWithOddHeads",
                  "[model]\nd_model = 12\nheads = 4\npositions = \"rotary\"\n",
                  "t:7: model.positions: found rotary positions with d_model / heads = 3, expected "
                  "an even width of a "
                  "head, "),
      after_least("ShareLayersDontDivide", "[model]\nlayers = 8\nshare_layers = 3\n",
                  "t:6: model.share_layers: found share_layers = 3 with layers = 8, expected "
                  "share_layers to divide "
                  "layers; "),
      after_least(
          "VocabTooSmallForBytes", "[model]\nvocab = 256\n",
          "t:5: model.vocab: found 256 with data.kind = \"bytes\", expected 0 or at least 257 "),
      {"NoFiles", "config_version = 1\n",
       "t: data.files: found no files, expected at least one path or glob; write for example files "
       "= "
       "[\"texts/**/*.txt\"]"},
      {"EmptyListOfFiles", "config_version = 1\n[data]\nfiles = []\n",
       "t:3: data.files: found no files, expected "},
      {"EmptyPath", "config_version = 1\n[data]\nfiles = [\"x\", \"\"]\n",
       "t:3: data.files: found an empty path, "},
      after_least("WeightsForOthers", "weights = [1, 2]\n",
                  "t:4: data.weights: found 2 weights with 1 entries of files, expected one weight "
                  "for each entry; "),
      after_least(
          "WeightOfNothing", "weights = [0]\n",
          "t:4: data.weights: found [0], expected a list with, for each entry, a number above "
          "0 and at most 1"),
      after_least("WeightsAndBytesMax", "weights = [1]\nbytes_max = 5\n",
                  "t:5: data.bytes_max: found bytes_max = 5 with weights, expected one of them"),
      after_least("EvalWithoutHeldOut", "held_out = 0\n[eval]\nevery_steps = 5\n",
                  "t:6: eval.every_steps: found every_steps = 5 with data.held_out = 0, expected "
                  "held-out sequences "),
  };
}

std::vector<Case> relations_of_batch_and_pipeline() {
  return {
      after_least("MicrobatchDoesntDivide", "[batch]\nbatch = 10\nmicrobatch = 4\n",
                  "t:6: batch.microbatch: found microbatch = 4 with batch = 10, expected "
                  "microbatch to divide batch; "
                  "change one of them"),
      after_least("DefaultMicrobatchDoesntDivide", "[batch]\nbatch = 10\n",
                  "t:5: batch.batch: found microbatch = 4 with batch = 10, "),
      after_least("MicrobatchAboveBatch", "[batch]\nbatch = 4\nmicrobatch = 8\n",
                  "t:6: batch.microbatch: found microbatch = 8 with batch = 4, "),
      after_least(
          "TooManyMicrobatches", "[batch]\nbatch = 2097152\nmicrobatch = 1\n",
          "t:6: batch.microbatch: found 2097152 microbatches per step, expected at most 1048576; "),
      after_least("MoreStagesThanLayers", "[model]\nlayers = 2\n[pipeline]\nstages = 3\n",
                  "t:7: pipeline.stages: found stages = 3 with layers / share_layers = 2, expected "
                  "at least one block "),
      after_least("MoreStagesThanSharedBlocks",
                  "[model]\nlayers = 8\nshare_layers = 4\n[pipeline]\nstages = 3\n",
                  "t:8: pipeline.stages: found stages = 3 with layers / share_layers = 2, "),
      after_least("PeersOfAnotherLength", "[pipeline]\nstages = 2\npeers = [1, 2, 3]\n",
                  "t:6: pipeline.peers: found a list of 3 with stages = 2, expected one number of "
                  "peers for each "
                  "stage; "),
      after_least("OnePeerInAListIsNoNumber", "[pipeline]\nstages = 2\npeers = [2]\n",
                  "t:6: pipeline.peers: found a list of 1 with stages = 2, "),
      after_least("NoPeersInTheList", "[pipeline]\npeers = []\n",
                  "t:5: pipeline.peers: found a list of 0 with stages = 1, "),
      after_least(
          "TooManyPeersOfAStage", "[pipeline]\nstages = 2\npeers = [1025, 1]\n",
          "t:6: pipeline.peers: found [1025, 1], expected an integer from 1 to 1024, or a list "),
      after_least(
          "TooManyPeers", "[model]\nlayers = 20\n[pipeline]\nstages = 20\npeers = 1000\n",
          "t:8: pipeline.peers: found 20000 peers in all, expected at most 16384; use fewer"),
      after_least("CutOfAnotherLength", "[pipeline]\nstages = 2\nlayers = [3, 3, 2]\n",
                  "t:6: pipeline.layers: found a list of 3 with stages = 2, expected one number of "
                  "layers for each "),
      after_least("CutOfAnotherSum", "[pipeline]\nstages = 2\nlayers = [4, 5]\n",
                  "t:6: pipeline.layers: found a cut of 9 layers in all with model.layers = 8, "
                  "expected the same; "),
      after_least("CutThroughSharedLayers",
                  "[model]\nshare_layers = 2\n[pipeline]\nstages = 2\nlayers = [3, 5]\n",
                  "t:8: pipeline.layers: found 3 layers in one stage with model.share_layers = 2, "
                  "expected multiples "
                  "of 2, "),
  };
}

std::vector<Case> relations_of_codec_and_net() {
  return {
      after_least(
          "BlockNoPowerOfTwo", "[codec]\nblock = 100\n",
          "t:5: codec.block: found 100, expected 0 or a power of two from 64 to 4096; write "
          "for "
          "example block = "
          "64"),
      after_least("BlockTooSmall", "[codec]\nblock = 32\n",
                  "t:5: codec.block: found 32, expected 0 or a power of two from 64 to 4096; write "
                  "for example block = 64"),
      after_least("BlockTooLarge", "[codec]\nblock = 8192\n",
                  "t:5: codec.block: found 8192, expected an integer "),
      after_least("FeedbackOfNothing", "[codec]\nerror_feedback = true\n",
                  "t:5: codec.error_feedback: found true with averaging = \"none\", which loses "
                  "nothing "),
      after_least("TopKOfNothing", "[codec]\ntopk = 0.0\n",
                  "t:5: codec.topk: found 0.0, expected a number above 0 "),
      after_least("AdvertiseNothing", "[net]\nadvertise = \"here\"\n",
                  "t:5: net.advertise: found \"here\", expected HOST:PORT "),
      after_least("PageNowhere", "[net]\npage = \"here\"\n",
                  "t:5: net.page: found \"here\", expected HOST:PORT with a port from 0 to 65535, "
                  "or \"none\"; "),
      after_least("PageForOthersWithoutKeys", "[net]\npage = \"0.0.0.0:8080\"\n",
                  "t:5: net.page: found \"0.0.0.0:8080\", where other machines reach it, in a run "
                  "without keys, expected "),
      after_least(
          "ListenWithoutPort", "[net]\nlisten = \"127.0.0.1\"\n",
          "t:5: net.listen: found \"127.0.0.1\", expected HOST:PORT with a port from 0 to 65535; "),
      after_least("ListenPortTooLarge", "[net]\nlisten = \"127.0.0.1:70000\"\n",
                  "t:5: net.listen: found \"127.0.0.1:7"),
      after_least("ListenPortIsText", "[net]\nlisten = \"127.0.0.1:http\"\n",
                  "t:5: net.listen: found \"127.0.0.1:h"),
      after_least("ListenWithoutHost", "[net]\nlisten = \":4700\"\n",
                  "t:5: net.listen: found \":4700\", expected HOST"),
      after_least("TransportOfNoKind", "[net]\ntransport = \"pigeon\"\n",
                  "t:5: net.transport: found \"pigeon\", expected \"auto\", \"tcp\", \"shm\", "
                  "\"streams\" or \"ucx\""),
      after_least("OneStream", "[net]\nstreams = 1\n", "t:5: net.streams: found 1, expected "),
      after_least("UcxWithoutATrustedNetwork", "[net]\ntransport = \"ucx\"\n",
                  "t:5: net.transport: found transport = \"ucx\" and no network that is trusted, "
                  "expected "),
      after_least("TrustedNetworkThatIsNone", "[security]\ntrusted_networks = [\"10.0.0.0/33\"]\n",
                  "t:5: security.trusted_networks: found \"10.0.0.0/33\", expected a range of IP "
                  "addresses; write for example \"10.1.0.0/16\""),
      after_least("StoreOfNoKind", "[checkpoint]\nstore = \"ftp://bucket/runs\"\n",
                  "t:5: checkpoint.store: found \"ftp://bucket/runs\", expected "
                  "\"s3://BUCKET/PATH\", \"gs://BUCKET/PATH\" or \"\""),
      after_least("StoreWithoutBucket", "[checkpoint]\nstore = \"s3:///runs\"\n",
                  "t:5: checkpoint.store: found \"s3:///runs\", expected"),
      after_least("EtcdMember", "[run]\netcd = [\"10.0.0.1:2379\", \"10.0.0.2\"]\n",
                  "t:5: run.etcd: found \"10.0.0.2\", expected HOST:PORT"),
      after_least("EtcdCertificateWithoutKey", "[security]\netcd_certificate = \"a.pem\"\n",
                  "t:5: security.etcd_certificate: found one without the other"),
      after_least("EtcdCertificateWithoutAuthority",
                  "[security]\netcd_certificate = \"a.pem\"\netcd_key = \"a.key\"\n",
                  "t:5: security.etcd_certificate: found a certificate for etcd and no authority"),
      after_least("SilenceBelowTwoHeartbeats",
                  "[net]\nheartbeat_seconds = 6\npeer_silence_seconds = 10\n",
                  "t:6: net.peer_silence_seconds: found peer_silence_seconds = 10 with "
                  "heartbeat_seconds = 6, expected at "
                  "least two heartbeats"),
  };
}

class BadConfig : public testing::TestWithParam<Case> {};

TEST_P(BadConfig, GetsOneSentence) {
  const Result<RunConfig> config = run_config_from_text(GetParam().text, "t");
  ASSERT_FALSE(config) << to_toml(*config);
  EXPECT_EQ(config.error().code, ErrorCode::kUserMistake);
  EXPECT_EQ(config.error().what.substr(0, GetParam().sentence.size()), GetParam().sentence)
      << "the whole sentence: " << config.error().what;
  EXPECT_EQ(config.error().what.find('\n'), std::string::npos);
}

#define SWARMLINE_BAD_CONFIGS(group)                                     \
  INSTANTIATE_TEST_SUITE_P(group, BadConfig, testing::ValuesIn(group()), \
                           [](const auto& test) { return std::string(test.param.name); })

SWARMLINE_BAD_CONFIGS(syntax_and_version);
SWARMLINE_BAD_CONFIGS(unknown_names);
SWARMLINE_BAD_CONFIGS(types_and_ranges);
SWARMLINE_BAD_CONFIGS(choices);
SWARMLINE_BAD_CONFIGS(relations_of_run_model_and_data);
SWARMLINE_BAD_CONFIGS(relations_of_batch_and_pipeline);
SWARMLINE_BAD_CONFIGS(relations_of_codec_and_net);

}  // namespace
}  // namespace swarmline
