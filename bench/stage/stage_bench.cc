// One stage in parts, through what peers run: decode, forward, encode and copy out, backward,
// weight gradients added later, collecting the sums, sum of squares, optimizer step, digest; and
// what copies to and from the device reach. One JSON object a line: us a median in microseconds,
// gb_per_s of the bytes that the part is about, tflops of its matrix products, "forward" and
// "backward" the model's part of a job. A line "check" says what was checked before and after.
//   usage: stage_bench [--device cpu|cuda|cuda:N] [--layers N] [--width N] [--heads N] [--rows N]
//                      [--sequence N] [--rounds N] [--threads N] [--codec NAME] [--state fp32|8bit]
//                      [--only PART OF A NAME]
// Exit code 2 and a sentence for what a user can have got wrong, a missing device among it; 1 where
// a check failed.
#include <charconv>
#include <cstdio>
#include <map>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "bench/stage/stage_drive.h"

namespace {

using swarmline::ActivationKind;
using swarmline::ComputeKind;
using swarmline::Result;
using swarmline::bench::StageFigure;
using swarmline::bench::StageKind;
using swarmline::bench::StageOptions;
using swarmline::bench::StageReport;

constexpr StageKind kKinds[] = {
    {"gelu_tanh native", ActivationKind::kGeluTanh, ComputeKind::kNative},
    {"gelu_tanh fp8", ActivationKind::kGeluTanh, ComputeKind::kFp8},
    {"swiglu native", ActivationKind::kSwiGlu, ComputeKind::kNative},
    {"swiglu fp8", ActivationKind::kSwiGlu, ComputeKind::kFp8},
};
constexpr std::uint32_t kNumberMax = 1 << 20;

struct Chosen {
  StageOptions stage;
  std::string only;
};

int mistake(const std::string& sentence) {
  std::fprintf(stderr, "stage_bench: %s\n", sentence.c_str());
  return 2;
}

Result<void> user_mistake(std::string sentence) {
  return swarmline::fail(swarmline::ErrorCode::kUserMistake, std::move(sentence));
}

// What a device is asked for by default: a width at which products take most of the time.
StageOptions defaults(bool cuda) {
  if (!cuda) return {};
  return {.device = "cuda",
          .layers = 4,
          .width = 4096,
          .heads = 32,
          .rows = 4,
          .sequence = 2048,
          .rounds = 8,
          .threads = 1,
          .codec = {}};
}

Result<void> read_number(const std::string& option, std::string_view text, std::uint32_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end == text.data() + text.size() && number >= 1 &&
      number <= kNumberMax)
    return {};
  return user_mistake(
      fmt::format("{} is \"{}\": give a whole number from 1 to {}.", option, text, kNumberMax));
}

Result<void> set(Chosen& chosen, const std::string& option, const std::string& value) {
  StageOptions& stage = chosen.stage;
  const std::map<std::string, std::uint32_t*> numbers = {
      {"--layers", &stage.layers},     {"--width", &stage.width},   {"--heads", &stage.heads},
      {"--rows", &stage.rows},         {"--rounds", &stage.rounds}, {"--threads", &stage.threads},
      {"--sequence", &stage.sequence},
  };
  if (const auto found = numbers.find(option); found != numbers.end())
    return read_number(option, value, *found->second);
  if (option == "--device") {
    stage.device = value;
  } else if (option == "--only") {
    chosen.only = value;
  } else if (option == "--state" && (value == "fp32" || value == "8bit")) {
    using swarmline::MomentsKind;
    stage.state = value == "8bit" ? MomentsKind::k8Bit : MomentsKind::kF32;
  } else if (option == "--codec") {
    const auto codec = swarmline::parse_codec(value);
    if (!codec) return std::unexpected(codec.error());
    stage.codec = *codec;
  } else {
    return user_mistake(
        fmt::format("{} {}: it is not known; bench/README.md has the options.", option, value));
  }
  return {};
}

Result<Chosen> read_options(int argc, char** argv) {
  bool cuda = false;
  for (int i = 1; i + 1 < argc; ++i)
    cuda |= argv[i] == std::string_view("--device") && std::string_view(argv[i + 1]) != "cpu";
  Chosen chosen{.stage = defaults(cuda), .only = {}};
  chosen.stage.codec = *swarmline::parse_codec("h8");
  for (int i = 1; i < argc; i += 2) {
    if (i + 1 == argc) {
      SWARMLINE_TRY(user_mistake(fmt::format("{} needs a value behind it.", argv[i])));
    }
    SWARMLINE_TRY(set(chosen, argv[i], argv[i + 1]));
  }
  return chosen;
}

void print(const StageOptions& options, const StageKind& kind, const StageFigure& figure) {
  std::string line = fmt::format(
      "{{\"op\": \"stage\", \"format\": \"{}\", \"shape\": \"{}x{}x{}\", \"form\": \"{}\", "
      "\"us\": {:.2f}",
      kind.name, options.layers, options.width, options.rows * options.sequence, figure.form,
      figure.us);
  if (figure.bytes > 0)
    line += fmt::format(", \"gb_per_s\": {:.3f}", figure.bytes / figure.us / 1e3);
  if (figure.flops > 0) line += fmt::format(", \"tflops\": {:.3f}", figure.flops / figure.us / 1e6);
  std::fputs((line + "}\n").c_str(), stdout);
  std::fflush(stdout);
}

void print(const StageOptions& options, const StageKind& kind, const StageReport& report) {
  for (const StageFigure& figure : report.figures) print(options, kind, figure);
  std::fputs(fmt::format("{{\"op\": \"stage\", \"format\": \"{}\", \"form\": \"check\", "
                         "\"parameters\": {}, \"first_loss\": {:.5g}, \"last_loss\": {:.5g}, "
                         "\"sums_apart\": {:.3g}, \"device\": \"{}\", \"codec\": \"{}\"}}\n",
                         kind.name, report.parameters, report.first_loss, report.last_loss,
                         report.sums_apart, options.device, to_string(options.codec))
                 .c_str(),
             stdout);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const auto chosen = read_options(argc, argv);
  if (!chosen) return mistake(chosen.error().what);
  bool any = false;
  for (const StageKind& kind : kKinds) {
    if (std::string_view(kind.name).find(chosen->only) == std::string_view::npos) continue;
    any = true;
    const auto report = swarmline::bench::drive_stage(chosen->stage, kind);
    if (!report) {
      const int code = report.error().code == swarmline::ErrorCode::kUserMistake ? 2 : 1;
      std::fprintf(stderr, "stage_bench: %s: %s\n", kind.name, report.error().what.c_str());
      return code;
    }
    print(chosen->stage, kind, *report);
  }
  if (any) return 0;
  std::string names;
  for (const StageKind& kind : kKinds) names += fmt::format(" \"{}\"", kind.name);
  return mistake(
      fmt::format("--only \"{}\": none is called so; there are{}.", chosen->only, names));
}
