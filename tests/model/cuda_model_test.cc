// A CUDA device against the CPU: products, rows of codes, dropout masks and whole stages.
#include <array>
#include <cmath>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "base/byte_ops.h"
#include "compression/measure.h"
#include "engine/model/find_device.h"
#include "engine/model/linear_backend.h"
#include "engine/model/ops.h"
#include "tests/model/model_test_util.h"

namespace swarmline::testing {
namespace {

const auto kF32Options = at::TensorOptions(at::kFloat);

double largest_difference(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kCPU, at::kDouble) - b.to(at::kCPU, at::kDouble)).abs().max().item<double>();
}
double largest(const at::Tensor& a) {
  return a.to(at::kCPU, at::kDouble).abs().max().item<double>();
}

class CudaBackend : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto device = find_device("cuda"); !device) GTEST_SKIP() << device.error().what;
    at::manual_seed(7);
    backend_ = make_linear_backend(at::Device(at::kCUDA, 0));
  }
  static at::Tensor matrix(std::int64_t rows, std::int64_t columns, at::ScalarType type) {
    return at::randn({rows, columns}, kF32Options).to(type).to(at::kCUDA);
  }

  std::unique_ptr<LinearBackend> backend_;
};

// Each call twice: the first measures, the second takes what was chosen.
TEST_F(CudaBackend, ProductsAgreeWithFp32) {
  for (const auto& [m, n, k] :
       {std::array{128, 64, 32}, std::array{333, 257, 96}, std::array{2048, 3072, 768}}) {
    const at::Tensor x = matrix(m, k, at::kBFloat16);
    const at::Tensor w = matrix(n, k, at::kBFloat16);
    const at::Tensor g = matrix(m, n, at::kBFloat16);
    const at::Tensor bias = matrix(1, n, at::kBFloat16).view({n});
    const at::Tensor fx = x.to(at::kFloat), fw = w.to(at::kFloat), fg = g.to(at::kFloat);
    const at::Tensor inner = at::addmm(bias.to(at::kFloat), fx, fw.t());
    const auto near = [](const at::Tensor& a, const at::Tensor& b, const char* what) {
      EXPECT_LT(largest_difference(a, b), 0.02 * largest(b)) << what;
    };
    for (int pass = 0; pass < 2; ++pass) {
      near(backend_->product(x, w, bias), inner, "product");
      near(backend_->product(x, w, {}), inner - bias, "product without bias");
      at::Tensor kept;
      near(backend_->gelu_product(x, w, bias, kept), at::gelu(inner, "tanh"), "gelu");
      near(kept, inner, "inner");
      near(backend_->input_gradient(g, w), at::mm(fg, fw), "input gradient");
      const at::Tensor deep = matrix(m, k, at::kBFloat16);
      at::Tensor sums;
      const at::Tensor expected = at::gelu_backward(at::mm(fg, fw), deep.to(at::kFloat), "tanh");
      near(backend_->gelu_input_gradient(g, w, deep, &sums), expected, "gelu input gradient");
      near(sums, expected.sum(0), "column sums");
      at::Tensor sum = at::ones({n, k}, kF32Options.device(at::kCUDA));
      backend_->add_weight_gradient(sum, g, x, 0.5);
      near(sum, 1 + 0.5 * at::mm(fg.t(), fx), "weight gradient");
    }
  }
}

TEST_F(CudaBackend, RowsHaveTheBitsOfTheCpu) {
  for (const RowFormat format : {RowFormat::kE4M3, RowFormat::kE5M2, RowFormat::kInt8}) {
    for (const auto type : {at::kFloat, at::kBFloat16}) {
      at::Tensor x = at::randn({77, 1001}, kF32Options).exp().to(type);
      x[3][4] = NAN;
      x[5].zero_();
      const ScaledRows host = scaled_rows(x, format);
      const ScaledRows device = scaled_rows(x.to(at::kCUDA), format);
      EXPECT_TRUE(device.codes.cpu().equal(host.codes));
      EXPECT_TRUE(device.scales.cpu().view(at::kInt).equal(host.scales.view(at::kInt)));
    }
  }
}

