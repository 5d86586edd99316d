#include "pipeline/stage/stage_compute.h"

#include <algorithm>
#include <cstring>

namespace swarmline {
namespace {

// Bit 63 of an attempt marks the second run of a contribution that is taken back, so that its graph
// has its own name.
constexpr std::uint64_t kTakeBackBit = std::uint64_t{1} << 63;

// `values`: decoded on arrival, or empty.
Result<SharedBytes> decode_tensor(const StageContext& context, const SharedBytes& values,
                                  const SharedBytes& wire, std::uint32_t rows) {
  if (!values.empty()) return values;
  const DType dtype = context.spec.shape.dtype;
  Buffer tensor(context.activation_elements(rows) * size_bytes(dtype));
  SWARMLINE_TRY(decode(wire.view(), dtype, tensor.bytes()));
  return SharedBytes(std::move(tensor));
}

// `hidden` keeps the decoded input alive for the call.
Result<ForwardInput> forward_input(const StageContext& context, const MicrobatchTask& task,
                                   SharedBytes& hidden) {
  ForwardInput input;
  input.id = task.id;
  input.train = task.train();
  input.rows = task.rows;
  if (context.first()) {
    input.tokens = task.input.view();
  } else {
    auto decoded = decode_tensor(context, task.input_values, task.input, task.rows);
    if (!decoded) return std::unexpected(decoded.error());
    hidden = std::move(*decoded);
    input.hidden = hidden.view();
  }
  if (context.last()) {
    input.targets = task.targets.view();
    input.loss_scale = 1.0 / static_cast<double>(context.config.tokens_per_step());
  }
  return input;
}

void send_tensor(const SendPlan& send, BytesView values, DType dtype, SharedBytes& wire,
                 SharedBytes& sample) {
  wire = SharedBytes(encode(send.codec, values, dtype, send.key ? &*send.key : nullptr));
  if (!send.sample) return;
  const std::size_t bytes = std::min(values.size(), kSampleElementsMax * size_bytes(dtype));
  sample = SharedBytes(Buffer::copy_of(values.first(bytes)));
}

}  // namespace

std::function<Result<void>()> forward_body(StageContext& context, TaskPtr task, SendPlan send,
                                           std::shared_ptr<ForwardResult> result) {
  return [&context, task, send, result]() -> Result<void> {
    SWARMLINE_TRY(context.state.use(task->version));
    SharedBytes hidden;
    auto input = forward_input(context, *task, hidden);
    if (!input) return std::unexpected(input.error());
    auto output = context.model.forward(*input);
    if (!output) return std::unexpected(output.error());
    result->loss_sum = output->loss_sum;
    result->finite = output->finite;
    if (!context.last())
      send_tensor(send, output->hidden.bytes(), context.spec.shape.dtype, result->wire,
                  result->sample);
    return {};
  };
}

std::function<Result<void>()> backward_body(StageContext& context, TaskPtr task, BackwardPlan plan,
                                            SendPlan send, std::shared_ptr<BackwardResult> result) {
  return [&context, task, plan, send, result]() -> Result<void> {
    SWARMLINE_TRY(context.state.use(task->version));
    BackwardInput input;
    input.id = task->id;
    input.weight_gradients = plan.weight_gradients;
    input.accumulator = context.state.accumulator(task->id.microbatch.phase.step);
    SharedBytes gradient;
    if (!context.last()) {
      auto decoded = decode_tensor(context, task->gradient_values, task->gradient, task->rows);
      if (!decoded) return std::unexpected(decoded.error());
      gradient = std::move(*decoded);
      input.output_gradient = gradient.view();
    }
    auto output = context.model.backward(input);
    if (!output) return std::unexpected(output.error());
    result->finite = output->finite;
    if (!context.first() && plan.input_gradient)
      send_tensor(send, output->input_gradient.bytes(), context.spec.shape.dtype, result->wire,
                  result->sample);
    return {};
  };
}

std::function<Result<void>()> subtract_body(StageContext& context, TaskPtr task) {
  return [&context, task]() -> Result<void> {
    SWARMLINE_TRY(context.state.use(task->version));
    SharedBytes hidden;
    auto input = forward_input(context, *task, hidden);
    if (!input) return std::unexpected(input.error());
    input->id.attempt.value |= kTakeBackBit;
    if (auto output = context.model.forward(*input); !output)
      return std::unexpected(output.error());
    BackwardInput back;
    back.id = input->id;
    back.scale = -1;
    back.accumulator = context.state.accumulator(task->id.microbatch.phase.step);
    SharedBytes gradient;
    if (!context.last()) {
      auto decoded = decode_tensor(context, task->gradient_values, task->gradient, task->rows);
      if (!decoded) return std::unexpected(decoded.error());
      gradient = std::move(*decoded);
      back.output_gradient = gradient.view();
    }
    if (auto output = context.model.backward(back); !output) return std::unexpected(output.error());
    return {};
  };
}

std::string pack_targets(std::span<const std::int32_t> targets, std::uint32_t vocab) {
  const std::size_t width = target_bytes(vocab);
  std::string packed(targets.size() * width, '\0');
  for (std::size_t i = 0; i < targets.size(); ++i)
    std::memcpy(&packed[i * width], &targets[i], width);
  return packed;
}

Result<SharedBytes> unpack_targets(std::string_view packed, std::uint64_t count,
                                   std::uint32_t vocab) {
  const std::size_t width = target_bytes(vocab);
  if (packed.size() != count * width)
    return fail(ErrorCode::kCorrupt, "target tokens of another length");
  Buffer targets(count * sizeof(std::int32_t));
  for (std::uint64_t i = 0; i < count; ++i) {
    std::uint32_t token = 0;
    std::memcpy(&token, packed.data() + i * width, width);
    if (token >= vocab) return fail(ErrorCode::kCorrupt, "a target token outside the vocabulary");
    targets.as<std::int32_t>()[i] = static_cast<std::int32_t>(token);
  }
  return SharedBytes(std::move(targets));
}

}  // namespace swarmline
