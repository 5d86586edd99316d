// One stage in the middle of a model, driven as a peer drives it: wire buffers in and out of the
// model (decoded and encoded on the host where it takes none), sums and commit by ParameterState.
// Its task is to make a fixed tensor of a fixed input, so that training it shows whether all of it
// is right: the loss falls.
//   Checks: before anything is timed, against the plain path (values in and out, weight gradients
//           added at once): the same wire buffer, and sums the same (CPU) or within
//           kSumsApart (a device, whose attention adds its gradients in any order). Afterwards that
//           everything was finite, and that the loss has fallen.
//   Errors: kUserMistake: no such device, or a shape that no model has; kDevice; kCorrupt: a check.
//   Thread: one, which is the device's.
#pragma once

#include <string>
#include <vector>

#include "compression/codec.h"
#include "engine/config/run_config.h"
#include "engine/model/model_spec.h"

namespace swarmline::bench {

// Relative, L2: each element of what attention passes back is rounded to bf16 (8 bits), and so is
// every product of it.
inline constexpr double kSumsApart = 1.0 / 128;
inline constexpr int kWarmUpRounds = 1;

struct StageOptions {
  std::string device = "cpu";
  std::uint32_t layers = 2;
  std::uint32_t width = 256;
  std::uint32_t heads = 4;
  std::uint32_t rows = 2;
  std::uint32_t sequence = 128;
  std::uint32_t rounds = 5;  // training steps of one microbatch, each part timed in each
  std::uint32_t threads = 1;
  CodecSpec codec;
  MomentsKind state = MomentsKind::k8Bit;
};

struct StageKind {
  const char* name = "";
  ActivationKind activation = ActivationKind::kGeluTanh;  // SwiGLU: with what Llama has besides
  ComputeKind compute = ComputeKind::kNative;
};

// The median of one part. `bytes` and `flops` are what the part is about, 0: neither.
struct StageFigure {
  std::string form;
  double us = 0;
  double bytes = 0;
  double flops = 0;
};
struct StageReport {
  std::vector<StageFigure> figures;
  double first_loss = 0, last_loss = 0;
  std::uint64_t parameters = 0;
  double sums_apart = 0;  // of the wire path and the plain one, relative
};
Result<StageReport> drive_stage(const StageOptions& options, const StageKind& kind);

}  // namespace swarmline::bench
