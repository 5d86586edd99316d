// LAMB's norms: per chunk the sums of squares of its parameters and of its update, per tensor the
// rate that follows from them.
#pragma once

#include "kernels/cuda/optimizer_body.cuh"
#include "kernels/cuda/sum_body.cuh"

namespace swarmline::kernels::cuda {

struct NormShared {
  float parameters[kOptimizerChunk];
  float update[kOptimizerChunk];
};

// `sums`: two, of parameters and of the update. fp32 state (codebooks null) moves here, 8-bit state
// does not.
SWARMLINE_DEVICE void lamb_norms_body(const Team& team, const ChunkView& view,
                                      const LambStep<float>& step, MomentCodebooks* codebooks,
                                      NormShared& shared, double* sums) {
  Team::PerThread<LaneSum> state;
  if (codebooks != nullptr) {
    team.each(state, [&](unsigned thread, LaneSum&) { fill_codebooks(thread, *codebooks); });
    team.sync();
  }
  team.each(state, [&](unsigned thread, LaneSum&) {
    for (unsigned first = thread * kVector; first < view.count; first += kTeamThreads * kVector) {
      float g[kVector], m[kVector], v[kVector], p[kVector];
      load4(view.gradients, first, view.count, g);
      load4(view.parameters, first, view.count, p);
      if (codebooks != nullptr) {
        const unsigned block = first / kMomentBlock;
        decode4(load_moments4(view, first), view.m_scales[block], view.v_scales[block], *codebooks,
                m, v);
      } else {
        load4(view.m32(), first, view.count, m);
        load4(view.v32(), first, view.count, v);
      }
      SWARMLINE_UNROLL
      for (unsigned i = 0; i < kVector; ++i) {
        move_moments(step.moments, g[i], m[i], v[i]);
        shared.parameters[first + i] = p[i];
        shared.update[first + i] = lamb_update(step, m[i], v[i], p[i]);
      }
      if (codebooks == nullptr) {
        store4(view.m32(), first, view.count, m);
        store4(view.v32(), first, view.count, v);
      }
    }
  });
  team.sync();
  team.each(state, [&](unsigned thread, LaneSum& s) {
    const float* const terms = thread < kTeamWarp ? shared.parameters : shared.update;
    s.sum = 0;
    if (thread >= 2 * kTeamWarp) return;
    for (unsigned i = thread % kTeamWarp; i < view.count; i += kTeamWarp) {
      const double term = static_cast<double>(terms[i]);
      s.sum += term * term;
    }
  });
  fold_warps(team, state, &LaneSum::sum);
  team.each(state, [&](unsigned thread, LaneSum& s) {
    if (thread == 0) sums[0] = s.sum;
    if (thread == kTeamWarp) sums[1] = s.sum;
  });
}

struct TensorSums {
  double parameters;
  double update;
  double all_parameters;
  double all_update;
};

// One warp: the chunks' sums of a tensor become its rate, learning_rate * trust ratio.
SWARMLINE_DEVICE void lamb_rate_body(const Team& team, const OptimizerTensor& tensor,
                                     const double* sums, double learning_rate, float* rate) {
  Team::PerThread<TensorSums> state;
  team.each(state, [](unsigned, TensorSums& s) { s = {}; });
  for (unsigned begin = 0; begin < tensor.chunks; begin += kSumBlock) {
    const unsigned size = tensor.chunks - begin < kSumBlock ? tensor.chunks - begin
                                                            : static_cast<unsigned>(kSumBlock);
    const double* const group = sums + 2 * (std::size_t{tensor.first_chunk} + begin);
    team.each(state, [&](unsigned lane, TensorSums& s) {
      s.parameters = 0;
      s.update = 0;
      for (unsigned i = lane; i < size; i += kTeamWarp) {
        s.parameters += group[2 * i];
        s.update += group[2 * i + 1];
      }
    });
    fold_warps(team, state, &TensorSums::parameters);
    fold_warps(team, state, &TensorSums::update);
    team.each(state, [&](unsigned lane, TensorSums& s) {
      if (lane != begin / kSumBlock % kSumLanes) return;
      s.all_parameters += s.parameters;
      s.all_update += s.update;
    });
  }
  fold_warps(team, state, &TensorSums::all_parameters);
  fold_warps(team, state, &TensorSums::all_update);
  team.each(state, [&](unsigned lane, TensorSums& s) {
    if (lane != 0) return;
    const double parameter_norm = square_root(s.all_parameters);
    const double update_norm = square_root(s.all_update);
    const double trust =
        parameter_norm == 0 || update_norm == 0 ? 1.0 : parameter_norm / update_norm;
    *rate = static_cast<float>(learning_rate * trust);
  });
}

}  // namespace swarmline::kernels::cuda
