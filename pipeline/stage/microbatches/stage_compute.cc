#include "pipeline/stage/microbatches/stage_compute.h"

#include <cstring>

namespace swarmline {
namespace {

// A tensor on its way into the model: its wire buffer where the model takes that, else its values,
// decoded on arrival or kept here for the call.
struct Incoming {
  BytesView wire;
  SharedBytes values;
};
Result<Incoming> incoming(const StageContext& context, const SharedBytes& values,
                          const SharedBytes& wire, std::uint32_t rows) {
  if (context.model.takes_wire()) return Incoming{.wire = wire.view(), .values = {}};
  if (!values.empty()) return Incoming{.wire = {}, .values = values};
  const DType dtype = context.spec.shape.stream_dtype();
  Buffer tensor(context.activation_elements(rows) * size_bytes(dtype));
  SWARMLINE_TRY(decode(wire.view(), dtype, tensor.bytes()));
  return Incoming{.wire = {}, .values = SharedBytes(std::move(tensor))};
}

// `hidden` keeps the decoded input alive for the call.
Result<ForwardInput> forward_input(const StageContext& context, const MicrobatchTask& task,
                                   Incoming& hidden) {
  ForwardInput input;
  input.id = task.id;
  input.train = task.train();
  input.rows = task.rows;
  if (context.first()) {
    input.tokens = task.input.view();
  } else {
    auto taken = incoming(context, task.input_values, task.input, task.rows);
    if (!taken) return std::unexpected(taken.error());
    hidden = std::move(*taken);
    input.hidden = hidden.values.view();
    input.hidden_wire = hidden.wire;
  }
  if (context.needs_targets()) input.targets = task.targets.view();
  if (context.last())
    input.loss_scale = 1.0 / static_cast<double>(context.config.tokens_per_step());
  return input;
}

// `gradient` keeps the decoded output gradient alive for the call.
Result<BackwardInput> backward_input(StageContext& context, const MicrobatchTask& task,
                                     Incoming& gradient) {
  BackwardInput input;
  input.id = task.id;
  input.accumulator = context.state.accumulator(task.id.microbatch.phase.step);
  if (context.last()) return input;
  auto taken = incoming(context, task.gradient_values, task.gradient, task.rows);
  if (!taken) return std::unexpected(taken.error());
  gradient = std::move(*taken);
  input.output_gradient = gradient.values.view();
  input.output_gradient_wire = gradient.wire;
  return input;
}

// What the model gave, as it leaves: encoded here unless the model did.
template <typename ComputeResult>
void send_tensor(const StageContext& context, const WireRequest& send, Buffer given,
                 TensorSamplePtr sample, ComputeResult& result) {
  if (context.model.takes_wire()) {
    result.wire = SharedBytes(std::move(given));
    result.sample = std::move(sample);
    return;
  }
  const DType dtype = context.spec.shape.stream_dtype();
  result.wire =
      SharedBytes(encode(send.codec, given.bytes(), dtype, send.key ? &*send.key : nullptr));
  result.sample = host_sample(given.bytes(), dtype, send.sample_elements);
}

// Where nothing goes on by itself, a body does both. `says_computed`: before its completion, too.
template <typename Begin, typename Finish, typename Pass>
void set_parts(Job& job, bool goes_on, const Begin& begin, const Finish& finish, const Pass& begun,
               bool says_computed) {
  if (goes_on) {
    job.body = begin;
    job.finish = finish;
    if (says_computed) job.computed = [begun] { return (*begun)->computed(); };
    return;
  }
  job.body = [begin, finish]() -> Result<void> {
    SWARMLINE_TRY(begin());
    return finish();
  };
}

}  // namespace

void set_forward(Job& job, StageContext& context, TaskPtr task, WireRequest send,
                 std::shared_ptr<ForwardResult> result) {
  auto begun = std::make_shared<std::unique_ptr<Begun<ForwardOutput>>>();
  const auto begin = [&context, task, send, result, begun]() -> Result<void> {
    SWARMLINE_TRY(context.state.use(task->version));
    Incoming hidden;
    auto input = forward_input(context, *task, hidden);
    if (!input) return std::unexpected(input.error());
    if (context.model.takes_wire()) input->as_wire = send;
    auto pass = context.model.begin_forward(*input);
    if (!pass) return std::unexpected(pass.error());
    *begun = std::move(*pass);
    result->begun = true;
    return {};
  };
  const auto finish = [&context, send, result, begun]() -> Result<void> {
    auto output = (*begun)->wait();
    if (!output) return std::unexpected(output.error());
    result->loss_sum = output->loss_sum;
    result->finite = output->finite;
    if (!context.last())
      send_tensor(context, send, std::move(output->hidden), std::move(output->sample), *result);
    return {};
  };
  // Of the last stage's, the backward follows with the completion: nothing is to come in between.
  set_parts(job, context.model.goes_on(), begin, finish, begun, !context.last());
}

void set_backward(Job& job, StageContext& context, TaskPtr task, BackwardPlan plan,
                  WireRequest send, std::shared_ptr<BackwardResult> result) {
  auto begun = std::make_shared<std::unique_ptr<Begun<BackwardOutput>>>();
  const auto begin = [&context, task, plan, send, begun]() -> Result<void> {
    SWARMLINE_TRY(context.state.use(task->version));
    Incoming gradient;
    auto input = backward_input(context, *task, gradient);
    if (!input) return std::unexpected(input.error());
    input->weight_gradients = plan.weight_gradients;
    input->give_input_gradient = plan.input_gradient;
    input->add_later = plan.add_later;
    if (context.model.takes_wire()) input->as_wire = send;
    auto pass = context.model.begin_backward(*input);
    if (!pass) return std::unexpected(pass.error());
    *begun = std::move(*pass);
    return {};
  };
  const auto finish = [&context, plan, send, result, begun]() -> Result<void> {
    auto output = (*begun)->wait();
    if (!output) return std::unexpected(output.error());
    result->finite = output->finite;
    if (!context.first() && plan.input_gradient)
      send_tensor(context, send, std::move(output->input_gradient), std::move(output->sample),
                  *result);
    return {};
  };
  set_parts(job, context.model.goes_on(), begin, finish, begun, true);
}

void set_adding(Job& job, StageContext& context, TaskPtr task) {
  auto begun = std::make_shared<std::unique_ptr<Begun<AddedGradients>>>();
  const auto begin = [&context, task, begun]() -> Result<void> {
    auto pass = context.model.begin_weight_gradients(
        task->id, context.state.accumulator(task->id.microbatch.phase.step));
    if (!pass) return std::unexpected(pass.error());
    *begun = std::move(*pass);
    return {};
  };
  const auto finish = [begun]() -> Result<void> {
    const auto added = (*begun)->wait();
    return added ? Result<void>() : std::unexpected(added.error());
  };
  set_parts(job, context.model.goes_on(), begin, finish, begun, true);
}

std::function<Result<void>()> subtract_body(StageContext& context, TaskPtr task) {
  return [&context, task]() -> Result<void> {
    SWARMLINE_TRY(context.state.use(task->version));
    Incoming hidden, gradient;
    auto input = forward_input(context, *task, hidden);
    if (!input) return std::unexpected(input.error());
    input->id.attempt = second_run(input->id.attempt);  // its graph has its own name
    input->give_hidden = false;
    if (auto output = context.model.forward(*input); !output)
      return std::unexpected(output.error());
    auto back = backward_input(context, *task, gradient);
    if (!back) return std::unexpected(back.error());
    back->id = input->id;
    back->scale = -1;
    back->give_input_gradient = false;
    if (auto output = context.model.backward(*back); !output)
      return std::unexpected(output.error());
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
