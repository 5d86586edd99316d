// cuBLASLt against libtorch for the matrix products of a layer: GPT-2 small, GPT-2 XL and Llama 7B
// widths. One JSON object a line: us is cuBLASLt's time in microseconds, ratio libtorch's over it
// (above 1: cuBLASLt is faster), shape rows x outputs x inputs.
//   usage: cublaslt_bench [ROWS] [DEVICE]     ROWS: tokens, 8192 unless told
// Exit code 2 and a sentence where there is no CUDA device.
#include <charconv>
#include <cstdio>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "engine/model/product_times.h"

namespace {

constexpr std::int64_t kRowsMax = 1 << 20;

bool read_number(std::string_view text, std::int64_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

std::vector<swarmline::ProductShape> shapes_of(std::int64_t rows) {
  return {{rows, 2304, 768},  {rows, 768, 768},   {rows, 3072, 768},   {rows, 768, 3072},
          {rows, 6400, 1600}, {rows, 1600, 6400}, {rows, 12288, 4096}, {rows, 4096, 11008}};
}

}  // namespace

int main(int argc, char** argv) {
  std::int64_t rows = 8192;
  std::int64_t device = 0;
  if (argc > 3 || (argc > 1 && !read_number(argv[1], rows)) ||
      (argc > 2 && !read_number(argv[2], device)) || rows < 1 || rows > kRowsMax) {
    std::fputs("usage: cublaslt_bench [ROWS] [DEVICE]\n", stderr);
    return 2;
  }
  const auto times = swarmline::measure_products(static_cast<int>(device), shapes_of(rows));
  if (!times) {
    std::fprintf(stderr, "cublaslt_bench: %s\n", times.error().what.c_str());
    return times.error().code == swarmline::ErrorCode::kUserMistake ? 2 : 1;
  }
  for (const swarmline::ProductTime& time : *times) {
    std::fputs(
        fmt::format(
            "{{\"op\": \"{}\", \"shape\": \"{}x{}x{}\", \"us\": {:.2f}, \"libtorch_us\": {:.2f}, "
            "\"ratio\": {:.3f}, \"tflops\": {:.1f}}}\n",
            time.kind, time.shape.rows, time.shape.outputs, time.shape.inputs, time.cublaslt_us,
            time.libtorch_us, time.libtorch_us / time.cublaslt_us, time.teraflops())
            .c_str(),
        stdout);
    std::fflush(stdout);
  }
  return 0;
}