TEST_F(CudaBackend, ScaledProductsAgreeWithTheCpu) {
  for (const RowFormat format : {RowFormat::kE4M3, RowFormat::kE5M2, RowFormat::kInt8}) {
    const RowFormat of_w = format == RowFormat::kInt8 ? format : RowFormat::kE4M3;
    const ScaledRows x = scaled_rows(at::randn({96, 512}, kF32Options), format);
    const ScaledRows w = scaled_rows(at::randn({64, 512}, kF32Options), of_w);
    const auto there = [](const ScaledRows& rows) {
      return ScaledRows{rows.codes.to(at::kCUDA), rows.scales.to(at::kCUDA), rows.format};
    };
    const at::Tensor bias = at::randn({64}, kF32Options);
    const at::Tensor host = torch_linear_backend().scaled_product(x, w, bias, at::kFloat);
    const at::Tensor device =
        backend_->scaled_product(there(x), there(w), bias.to(at::kCUDA), at::kBFloat16);
    EXPECT_LT(largest_difference(device, host), 0.01 * largest(host));
    if (format == RowFormat::kInt8) {
      const at::Tensor exact =
          backend_->scaled_product(there(x), there(w), bias.to(at::kCUDA), at::kFloat);
      EXPECT_TRUE(exact.cpu().equal(host));
    }
  }
}

// The widths of runs of 16 bytes and of single elements; some targets are not counted.
TEST_F(CudaBackend, CrossEntropyAgreesWithTheCpu) {
  for (const std::int64_t width : {257, 1024, 50'304}) {
    for (const auto type : {at::kFloat, at::kBFloat16}) {
      at::Tensor logits = (4 * at::randn({37, width}, kF32Options)).to(type);
      logits[3] *= 20;
      at::Tensor targets = at::randint(width, {37}, at::TensorOptions(at::kInt));
      targets[5] = -1;
      at::Tensor loss[2], gradient[2];
      for (int i : {0, 1}) {
        const at::Device device(i == 0 ? at::kCPU : at::kCUDA);
        const at::Tensor leaf =
            (i == 0 ? logits.to(at::kFloat) : logits).to(device, /*non_blocking=*/false, true);
        leaf.requires_grad_(true);
        loss[i] = cross_entropy_sum(leaf, targets.to(device));
        const at::Tensor factor = at::full({}, 0.25, loss[i].options());
        gradient[i] = torch::autograd::grad({loss[i]}, {leaf}, {factor})[0];
      }
      EXPECT_EQ(gradient[1].scalar_type(), type);
      EXPECT_NEAR(loss[1].item<double>() / loss[0].item<double>(), 1, 1e-5);
      const double bound = type == at::kFloat ? 1e-5 : 0x1p-8;
      EXPECT_LT(largest_difference(gradient[1], gradient[0]), bound * largest(gradient[0]));
      EXPECT_EQ(largest(gradient[1][5].cpu()), 0);
    }
  }
  const at::Tensor bad = at::full({2, 64}, NAN, kF32Options.device(at::kCUDA));
  const at::Tensor first = at::zeros({2}, at::TensorOptions(at::kInt).device(at::kCUDA));
  EXPECT_TRUE(std::isnan(cross_entropy_sum(bad, first).item<double>()));
}

// Widths of whole runs of 16 bytes and of single elements.
TEST_F(CudaBackend, SwiGluAgreesWithTheCpu) {
  for (const std::int64_t width : {7, 64, 1024}) {
    for (const auto type : {at::kFloat, at::kBFloat16}) {
      const at::Tensor x = (4 * at::randn({33, 2 * width}, kF32Options)).to(type);
      const at::Tensor g = at::randn({33, width}, kF32Options).to(type);
      at::Tensor made[2], gradient[2];
      for (int i : {0, 1}) {
        const at::Device device(i == 0 ? at::kCPU : at::kCUDA);
        const auto wide = i == 0 ? at::kFloat : type;
        const at::Tensor leaf = x.to(wide).to(device, /*non_blocking=*/false, true);
        leaf.requires_grad_(true);
        made[i] = swiglu(leaf);
        gradient[i] = torch::autograd::grad({made[i]}, {leaf}, {g.to(wide).to(device)})[0];
      }
      EXPECT_EQ(made[1].scalar_type(), type);
      const double bound = type == at::kFloat ? 1e-6 : 0x1p-8;
      EXPECT_LT(largest_difference(made[1], made[0]), bound * largest(made[0])) << width;
      EXPECT_LT(largest_difference(gradient[1], gradient[0]), bound * largest(gradient[0]));
    }
  }
}

// A contribution depends on its name alone: rows of one token are added in one order.
TEST_F(CudaBackend, RowsAreAddedWithTheSameBitsEachTime) {
  const at::Tensor table = at::zeros({50, 96}, kF32Options).to(at::kCUDA);
  const Weight weight{.value = table, .compute = table};
  const at::Tensor tokens = at::randint(0, 3, {4096}, at::TensorOptions(at::kInt)).to(at::kCUDA);
  const at::Tensor gradient = matrix(4096, 96, at::kFloat);
  std::vector<at::Tensor> sums;
  for (int run = 0; run < 5; ++run) {
    GradientSink sink;
    sums.push_back(at::zeros({50 * 96}, kF32Options).to(at::kCUDA));
    sink.open(sums.back(), 0.5);
    sink.add_rows(weight, tokens, gradient);
    EXPECT_TRUE(at::equal(sums.back(), sums.front())) << run;
  }
  at::Tensor wanted = at::zeros({50, 96}, at::kDouble);
  wanted.index_add_(0, tokens.cpu(), gradient.to(at::kCPU, at::kDouble), 0.5);
  EXPECT_LT(largest_difference(sums.front().view({50, 96}), wanted), 1e-3);
}

TEST_F(CudaBackend, DropoutHasTheMaskOfTheCpu) {
  const DropoutMask mask{{3, 4}, 2, DropoutSite::kMlp, 0.4};
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    for (const std::int64_t n : {1, 3, 4, 1023, 100'001}) {
      const at::Tensor x = at::randn({n}, kF32Options).to(type);
      EXPECT_TRUE(dropout(x.to(at::kCUDA), mask).cpu().equal(dropout(x, mask))) << n;
    }
  }
}

// Norm of the difference, of that of `expected`.
double distance(const std::vector<double>& actual, const std::vector<double>& expected) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    difference += (actual[i] - expected[i]) * (actual[i] - expected[i]);
    norm += expected[i] * expected[i];
  }
  return std::sqrt(difference / norm);
}

