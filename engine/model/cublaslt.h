// Matrix products by cuBLASLt with what follows them fused in, planned once per shape. C++20, for
// nvcc; without torch.
//   Shapes:    row-major matrices without gaps: x (rows, inputs), w (outputs, inputs),
//              y and g (rows, outputs).
//   Ownership: of a handle, plans and one workspace of kLtWorkspaceBytes on the device.
//   Thread:    one at a time, with that device current; work is enqueued on `stream`.
//   Errors:    false, and a sentence in error(). Bounds: kLtPlansMax shapes.
//   Alignment: all pointers to 16 bytes.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace swarmline {

inline constexpr std::size_t kLtWorkspaceBytes = std::size_t{32} << 20;
inline constexpr std::size_t kLtPlansMax = 4096;

enum class LtType : std::uint8_t { kF32, kF16, kBF16, kE4M3, kE5M2, kInt8, kInt32 };
enum class LtForm : std::uint8_t {
  kForward,         // result (rows, outputs) = left x, right w: x w^T
  kInputGradient,   // result (rows, inputs) = left g, right w: g w
  kWeightGradient,  // result (outputs, inputs) = left g, right x: g^T x
};
// GELU is the tanh form, as cuBLASLt has it.
enum class LtEpilogue : std::uint8_t {
  kNone,
  kBias,      // + bias (outputs)
  kGelu,      // GELU of the result; the result itself goes to `inner`
  kGeluBias,  // both: bias first
  kDGelu,     // times GELU'(inner), inner of the result's shape
};

struct LtProblem {
  LtForm form = LtForm::kForward;
  std::int64_t rows = 0;
  std::int64_t outputs = 0;
  std::int64_t inputs = 0;
  // The same, but for fp8, of which one may be kE5M2. 8 bits: kForward only; kInt8 gives kInt32.
  // Source: the tables of cublasLtMatmul().
  LtType left = LtType::kBF16;
  LtType right = LtType::kBF16;
  LtType result = LtType::kBF16;  // also of inner
  LtEpilogue epilogue = LtEpilogue::kNone;
  bool accumulate = false;  // added to what `result` holds
  bool row_scales = false;  // fp8: times left_scales (rows) and right_scales (outputs)
  auto operator<=>(const LtProblem&) const = default;
};

// What cuBLASLt takes a bias for. Source: CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE in cublasLt.h.
constexpr LtType bias_type(const LtProblem& problem) {
  const bool is_fp8 = problem.left == LtType::kE4M3 || problem.left == LtType::kE5M2;
  return is_fp8 && problem.result == LtType::kF32 ? LtType::kBF16 : problem.result;
}

struct LtOperands {
  const void* left = nullptr;
  const void* right = nullptr;
  void* result = nullptr;
  float scale = 1;  // of the product
  const float* left_scales = nullptr;
  const float* right_scales = nullptr;
  void* bias = nullptr;
  void* inner = nullptr;
};

class CublasLt {
 public:
  virtual ~CublasLt() = default;
  // Whether cuBLASLt has an algorithm for it on this device; plans it.
  virtual bool supports(const LtProblem& problem) = 0;
  virtual bool run(const LtProblem& problem, const LtOperands& operands, void* stream) = 0;
  virtual const std::string& error() const = 0;
};

namespace cuda {

// Null, and a sentence in `error`.
std::unique_ptr<CublasLt> make_cublaslt(int device, std::string& error);

// Microseconds of one `body`, which enqueues on `stream`: the fastest of `rounds` rounds of
// `repeats`, after a warm-up of as many. Negative: the device failed.
double microseconds(void* stream, int rounds, int repeats, const std::function<void()>& body);

}  // namespace cuda

}  // namespace swarmline
