// Every instruction set gives the bits of the plain loop, at every size and alignment.

#include <functional>
#include <limits>
#include <type_traits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cpu/table.h"
#include "tests/kernels/samples.h"

namespace swarmline::kernels {
namespace {

using testing::first_difference;
using testing::Guarded;
using testing::kSizes;
using testing::samples;

constexpr std::size_t kMisalignments[] = {0, 1, 4, 60};

template <typename T>
const ArithmeticTable<T>& arithmetic_of(const KernelTable& table) {
  if constexpr (std::is_same_v<T, float>) {
    return table.f32;
  } else {
    return table.f64;
  }
}

// The documented order, from the definition: lanes, folded in halves, and blocks summed likewise.
double fold_halves(std::vector<double> lanes) {
  for (std::size_t width = lanes.size() / 2; width > 0; width /= 2) {
    for (std::size_t j = 0; j < width; ++j) lanes[j] += lanes[j + width];
  }
  return lanes[0];
}
double ordered_sum(std::vector<double> terms) {
  while (terms.size() > 1) {
    std::vector<double> sums;
    for (std::size_t begin = 0; begin < terms.size(); begin += kSumBlock) {
      std::vector<double> lanes(kSumLanes);
      for (std::size_t i = begin; i < std::min(begin + kSumBlock, terms.size()); ++i) {
        lanes[(i - begin) % kSumLanes] += terms[i];
      }
      sums.push_back(fold_halves(lanes));
    }
    terms = sums;
  }
  return terms.empty() ? 0.0 : terms[0];
}
template <typename T>
double ordered_sum_of_squares(const std::vector<T>& values) {
  std::vector<double> squares;
  for (const T value : values) squares.push_back(double{value} * double{value});
  return ordered_sum(squares);
}

class Arithmetic : public ::testing::TestWithParam<const KernelTable*> {
 protected:
  // f(table, values a, values b, misalignment) for every size, both types.
  template <typename F>
  void for_all(F f) {
    for (const std::size_t n : kSizes) {
      const auto a = samples<float>(n, 1), b = samples<float>(n, 2);
      const auto c = samples<double>(n, 3), d = samples<double>(n, 4);
      for (const std::size_t misaligned : kMisalignments) {
        if (n > 100'000 && misaligned > 1) continue;
        f(arithmetic_of<float>(*GetParam()), a, b, misaligned);
        f(arithmetic_of<double>(*GetParam()), c, d, misaligned);
      }
    }
  }
};

TEST_P(Arithmetic, AddScaleAxpyMatchThePlainLoop) {
  for_all([]<typename T>(const ArithmeticTable<T>& table, const std::vector<T>& a,
                         const std::vector<T>& b, std::size_t misaligned) {
    Guarded<T> source(a, misaligned);
    const auto check = [&](const auto& run, const auto& expected_of) {
      Guarded<T> destination(b, misaligned);
      run(source.data(), destination.data());
      std::vector<T> expected = b;
      for (std::size_t i = 0; i < a.size(); ++i) expected[i] = expected_of(a[i], b[i]);
      EXPECT_EQ(first_difference(destination.values(), expected), a.size());
      EXPECT_TRUE(destination.intact());
    };
    const T factor = static_cast<T>(-0.7310585786300049);
    check([&](const T* x, T* y) { table.add_into(x, y, a.size()); },
          [](T x, T y) { return y + x; });
    check(
        [&](const T* x, T* y) {
          Guarded<T> other(b, misaligned);
          table.add(x, other.data(), y, a.size());
        },
        [](T x, T y) { return x + y; });
    check([&](const T*, T* y) { table.scale(factor, y, a.size()); },
          [&](T, T y) { return y * factor; });
    check([&](const T* x, T* y) { table.axpy(factor, x, y, a.size()); },
          [&](T x, T y) {
            const T product = factor * x;
            return y + product;
          });
  });
}

TEST(StreamCopy, CopiesAnyNumberOfBytesToAnywhere) {
  for (const std::size_t bytes : {0, 1, 63, 64, 65, 127, 128, 1000, 4096 + 17}) {
    for (const std::size_t over : {0, 1, 16, 63}) {
      std::vector<std::byte> from(bytes + over), to(bytes + 2 * over + 64, std::byte{0x5A});
      for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 37);
      std::vector<std::byte> expected = to;
      std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(over), bytes,
                  expected.begin() + static_cast<std::ptrdiff_t>(2 * over));
      stream_copy(from.data() + over, to.data() + 2 * over, bytes);
      EXPECT_EQ(to, expected) << bytes << " bytes, " << over;
    }
  }
}

TEST_P(Arithmetic, SumOfSquaresHasTheDocumentedOrder) {
  for_all([]<typename T>(const ArithmeticTable<T>& table, const std::vector<T>& a,
                         const std::vector<T>&, std::size_t misaligned) {
    Guarded<T> values(a, misaligned);
    const double sum = table.sum_of_squares(values.data(), a.size());
    EXPECT_EQ(sum, ordered_sum_of_squares(a));
    long double exact = 0;
    for (const T value : a) exact += static_cast<long double>(value) * value;
    EXPECT_NEAR(sum, static_cast<double>(exact), 1e-13 * static_cast<double>(exact));
  });
}

TEST_P(Arithmetic, SumOfSquaresOverSeveralLevels) {
  // More than kSumBlock blocks of kSumBlock elements: the third level is reached.
  const std::size_t n = kSumBlock * kSumBlock + 3 * kSumBlock + 77;
  std::vector<float> values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = 0.1F * static_cast<float>(i % 97) + 0.01F;
  EXPECT_EQ(GetParam()->f32.sum_of_squares(values.data(), n), ordered_sum_of_squares(values));
}

TEST_P(Arithmetic, SumOfSquaresCarriesNonFinite) {
  std::vector<float> values(1000, 1.0F);
  values[900] = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(std::isinf(GetParam()->f32.sum_of_squares(values.data(), values.size())));
  values[3] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(GetParam()->f32.sum_of_squares(values.data(), values.size())));
}

