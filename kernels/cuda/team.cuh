// A team: the threads of one CUDA block, written so that the same kernel body runs on a device and,
// phase by phase over an array of threads, on the host. A body is a sequence of each() calls, in
// which threads do not see each other, with exchanges between them; so what a test runs on the host
// is the index and shuffle logic of the kernel itself.
//   Rule:  what one each() writes to shared or global memory, another thread may read only in a
//          later each(), after sync(), or after sync_warp() if it is of the same warp. The host
//          runs the threads of a phase in any order it is told to, so that a test can see a body
//          that breaks this rule.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__CUDACC__)
#define SWARMLINE_DEVICE __device__ __forceinline__
#define SWARMLINE_UNROLL _Pragma("unroll")
#define SWARMLINE_NO_UNROLL _Pragma("unroll 1")
#else
#include <vector>
#define SWARMLINE_DEVICE inline
#define SWARMLINE_UNROLL
#define SWARMLINE_NO_UNROLL
#endif

namespace swarmline::kernels::cuda {

inline constexpr unsigned kTeamWarp = 32;
inline constexpr unsigned kTeamThreads = 256;  // at most
inline constexpr unsigned kTeamWarps = kTeamThreads / kTeamWarp;

// What scripts/ptx_report.py counts is the path of a full chunk of finite values, in arrays, with
// fp32 scales and blocks of kReportBlock. What is rare ends a thread there, so that only the test
// for it counts.
#if defined(SWARMLINE_PTX_REPORT)
inline constexpr bool kIsReport = true;
inline constexpr unsigned kReportBlock = SWARMLINE_PTX_REPORT;
#else
inline constexpr bool kIsReport = false;
inline constexpr unsigned kReportBlock = 0;
#endif
SWARMLINE_DEVICE bool rare(bool condition) {
#if defined(SWARMLINE_PTX_REPORT)
  if (condition) asm volatile("exit;");
  return false;
#else
  return __builtin_expect(static_cast<long>(condition), 0) != 0;
#endif
}

#if defined(__CUDACC__)

class Team {
 public:
  template <typename State>
  using PerThread = State;

  __device__ __forceinline__ unsigned threads() const { return blockDim.x; }
  // f(thread, state of that thread) for every thread.
  template <typename State, typename F>
  __device__ __forceinline__ void each(State& state, F f) const {
    f(threadIdx.x, state);
  }
  // set(thread, state, get(state of the thread whose lane differs by `mask`)).
  template <typename State, typename Get, typename Set>
  __device__ __forceinline__ void exchange_xor(State& state, unsigned mask, Get get,
                                               Set set) const {
    set(threadIdx.x, state, __shfl_xor_sync(0xFFFFFFFFU, get(state), mask));
  }
  // The same for the maximum over all lanes of a warp.
  template <typename State, typename Get, typename Set>
  __device__ __forceinline__ void warp_max(State& state, Get get, Set set) const {
#if __CUDA_ARCH__ >= 800
    set(threadIdx.x, state, __reduce_max_sync(0xFFFFFFFFU, get(state)));
#else
    std::uint32_t top = get(state);
    for (unsigned mask = 1; mask < kTeamWarp; mask *= 2) {
      top = max(top, __shfl_xor_sync(0xFFFFFFFFU, top, mask));
    }
    set(threadIdx.x, state, top);
#endif
  }
  __device__ __forceinline__ void sync() const { __syncthreads(); }
  __device__ __forceinline__ void sync_warp() const { __syncwarp(); }
};

#else

// Which team of a launch runs, on the host.
struct HostTeam {
  unsigned x = 0;
  unsigned threads = 0;
};
inline thread_local HostTeam blockIdx;

class Team {
 public:
  template <typename State>
  using PerThread = std::vector<State>;

  Team() : Team(blockIdx.threads) {}  // the one that runs

  // `stride` is odd: the threads of a phase run in the order 0, stride, 2 * stride, ... modulo
  // their number.
  explicit Team(unsigned threads, unsigned stride = 1) : threads_(threads), stride_(stride) {}
  unsigned threads() const { return threads_; }
  template <typename State, typename F>
  void each(std::vector<State>& states, F f) const {
    states.resize(threads_);
    for (unsigned i = 0; i < threads_; ++i) {
      const unsigned thread = i * stride_ % threads_;
      f(thread, states[thread]);
    }
  }
  template <typename State, typename Get, typename Set>
  void exchange_xor(std::vector<State>& states, unsigned mask, Get get, Set set) const {
    std::vector<decltype(get(states[0]))> values;
    for (State& state : states) values.push_back(get(state));
    for (unsigned thread = 0; thread < threads_; ++thread) {
      set(thread, states[thread], values[thread ^ mask]);
    }
  }
  template <typename State, typename Get, typename Set>
  void warp_max(std::vector<State>& states, Get get, Set set) const {
    for (unsigned first = 0; first < threads_; first += kTeamWarp) {
      std::uint32_t top = 0;
      for (unsigned lane = 0; lane < kTeamWarp; ++lane) {
        const std::uint32_t value = get(states[first + lane]);
        top = value > top ? value : top;
      }
      for (unsigned lane = 0; lane < kTeamWarp; ++lane) {
        set(first + lane, states[first + lane], top);
      }
    }
  }
  void sync() const {}
  void sync_warp() const {}

 private:
  unsigned threads_;
  unsigned stride_;
};

#endif

}  // namespace swarmline::kernels::cuda
