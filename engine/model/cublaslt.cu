// cuBLASLt's matrices are column-major: a row-major matrix is its transpose there. So each form is
// computed as its transpose, with the right operand as cuBLASLt's A and the left one as its B.
#include <algorithm>
#include <cublasLt.h>
#include <cuda_runtime.h>
#include <map>
#include <utility>

#include "engine/model/cublaslt.h"

namespace swarmline {
namespace {

constexpr std::uint32_t kAlignment = 16;

cudaDataType_t native(LtType type) {
  switch (type) {
    case LtType::kF32:
      return CUDA_R_32F;
    case LtType::kF16:
      return CUDA_R_16F;
    case LtType::kBF16:
      return CUDA_R_16BF;
    case LtType::kE4M3:
      return CUDA_R_8F_E4M3;
    case LtType::kE5M2:
      return CUDA_R_8F_E5M2;
    case LtType::kInt8:
      return CUDA_R_8I;
    case LtType::kInt32:
      return CUDA_R_32I;
  }
  return CUDA_R_32F;
}

cublasLtEpilogue_t native(LtEpilogue epilogue) {
  switch (epilogue) {
    case LtEpilogue::kNone:
      return CUBLASLT_EPILOGUE_DEFAULT;
    case LtEpilogue::kBias:
      return CUBLASLT_EPILOGUE_BIAS;
    case LtEpilogue::kGelu:
      return CUBLASLT_EPILOGUE_GELU_AUX;
    case LtEpilogue::kGeluBias:
      return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    case LtEpilogue::kDGelu:
      return CUBLASLT_EPILOGUE_DGELU;
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
}

bool has_inner(LtEpilogue epilogue) {
  return epilogue != LtEpilogue::kNone && epilogue != LtEpilogue::kBias;
}
bool has_bias(LtEpilogue epilogue) {
  return epilogue == LtEpilogue::kBias || epilogue == LtEpilogue::kGeluBias;
}

// D (m, n) = A B, k summed over, as cuBLASLt sees it.
struct Shape {
  std::int64_t m, n, k;
  cublasOperation_t a, b;
};
Shape shape_of(const LtProblem& p) {
  switch (p.form) {
    case LtForm::kForward:
      return {p.outputs, p.rows, p.inputs, CUBLAS_OP_T, CUBLAS_OP_N};
    case LtForm::kInputGradient:
      return {p.inputs, p.rows, p.outputs, CUBLAS_OP_N, CUBLAS_OP_N};
    case LtForm::kWeightGradient:
      return {p.inputs, p.outputs, p.rows, CUBLAS_OP_N, CUBLAS_OP_T};
  }
  return {};
}

template <typename Handle, cublasStatus_t (*Destroy)(Handle)>
class Owned {
 public:
  Owned() = default;
  Owned(Owned&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Owned() {
    if (handle_ != nullptr) Destroy(handle_);
  }
  Handle* out() { return &handle_; }
  Handle get() const { return handle_; }

 private:
  Handle handle_ = nullptr;
};
using Description = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

struct Plan {
  Description description;
  Layout a, b, d;
  cublasLtMatmulAlgo_t algorithm{};
  bool usable = false;
};

template <typename T>
bool set(const Description& description, cublasLtMatmulDescAttributes_t key, const T& value) {
  return cublasLtMatmulDescSetAttribute(description.get(), key, &value, sizeof value) ==
         CUBLAS_STATUS_SUCCESS;
}

bool lay_out(Layout& layout, LtType type, std::int64_t rows, std::int64_t columns) {
  return cublasLtMatrixLayoutCreate(layout.out(), native(type), static_cast<std::uint64_t>(rows),
                                    static_cast<std::uint64_t>(columns),
                                    rows) == CUBLAS_STATUS_SUCCESS;
}

bool describe(Plan& plan, const LtProblem& problem, const Shape& shape) {
  const bool integers = problem.left == LtType::kInt8;
  const auto compute = integers ? CUBLAS_COMPUTE_32I : CUBLAS_COMPUTE_32F;
  const auto scale = integers ? CUDA_R_32I : CUDA_R_32F;
  if (cublasLtMatmulDescCreate(plan.description.out(), compute, scale) != CUBLAS_STATUS_SUCCESS)
    return false;
  const Description& d = plan.description;
  bool ok = set(d, CUBLASLT_MATMUL_DESC_TRANSA, shape.a) &&
            set(d, CUBLASLT_MATMUL_DESC_TRANSB, shape.b) &&
            set(d, CUBLASLT_MATMUL_DESC_EPILOGUE, native(problem.epilogue));
  if (has_bias(problem.epilogue))
    ok = ok && set(d, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, native(bias_type(problem)));
  if (has_inner(problem.epilogue)) ok = ok && set(d, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, shape.m);
  if (problem.row_scales) {
    const std::int32_t mode = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    ok = ok && set(d, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, mode) &&
         set(d, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, mode);
  }
  const bool ta = shape.a == CUBLAS_OP_T;
  const bool tb = shape.b == CUBLAS_OP_T;
  return ok && lay_out(plan.a, problem.right, ta ? shape.k : shape.m, ta ? shape.m : shape.k) &&
         lay_out(plan.b, problem.left, tb ? shape.n : shape.k, tb ? shape.k : shape.n) &&
         lay_out(plan.d, problem.result, shape.m, shape.n);
}

bool set_pointers(const Plan& plan, const LtProblem& problem, const LtOperands& operands) {
  const Description& d = plan.description;
  bool ok = true;
  if (has_bias(problem.epilogue)) {
    ok = ok && set(d, CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.bias);
  }
  if (has_inner(problem.epilogue)) {
    ok = ok && set(d, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, operands.inner);
  }
  if (problem.row_scales) {
    ok = ok && set(d, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, operands.right_scales) &&
         set(d, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, operands.left_scales);
  }
  return ok;
}

bool prefer(Preference& preference) {
  if (cublasLtMatmulPreferenceCreate(preference.out()) != CUBLAS_STATUS_SUCCESS) return false;
  const std::uint64_t workspace = kLtWorkspaceBytes;
  bool ok = cublasLtMatmulPreferenceSetAttribute(
                preference.get(), CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                sizeof workspace) == CUBLAS_STATUS_SUCCESS;
  for (const auto key :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    ok = ok && cublasLtMatmulPreferenceSetAttribute(preference.get(), key, &kAlignment,
                                                    sizeof kAlignment) == CUBLAS_STATUS_SUCCESS;
  }
  return ok;
}

class PlannedCublasLt final : public CublasLt {
 public:
  PlannedCublasLt() = default;
  PlannedCublasLt(const PlannedCublasLt&) = delete;
  PlannedCublasLt& operator=(const PlannedCublasLt&) = delete;
  ~PlannedCublasLt() override {
    plans_.clear();
    if (workspace_ != nullptr) cudaFree(workspace_);
    if (handle_ != nullptr) cublasLtDestroy(handle_);
  }

  // Empty, or what went wrong.
  std::string start(int device);
  bool supports(const LtProblem& problem) override { return plan_of(problem).usable; }
  bool run(const LtProblem& problem, const LtOperands& operands, void* stream) override;
  const std::string& error() const override { return error_; }

 private:
  void make_plan(Plan& plan, const LtProblem& problem) const;
  const Plan& plan_of(const LtProblem& problem);

  cublasLtHandle_t handle_ = nullptr;
  void* workspace_ = nullptr;
  std::map<LtProblem, Plan> plans_;
  std::string error_;
};

std::string PlannedCublasLt::start(int device) {
  if (cudaSetDevice(device) != cudaSuccess || cublasLtCreate(&handle_) != CUBLAS_STATUS_SUCCESS) {
    return "cuBLASLt does not start on device " + std::to_string(device);
  }
  if (cudaMalloc(&workspace_, kLtWorkspaceBytes) != cudaSuccess) {
    return "no memory for cuBLASLt's workspace";
  }
  return {};
}

void PlannedCublasLt::make_plan(Plan& plan, const LtProblem& problem) const {
  const Shape shape = shape_of(problem);
  Preference preference;
  if (!describe(plan, problem, shape) || !prefer(preference)) return;
  // The heuristic reads pointers' alignment; those of the call are aligned to at least as much.
  LtOperands aligned;
  aligned.bias = aligned.inner = workspace_;
  aligned.left_scales = aligned.right_scales = static_cast<const float*>(workspace_);
  if (!set_pointers(plan, problem, aligned)) return;
  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  const auto status = cublasLtMatmulAlgoGetHeuristic(handle_, plan.description.get(), plan.a.get(),
                                                     plan.b.get(), plan.d.get(), plan.d.get(),
                                                     preference.get(), 1, &result, &found);
  plan.usable =
      status == CUBLAS_STATUS_SUCCESS && found == 1 && result.state == CUBLAS_STATUS_SUCCESS;
  plan.algorithm = result.algo;
}

const Plan& PlannedCublasLt::plan_of(const LtProblem& problem) {
  const auto found = plans_.find(problem);
  if (found != plans_.end()) return found->second;
  if (plans_.size() >= kLtPlansMax) plans_.clear();
  Plan& plan = plans_[problem];
  make_plan(plan, problem);
  return plan;
}

bool PlannedCublasLt::run(const LtProblem& problem, const LtOperands& operands, void* stream) {
  const Plan& plan = plan_of(problem);
  if (!plan.usable || !set_pointers(plan, problem, operands)) {
    error_ = "cuBLASLt has no algorithm for a matrix product";
    return false;
  }
  const float scale = operands.scale;
  const float add = problem.accumulate ? 1.0F : 0.0F;
  const std::int32_t whole = 1;
  const std::int32_t add_whole = problem.accumulate ? 1 : 0;
  const bool integers = problem.left == LtType::kInt8;
  const void* const alpha = integers ? static_cast<const void*>(&whole) : &scale;
  const void* const beta = integers ? static_cast<const void*>(&add_whole) : &add;
  const auto status = cublasLtMatmul(
      handle_, plan.description.get(), alpha, operands.right, plan.a.get(), operands.left,
      plan.b.get(), beta, operands.result, plan.d.get(), operands.result, plan.d.get(),
      &plan.algorithm, workspace_, kLtWorkspaceBytes, static_cast<cudaStream_t>(stream));
  if (status == CUBLAS_STATUS_SUCCESS) return true;
  error_ = std::string("cuBLASLt: ") + cublasLtGetStatusString(status);
  return false;
}

// Null where it can't be made, which recording it says.
class Event {
 public:
  Event() { cudaEventCreate(&event_); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace

namespace cuda {

std::unique_ptr<CublasLt> make_cublaslt(int device, std::string& error) {
  auto made = std::make_unique<PlannedCublasLt>();
  error = made->start(device);
  if (!error.empty()) return nullptr;
  return made;
}

double microseconds(void* stream, int rounds, int repeats, const std::function<void()>& body) {
  const auto native_stream = static_cast<cudaStream_t>(stream);
  const Event begin, end;
  float best = -1;
  // The first round warms up.
  for (int round = 0; round <= rounds; ++round) {
    float milliseconds = -1;
    if (cudaEventRecord(begin.get(), native_stream) != cudaSuccess) return -1;
    for (int i = 0; i < repeats; ++i) body();
    if (cudaEventRecord(end.get(), native_stream) != cudaSuccess ||
        cudaEventSynchronize(end.get()) != cudaSuccess ||
        cudaEventElapsedTime(&milliseconds, begin.get(), end.get()) != cudaSuccess)
      return -1;
    if (round > 0 && (best < 0 || milliseconds < best)) best = milliseconds;
  }
  return best < 0 ? -1 : 1000.0 * best / repeats;
}

}  // namespace cuda

}  // namespace swarmline