// bf16 products on the device are about as near to fp32 as the CPU's, with the same masks.
void expect_stages_agree(RunConfig config) {
  constexpr double kOfTheCpus = 2, kLeast = 0.02;
  config.model.dtype = DType::kF32;
  config.model.dropout = 0.1;
  config.model.d_model = 64;
  config.batch.sequence = 16;
  const ModelSpec spec = resolved(config);
  const Batch batch = make_batch(spec, 4);
  RunConfig narrow_config = config;
  narrow_config.model.precision = Precision::kBF16;
  Chain host(spec, 2), narrow(resolved(narrow_config), 2);
  Chain device(spec, 2, {.device = "cuda"});
  for (std::uint32_t index = 0; index < 2; ++index) {
    const double loss = host.forward(batch, attempt_of(1, index));
    EXPECT_NEAR(device.forward(batch, attempt_of(1, index)) / loss, 1, 0.02);
    narrow.forward(batch, attempt_of(1, index));
    narrow.backward(attempt_of(1, index));
    host.backward(attempt_of(1, index));
    device.backward(attempt_of(1, index));
  }
  for (const std::string& name : host.names()) {
    if (name.ends_with("attention.k.bias")) continue;  // no gradient but rounding
    const std::vector<double> expected = host.gradient_of(name);
    const double allowed = kLeast + kOfTheCpus * distance(narrow.gradient_of(name), expected);
    EXPECT_LT(distance(device.gradient_of(name), expected), allowed) << name;
  }
}

RunConfig in_bf16_stream(RunConfig config) {
  config.model.dtype = DType::kF32;
  config.model.stream = StreamKind::kBF16;
  return config;
}

TEST_F(CudaBackend, StagesAgreeWithTheCpu) {
  RunConfig gpt2 = tiny_config();
  gpt2.model.activation = ActivationKind::kGeluTanh;
  expect_stages_agree(gpt2);
  expect_stages_agree(tiny_llama());
  expect_stages_agree(in_bf16_stream(gpt2));
  expect_stages_agree(in_bf16_stream(with_boundary(tiny_llama(), BoundaryKind::kMaxout, 4)));
  expect_stages_agree(with_boundary(gpt2, BoundaryKind::kBottleneck, 2));
  expect_stages_agree(with_boundary(gpt2, BoundaryKind::kMaxout, 4));
}

