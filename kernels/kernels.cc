#include "kernels/kernels.h"

#include "kernels/cpu/table.h"

namespace swarmline::kernels {
namespace {

struct Tables {
  const KernelTable* tables[3] = {};
  std::size_t count = 0;
};

Tables find_tables() {
  Tables found;
#if defined(SWARMLINE_KERNELS_X86)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
  if (avx512) found.tables[found.count++] = &avx512::kTable;
  if (avx2) found.tables[found.count++] = &avx2::kTable;
#endif
  found.tables[found.count++] = &baseline::kTable;
  return found;
}

const KernelTable& best() {
  return *available_tables().front();
}

}  // namespace

std::span<const KernelTable* const> available_tables() {
  static const Tables found = find_tables();
  return {found.tables, found.count};
}

const char* instruction_set() {
  return best().name;
}

void add_into(const float* source, float* destination, std::size_t n) {
  best().f32.add_into(source, destination, n);
}
void add_into(const double* source, double* destination, std::size_t n) {
  best().f64.add_into(source, destination, n);
}
void add(const float* a, const float* b, float* sum, std::size_t n) {
  best().f32.add(a, b, sum, n);
}
void add(const double* a, const double* b, double* sum, std::size_t n) {
  best().f64.add(a, b, sum, n);
}
void scale(float factor, float* values, std::size_t n) {
  best().f32.scale(factor, values, n);
}
void scale(double factor, double* values, std::size_t n) {
  best().f64.scale(factor, values, n);
}
void axpy(float a, const float* x, float* y, std::size_t n) {
  best().f32.axpy(a, x, y, n);
}
void axpy(double a, const double* x, double* y, std::size_t n) {
  best().f64.axpy(a, x, y, n);
}
double sum_of_squares(const float* values, std::size_t n) {
  return best().f32.sum_of_squares(values, n);
}
double sum_of_squares(const double* values, std::size_t n) {
  return best().f64.sum_of_squares(values, n);
}

bool any_non_finite(const float* values, std::size_t n) {
  return best().f32.any_non_finite(values, n);
}
bool any_non_finite(const double* values, std::size_t n) {
  return best().f64.any_non_finite(values, n);
}
bool copy_values(const float* source, float* destination, std::size_t n) {
  return best().f32.copy_values(source, destination, n);
}
bool copy_values(const double* source, double* destination, std::size_t n) {
  return best().f64.copy_values(source, destination, n);
}
bool fp64_to_fp32(const double* source, float* destination, std::size_t n) {
  return best().fp64_to_fp32(source, destination, n);
}
bool fp32_to_fp64(const float* source, double* destination, std::size_t n) {
  return best().fp32_to_fp64(source, destination, n);
}
bool fp32_to_fp16(const float* source, std::uint16_t* destination, std::size_t n) {
  return best().fp32_to_fp16(source, destination, n);
}
bool fp16_to_fp32(const std::uint16_t* source, float* destination, std::size_t n) {
  return best().fp16_to_fp32(source, destination, n);
}
bool fp32_to_bf16(const float* source, std::uint16_t* destination, std::size_t n) {
  return best().fp32_to_bf16(source, destination, n);
}
bool bf16_to_fp32(const std::uint16_t* source, float* destination, std::size_t n) {
  return best().bf16_to_fp32(source, destination, n);
}

}  // namespace swarmline::kernels
