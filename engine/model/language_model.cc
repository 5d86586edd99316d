#include "engine/model/language_model.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "engine/model/find_device.h"
#include "engine/model/libtorch_errors.h"
#include "engine/model/stage_model.h"
#include "engine/model/stage_network.h"
#include "engine/model/tensor_memory.h"

namespace swarmline {
namespace {

StageSpec whole_stage(const ModelSpec& spec, const std::vector<std::uint32_t>& boundaries) {
  StageSpec whole = whole_model(spec, {});
  whole.inner_boundaries = boundaries;
  return whole;
}

class TorchLanguageModel final : public LanguageModel {
 public:
  TorchLanguageModel(const ModelSpec& spec, const std::vector<std::uint32_t>& boundaries,
                     const FillParameter& fill, at::Device device)
      : spec_(spec),
        layout_(make_layout(spec, whole_stage(spec, boundaries))),
        arenas_(arenas_over(spec, filled(fill, device))),
        network_(spec, whole_stage(spec, boundaries), layout_, arenas_),
        cache_(network_.make_cache()) {
    if (!arenas_.compute.is_same(arenas_.values)) arenas_.compute.copy_(arenas_.values);
    network_.parameters_changed();
  }

  std::uint32_t vocab() const override { return spec_.shape.vocab; }
  std::uint32_t context() const override { return spec_.sequence; }
  void restart() override { cache_.length = 0; }
  std::uint32_t length() const override { return static_cast<std::uint32_t>(cache_.length); }

  Result<std::vector<float>> read(std::span<const std::int32_t> tokens) override {
    SWARMLINE_CHECK(!tokens.empty() && length() + tokens.size() <= context());
    return computed<std::vector<float>>(tokens, [&] {
      const at::Tensor hidden = network_.go_on(on_device(tokens), cache_);
      const at::Tensor last = hidden.narrow(0, hidden.size(0) - 1, 1);
      const at::Tensor logits = network_.logits(last).to(at::kCPU, at::kFloat).contiguous();
      const auto* const values = static_cast<const float*>(logits.const_data_ptr());
      return std::vector<float>(values, values + logits.numel());
    });
  }

  Result<std::vector<double>> log_probabilities(std::span<const std::int32_t> tokens,
                                                std::vector<bool>* greedy) override {
    restart();
    if (tokens.size() < 2) return std::vector<double>();
    SWARMLINE_CHECK(tokens.size() - 1 <= context());
    auto result = computed<std::vector<double>>(tokens, [&] {
      const at::Tensor all = on_device(tokens);
      const at::Tensor logits =
          network_.logits(network_.go_on(all.narrow(0, 0, all.size(0) - 1), cache_));
      const at::Tensor next = all.narrow(0, 1, all.size(0) - 1).to(at::kLong).unsqueeze(1);
      const at::Tensor picked =
          at::log_softmax(logits, 1).gather(1, next).to(at::kCPU, at::kDouble).contiguous();
      if (greedy != nullptr) {
        const at::Tensor same = logits.argmax(1, /*keepdim=*/true).eq(next).to(at::kCPU);
        greedy->clear();
        for (std::int64_t i = 0; i < same.size(0); ++i) greedy->push_back(same[i][0].item<bool>());
      }
      const auto* const values = static_cast<const double*>(picked.const_data_ptr());
      return std::vector<double>(values, values + picked.numel());
    });
    restart();
    return result;
  }

 private:
  at::Tensor filled(const FillParameter& fill, at::Device device) const {
    const auto type = spec_.shape.dtype == DType::kF64 ? at::kDouble : at::kFloat;
    const at::Tensor host =
        at::zeros({static_cast<std::int64_t>(layout_.elements)}, at::TensorOptions(type));
    const std::size_t width = size_bytes(layout_.dtype);
    const MutableBytes bytes(static_cast<std::byte*>(host.mutable_data_ptr()), layout_.bytes());
    for (const ParameterSlot& slot : layout_.slots)
      fill(slot, bytes.subspan(slot.offset * width, slot.elements * width));
    return host.to(device);
  }
  at::Tensor on_device(std::span<const std::int32_t> tokens) const {
    const at::Tensor host = at::empty({static_cast<std::int64_t>(tokens.size())}, at::kInt);
    std::memcpy(host.mutable_data_ptr(), tokens.data(), tokens.size_bytes());
    return host.to(arenas_.values.device());
  }
  template <typename T, typename Body>
  Result<T> computed(std::span<const std::int32_t> tokens, Body&& body) {
    const auto foreign = std::ranges::find_if(tokens, [&](std::int32_t token) {
      return token < 0 || static_cast<std::uint32_t>(token) >= vocab();
    });
    if (foreign != tokens.end())
      return fail(ErrorCode::kUserMistake,
                  "token " + std::to_string(*foreign) + " is not in the model's vocabulary of " +
                      std::to_string(vocab()) + ": the text and the model are of two tokenizers");
    at::NoGradGuard no_graph;
    return guarded<T>("forward", body);
  }

  const ModelSpec spec_;
  const ParameterLayout layout_;
  Arenas arenas_;
  StageNetwork network_;
  KeyValueCache cache_;
};

}  // namespace

Result<std::unique_ptr<LanguageModel>> make_language_model(
    const ModelSpec& spec, const std::vector<std::uint32_t>& boundaries, const FillParameter& fill,
    const LanguageModelOptions& options) {
  const Result<at::Device> device = find_device(options.device);
  if (!device) return std::unexpected(device.error());
  keep_tensors_in_blocks();
  set_compute_threads(options.threads);
  return guarded<std::unique_ptr<LanguageModel>>("loading the model", [&] {
    return std::make_unique<TorchLanguageModel>(spec, boundaries, fill, *device);
  });
}

}  // namespace swarmline
