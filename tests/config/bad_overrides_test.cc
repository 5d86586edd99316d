// Every mistake that --set can make, with the sentence it gets.

#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "engine/config/load.h"

namespace swarmline {
namespace {

struct BadOverride {
  std::string_view name;
  std::vector<std::string> overrides;
  std::string_view sentence;   // its beginning
  std::string_view text = {};  // of the file, after what every file needs
};
void PrintTo(const BadOverride& bad, std::ostream* out) {
  *out << bad.name;
}

std::vector<BadOverride> bad_overrides() {
  constexpr std::string_view kShape =
      "expected section.key=value; write for example --set run.steps=100";
  static const std::string kNoEquals = "--set: run.steps: " + std::string(kShape);
  static const std::string kNoDot = "--set: steps=3: " + std::string(kShape);
  return {
      {"NoEquals", {"run.steps"}, kNoEquals},
      {"NoDot", {"steps=3"}, kNoDot},
      {"DotOnlyInTheValue", {"steps=3.5"}, "--set: steps=3.5: expected section.key=value; "},
      {"NoSection", {".steps=3"}, "--set: .steps=3: expected section.key=value; "},
      {"NoKey", {"run.=3"}, "--set: run.=3: expected section.key=value; "},
      {"NoValue", {"run.steps="}, "--set: run.steps: found nothing after \"=\", expected a value"},
      {"UnknownSectionSet",
       {"rum.steps=3"},
       "--set: rum.steps: found an unknown section, expected "},
      {"UnknownKeySet",
       {"run.stepss=3"},
       "--set: run.stepss: found an unknown key, expected a key of [run]; did you mean steps?"},
      {"RetiredKey",
       {"net.connect_timeout_seconds=5"},
       "--set: net.connect_timeout_seconds: found a key of earlier versions, which does nothing: "},
      {"WordForInteger",
       {"run.steps=many"},
       "--set: run.steps: found \"many\", expected an integer of at least 1; "},
      {"UnknownChoiceSet",
       {"optimizer.kind=lamp"},
       "--set: optimizer.kind: found \"lamp\", expected \"adamw\", \"lamb\" or \"muon\"; "
       "did you mean \"lamb\"?"},
      {"UnclosedList",
       {"pipeline.peers=[1,2"},
       "--set: pipeline.peers: found \"[1,2\", expected a value in TOML syntax; "},
      {"SecondLine",
       {"run.steps=1\nrun.seed=2"},
       "--set: run.steps: found \"1\\u000Arun.seed=2\", "},
      {"NotUtf8",
       {"run.dir=\xFF"},
       "--set: run.dir: found bytes that are not UTF-8, expected text"},
      {"RelationBrokenByAnOverride",
       {"batch.batch=10"},
       "--set: batch.batch: found microbatch = 4 with batch = 10, "},
      {"OverrideIsBlamedBeforeTheFile",
       {"batch.batch=10"},
       "--set: batch.batch: found microbatch = 4 with batch = 10, ",
       "[batch]\nmicrobatch = 4\n"},
      {"OverriddenMistakeIsStillOne",
       {"run.steps=5"},
       "t:5: run.steps: found 0, ",
       "[run]\nsteps = 0\n"},
  };
}

class BadOverrides : public testing::TestWithParam<BadOverride> {};

TEST_P(BadOverrides, GetOneSentence) {
  const std::string text =
      "config_version = 1\n[data]\nfiles = [\"x\"]\n" + std::string(GetParam().text);
  const Result<RunConfig> config = run_config_from_text(text, "t", GetParam().overrides);
  ASSERT_FALSE(config) << to_toml(*config);
  EXPECT_EQ(config.error().code, ErrorCode::kUserMistake);
  EXPECT_EQ(config.error().what.substr(0, GetParam().sentence.size()), GetParam().sentence)
      << "the whole sentence: " << config.error().what;
  EXPECT_EQ(config.error().what.find('\n'), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(bad_overrides, BadOverrides, testing::ValuesIn(bad_overrides()),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace swarmline
