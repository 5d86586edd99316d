// The places in what kernels are given (kernels/cuda/team_launch.cuh), for a stand-in for CUDA that
// looks where they are. Before whatever launches these.
#pragma once

#include "kernels/cuda/halves_body.cuh"
#include "kernels/cuda/optimizer_body.cuh"
#include "kernels/cuda/pairs_body.cuh"
#include "kernels/cuda/quantize_body.cuh"
#include "kernels/cuda/sum_body.cuh"
#include "kernels/cuda/team_launch.cuh"
#include "kernels/cuda/topk_body.cuh"
#include "kernels/cuda/xxh3_body.cuh"

namespace swarmline::kernels::cuda {

using Places = std::vector<const void*>;

template <>
struct HostPlaces<HalvesArgs> {
  static void add(const HalvesArgs& of, Places& to) {
    to.insert(to.end(), {of.from, of.to, of.non_finite});
  }
};
template <>
struct HostPlaces<OptimizerArenas> {
  static void add(const OptimizerArenas& of, Places& to) {
    to.insert(to.end(), {of.gradients, of.parameters, of.m, of.v});
  }
};
template <>
struct HostPlaces<PairsArgs> {
  static void add(const PairsArgs& of, Places& to) { to.insert(to.end(), {of.a, of.b, of.out}); }
};
template <>
struct HostPlaces<QuantizeArgs> {
  static void add(const QuantizeArgs& of, Places& to) {
    to.insert(to.end(),
              {of.values, of.out.scales, of.out.codes, of.current, of.next, of.non_finite});
  }
};
template <>
struct HostPlaces<DequantizeArgs> {
  static void add(const DequantizeArgs& of, Places& to) {
    to.insert(to.end(), {of.values, of.in.scales, of.in.codes, of.non_finite});
  }
};
template <>
struct HostPlaces<ScatterBody::Args> {
  static void add(const ScatterBody::Args& of, Places& to) {
    to.insert(to.end(), {of.tiles, of.values, of.non_finite});
  }
};
template <>
struct HostPlaces<HashPieces> {
  static void add(const HashPieces& of, Places& to) { to.insert(to.end(), {of.data, of.hashes}); }
};
template <>
struct HostPlaces<SumBody<Square, float>::Args> {
  static void add(const SumBody<Square, float>::Args& of, Places& to) {
    to.insert(to.end(), {of.values, of.sums});
  }
};
template <>
struct HostPlaces<SumBody<Same, double>::Args> {
  static void add(const SumBody<Same, double>::Args& of, Places& to) {
    to.insert(to.end(), {of.values, of.sums});
  }
};

}  // namespace swarmline::kernels::cuda