template <typename T>
MomentStep<T> moment_step() {
  return {.gradient_scale = T(0.3),
          .beta1 = T(0.9),
          .one_minus_beta1 = T(0.1),
          .beta2 = T(0.95),
          .one_minus_beta2 = T(0.05),
          .inverse_bias1 = T(1.7),
          .inverse_sqrt_bias2 = T(2.3),
          .eps = T(1e-8)};
}

template <typename T>
struct State {
  std::vector<T> g, m, v, p;
};
template <typename T>
State<T> state(std::size_t n) {
  State<T> s{samples<T>(n, 5), samples<T>(n, 6), samples<T>(n, 7), samples<T>(n, 8)};
  for (T& value : s.v) value = std::abs(value);
  return s;
}
template <typename T>
void plain_moments(const MomentStep<T>& c, State<T>& s, std::size_t i) {
  const T g = s.g[i] * c.gradient_scale;
  const T m_old = c.beta1 * s.m[i];
  const T m_new = c.one_minus_beta1 * g;
  s.m[i] = m_old + m_new;
  const T v_old = c.beta2 * s.v[i];
  const T v_half = c.one_minus_beta2 * g;
  const T v_new = v_half * g;
  s.v[i] = v_old + v_new;
}
template <typename T>
T plain_denominator(const MomentStep<T>& c, T v) {
  const T root = std::sqrt(v);
  const T scaled = root * c.inverse_sqrt_bias2;
  return scaled + c.eps;
}

TEST_P(Arithmetic, AdamwMatchesThePlainLoop) {
  for_all([]<typename T>(const ArithmeticTable<T>& table, const std::vector<T>& a,
                         const std::vector<T>&, std::size_t misaligned) {
    const std::size_t n = a.size();
    const AdamwStep<T> step{.moments = moment_step<T>(), .keep = T(0.999), .rate = T(0.01)};
    State<T> s = state<T>(n);
    Guarded<T> g(s.g, misaligned), m(s.m, misaligned), v(s.v, misaligned), p(s.p, misaligned);
    table.adamw(step, g.data(), m.data(), v.data(), p.data(), n);
    for (std::size_t i = 0; i < n; ++i) {
      plain_moments(step.moments, s, i);
      const T ratio = s.m[i] / plain_denominator(step.moments, s.v[i]);
      const T kept = s.p[i] * step.keep;
      const T moved = step.rate * ratio;
      s.p[i] = kept - moved;
    }
    EXPECT_EQ(first_difference(m.values(), s.m), n);
    EXPECT_EQ(first_difference(v.values(), s.v), n);
    EXPECT_EQ(first_difference(p.values(), s.p), n);
    EXPECT_TRUE(g.intact() && m.intact() && v.intact() && p.intact());
  });
}

TEST_P(Arithmetic, LambMatchesThePlainLoop) {
  for_all([]<typename T>(const ArithmeticTable<T>& table, const std::vector<T>& a,
                         const std::vector<T>&, std::size_t misaligned) {
    const std::size_t n = a.size();
    const LambStep<T> step{.moments = moment_step<T>(), .decay = T(0.1)};
    const T rate = T(0.02);
    State<T> s = state<T>(n);
    Guarded<T> g(s.g, misaligned), m(s.m, misaligned), v(s.v, misaligned), p(s.p, misaligned);
    const LambNorms norms = table.lamb_moments(step, g.data(), m.data(), v.data(), p.data(), n);
    EXPECT_EQ(norms.parameters, ordered_sum_of_squares(s.p));
    std::vector<T> update(n);
    for (std::size_t i = 0; i < n; ++i) {
      plain_moments(step.moments, s, i);
      const T corrected = s.m[i] * step.moments.inverse_bias1;
      const T ratio = corrected / plain_denominator(step.moments, s.v[i]);
      const T decayed = step.decay * s.p[i];
      update[i] = ratio + decayed;
    }
    EXPECT_EQ(norms.update, ordered_sum_of_squares(update));
    EXPECT_EQ(first_difference(m.values(), s.m), n);
    EXPECT_EQ(first_difference(v.values(), s.v), n);
    EXPECT_EQ(first_difference(p.values(), s.p), n) << "the first pass leaves parameters alone";

    table.lamb_apply(step, rate, m.data(), v.data(), p.data(), n);
    for (std::size_t i = 0; i < n; ++i) {
      const T moved = rate * update[i];
      s.p[i] = s.p[i] - moved;
    }
    EXPECT_EQ(first_difference(p.values(), s.p), n);
    EXPECT_TRUE(m.intact() && v.intact() && p.intact());
  });
}

TEST(KernelTables, TheWidestIsUsedAndBaselineIsAlwaysThere) {
  const auto tables = available_tables();
  ASSERT_FALSE(tables.empty());
  EXPECT_STREQ(tables.front()->name, instruction_set());
  EXPECT_STREQ(tables.back()->name, "baseline");
}

INSTANTIATE_TEST_SUITE_P(AllSets, Arithmetic,
                         ::testing::ValuesIn(available_tables().begin(), available_tables().end()),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace swarmline::kernels