// What leaves is what encode() makes of the values, what comes in is what decode() makes of them.
void expect_wire_buffers(const RunConfig& config) {
  const ModelSpec spec = resolved(config);
  const DType dtype = spec.shape.stream_dtype();
  auto model = make_stage(spec, stage_of(spec, 1, 3), {.device = "cuda"});
  ASSERT_TRUE(model->takes_wire());
  const std::uint64_t elements = 4ULL * spec.sequence * spec.hidden_width();
  Buffer wide(elements * sizeof(float)), sums = Buffer::zeroed(model->layout().bytes());
  for (std::size_t i = 0; i < elements; ++i)
    wide.as<float>()[i] = std::sin(static_cast<float>(i)) + 0.1F * static_cast<float>(i % 7);
  Buffer values(elements * size_bytes(dtype));
  ASSERT_TRUE(decode(encode(*parse_codec("bf16"), wide.bytes(), DType::kF32).bytes(), dtype,
                     values.bytes()));
  TensorSamplePtr last_sample;
  for (const char* name : {"none", "bf16", "h8", "int4"}) {
    const WireRequest request{.codec = *parse_codec(name),
                              .key = kernels::StochasticKey{.seed = 3},
                              .sample_elements = elements};
    const Buffer wire = encode(request.codec, values.bytes(), dtype);
    Buffer decoded(values.size());
    ASSERT_TRUE(decode(wire.bytes(), dtype, decoded.bytes()));
    // What came as a wire buffer is near the same tensor as values, as near as the sample says.
    const auto expect_encoded = [&](const Buffer& tensor, const Buffer& near,
                                    const TensorSamplePtr& sample) {
      ASSERT_TRUE(read_wire_header(tensor.bytes()));
      EXPECT_EQ(read_wire_header(tensor.bytes())->source, dtype);
      const auto error = measure_error(tensor.bytes(), near.bytes(), dtype);
      ASSERT_TRUE(error) << error.error().what;
      ASSERT_TRUE(sample);
      EXPECT_EQ(sample->elements(), elements);
      last_sample = sample;
      const auto measured = sample->measure(request.codec, &*request.key);
      ASSERT_TRUE(measured) << measured.error().what;
      // Products may change hands after their first use.
      EXPECT_NEAR(error->relative(), measured->error.relative(), 0.03) << name;
      EXPECT_NEAR(measured->error.squared_norm / error->squared_norm, 1, 0.1) << name;
    };
    Buffer hidden, gradient;  // as values
    for (const bool by_wire : {false, true}) {
      ForwardInput in{.id = attempt_of(1, 0), .train = true, .rows = 4, .loss_scale = 1};
      BackwardInput back{.id = in.id, .accumulator = sums.bytes()};
      (by_wire ? in.hidden_wire : in.hidden) = by_wire ? wire.bytes() : decoded.bytes();
      (by_wire ? back.output_gradient_wire : back.output_gradient) =
          by_wire ? wire.bytes() : decoded.bytes();
      if (by_wire) in.as_wire = back.as_wire = request;
      auto out = model->forward(in);
      ASSERT_TRUE(out) << out.error().what;
      auto given = model->backward(back);
      ASSERT_TRUE(given) << given.error().what;
      if (by_wire) {
        expect_encoded(out->hidden, hidden, out->sample);
        expect_encoded(given->input_gradient, gradient, given->sample);
      } else {
        hidden = std::move(out->hidden);
        gradient = std::move(given->input_gradient);
      }
    }
  }
  model.reset();
  EXPECT_TRUE(last_sample->measure(*parse_codec("h8"), nullptr)) << "it needs the model";
}

TEST_F(CudaBackend, StagesTakeAndGiveWireBuffers) {
  RunConfig config = tiny_config();
  config.model.dtype = DType::kF32;
  expect_wire_buffers(config);
  expect_wire_buffers(in_bf16_stream(config));
}

