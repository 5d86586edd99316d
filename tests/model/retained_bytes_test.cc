// What a stage's model keeps of a microbatch, by the heap and by blocks of tensors, beside what
// admission counts with.
#include <malloc.h>

#include <gtest/gtest.h>

#include "base/block_cache.h"
#include "engine/model/stage_model.h"
#include "engine/model/working_memory.h"
#include "tests/model/model_test_util.h"

namespace swarmline::testing {
namespace {

// retained_bytes() is what admission counts with: it must be near what the process really keeps,
// between forward and backward or, with `later`, until weight gradients are added.
double kept_bytes(const ModelSpec& spec, const StageSpec& stage, std::uint32_t rows, bool recompute,
                  bool later = false) {
  auto model = make_stage(spec, stage, {.recompute = recompute});
  const Batch batch = make_batch(spec, rows);
  const Buffer hidden = Buffer::zeroed(std::size_t{rows} * spec.sequence * spec.hidden_width() *
                                       size_bytes(spec.shape.stream_dtype()));
  Buffer sums = Buffer::zeroed(model->layout().bytes());
  ForwardInput input{.rows = rows, .loss_scale = 1};
  if (stage.has_embedding()) input.tokens = Batch::view(batch.tokens);
  input.hidden = hidden.bytes();
  input.targets = Batch::view(batch.targets);
  const auto in_use = [] {
    const struct mallinfo2 info = mallinfo2();
    return static_cast<double>(info.uordblks + info.hblkhd + BlockCache::shared().lent_bytes());
  };
  double before = 0;
  for (std::uint32_t i = 0; i < 5; ++i) {
    input.id = attempt_of(1, i);
    EXPECT_TRUE(model->forward(input).has_value());
    if (later) {
      EXPECT_TRUE(
          model
              ->backward({.id = input.id,
                          .output_gradient = stage.has_head() ? BytesView() : hidden.bytes(),
                          .add_later = true,
                          .accumulator = sums.bytes()})
              .has_value());
    }
    if (i == 0) before = in_use();  // the first one also fills libtorch's caches
  }
  return (in_use() - before) / 4;
}

TEST(Retained, IsWhatTheProcessKeeps) {
  RunConfig gpt2 = tiny_config();
  gpt2.model.dtype = DType::kF32;
  gpt2.model.d_model = 128;
  gpt2.model.vocab = 257;
  gpt2.batch.sequence = 64;
  RunConfig llama = tiny_llama();
  llama.model.dtype = DType::kF32;
  llama.model.d_model = 128;
  llama.model.d_ff = 384;
  llama.batch.sequence = 64;
  const auto narrow = [](RunConfig config) {
    config.model.stream = StreamKind::kBF16;
    return config;
  };
  for (const RunConfig& config :
       {gpt2, llama, with_boundary(gpt2, BoundaryKind::kMaxout, 2),
        with_boundary(gpt2, BoundaryKind::kBottleneck, 4), narrow(gpt2), narrow(llama),
        narrow(with_boundary(gpt2, BoundaryKind::kMaxout, 2)),
        narrow(with_boundary(gpt2, BoundaryKind::kBottleneck, 4))}) {
    const ModelSpec spec = resolved(config);
    SCOPED_TRACE(spec.shape.stream == StreamKind::kBF16 ? "bf16 stream" : "fp32 stream");
    for (const std::uint32_t stage : {0U, 1U, 3U}) {
      for (const bool recompute : {false, true}) {
        const StageSpec cut = stage_of(spec, stage, 4);
        const double kept = kept_bytes(spec, cut, 4, recompute);
        const auto told = static_cast<double>(retained_bytes(spec, cut, 4, recompute));
        EXPECT_LT(kept, 1.1 * told + 8192) << "stage " << stage << " recompute " << recompute;
        EXPECT_GT(kept, 0.8 * told) << "stage " << stage << " recompute " << recompute;
        if (recompute || cut.has_embedding()) continue;  // where a backward is never split
        const double later = kept_bytes(spec, cut, 4, false, /*later=*/true);
        const auto told_later = static_cast<double>(bytes_until_added(spec, cut, 4));
        EXPECT_LT(later, 1.1 * told + 8192) << "what admission counts; stage " << stage;
        EXPECT_LT(later, 1.1 * told_later + 8192) << "stage " << stage;
        EXPECT_GT(later, 0.8 * told_later) << "stage " << stage;
      }
    }
  }
}

}  // namespace
}  // namespace swarmline::testing
