#include "engine/collective/typed_sums.h"

#include "kernels/kernels.h"

namespace swarmline {

void add_into(DType dtype, BytesView from, MutableBytes to) {
  if (dtype == DType::kF32) {
    kernels::add_into(reinterpret_cast<const float*>(from.data()),
                      reinterpret_cast<float*>(to.data()), from.size() / sizeof(float));
  } else {
    kernels::add_into(reinterpret_cast<const double*>(from.data()),
                      reinterpret_cast<double*>(to.data()), from.size() / sizeof(double));
  }
}

void add(DType dtype, BytesView a, BytesView b, MutableBytes sum) {
  if (dtype == DType::kF32) {
    kernels::add(reinterpret_cast<const float*>(a.data()), reinterpret_cast<const float*>(b.data()),
                 reinterpret_cast<float*>(sum.data()), sum.size() / sizeof(float));
  } else {
    kernels::add(reinterpret_cast<const double*>(a.data()),
                 reinterpret_cast<const double*>(b.data()), reinterpret_cast<double*>(sum.data()),
                 sum.size() / sizeof(double));
  }
}

}  // namespace swarmline