// Three passes are begun before the first is waited for: what each gives has the bits of one alone.
TEST_F(CudaBackend, PassesGoOnBesideEachOther) {
  RunConfig config = tiny_config();
  config.model.dtype = DType::kF32;
  const ModelSpec spec = resolved(config);
  auto model = make_stage(spec, stage_of(spec, 1, 3), {.device = "cuda"});
  ASSERT_TRUE(model->goes_on());
  Buffer sums = Buffer::zeroed(model->layout().bytes());
  const WireRequest request{.codec = *parse_codec("h8"), .key = {}, .sample_elements = 0};
  std::vector<Buffer> wires;
  for (int i = 0; i < 3; ++i) {
    Buffer values(4ULL * spec.sequence * spec.hidden_width() * sizeof(float));
    for (float& value : values.as<float>())
      value = std::sin(static_cast<float>(&value - values.as<float>().data()) *
                       (1.0F + static_cast<float>(i)));
    wires.push_back(encode(request.codec, values.bytes(), DType::kF32));
  }
  const auto input_of = [&](std::uint32_t i, std::uint64_t attempt) {
    ForwardInput in{.id = attempt_of(1, i), .train = true, .rows = 4, .loss_scale = 1};
    in.id.attempt.value += attempt;
    in.hidden_wire = wires[i].bytes();
    in.as_wire = request;
    return in;
  };
  std::vector<Buffer> alone;
  for (std::uint32_t i = 0; i < 3; ++i) {
    auto output = model->forward(input_of(i, 0));
    ASSERT_TRUE(output) << output.error().what;
    alone.push_back(std::move(output->hidden));
  }
  std::vector<std::unique_ptr<Begun<ForwardOutput>>> begun;
  for (std::uint32_t i = 0; i < 3; ++i) {
    auto pass = model->begin_forward(input_of(i, 100));
    ASSERT_TRUE(pass) << pass.error().what;
    begun.push_back(std::move(*pass));
  }
  for (std::uint32_t i = 0; i < 3; ++i) {
    const auto output = begun[i]->wait();
    ASSERT_TRUE(output) << output.error().what;
    EXPECT_TRUE(output->finite);
    EXPECT_TRUE(same_bytes(output->hidden.bytes(), alone[i].bytes())) << i;
  }
  EXPECT_EQ(model->saved_graphs(), 6U);
}

TEST_F(CudaBackend, ACorruptWireBufferChangesNothing) {
  RunConfig config = tiny_config();
  config.model.dtype = DType::kF32;
  const ModelSpec spec = resolved(config);
  auto model = make_stage(spec, stage_of(spec, 1, 3), {.device = "cuda"});
  const Buffer values = Buffer::zeroed(4ULL * spec.sequence * spec.hidden_width() * sizeof(float));
  Buffer wire = encode(*parse_codec("h8"), values.bytes(), DType::kF32);
  Buffer sums = Buffer::zeroed(model->layout().bytes());
  ForwardInput in{.id = attempt_of(1, 0), .train = true, .rows = 4, .loss_scale = 1};
  in.hidden_wire = wire.bytes();
  ASSERT_TRUE(model->forward(in));
  wire.data()[70] ^= std::byte{1};
  BackwardInput back{.id = in.id, .accumulator = sums.bytes()};
  back.output_gradient_wire = wire.bytes();
  const auto refused = model->backward(back);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kCorrupt);
  ASSERT_TRUE(model->collect_sums(sums.bytes()));
  EXPECT_TRUE(same_bytes(sums.bytes(), Buffer::zeroed(sums.size()).bytes()));
  EXPECT_EQ(model->saved_graphs(), 1U) << "the gradient will come again";
  wire.data()[70] ^= std::byte{1};
  ASSERT_TRUE(model->backward(back));
  EXPECT_EQ(model->saved_graphs(), 0U);
  wire.data()[70] ^= std::byte{1};
  EXPECT_EQ(model->forward(in).error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(model->saved_graphs(), 0U);
}

// Both round operands to the same codes; bf16 in between moves some to a neighbouring one.
TEST_F(CudaBackend, Fp8StagesAgreeWithTheCpu) {
  RunConfig config = tiny_config();
  config.model.compute = ComputeKind::kFp8;
  config.model.dtype = DType::kF32;
  const ModelSpec spec = resolved(config);
  const Batch batch = make_batch(spec, 4);
  Chain host(spec, 1);
  Chain device(spec, 1, {.device = "cuda"});
  const double loss = host.forward(batch, attempt_of(1, 0));
  EXPECT_NEAR(device.forward(batch, attempt_of(1, 0)) / loss, 1, 0.02);
  device.backward(attempt_of(1, 0));
  for (const double g : device.gradient_of("layers.0.mlp.up.weight")) EXPECT_TRUE(std::isfinite(g));
}

}  // namespace
}  // namespace swarmline::testing
