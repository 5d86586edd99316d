// An all-reduce between processes of this machine, or of several, over each way that its chunks can
// go, beside PyTorch's gloo, plain sockets and a plain copy, in turns, so that whatever else the
// machine does meets all.
//   Formats: docs/formats/bench.md, kind "allreduce".
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/measure/member_group.h"

namespace swarmline {

struct AllReduceBenchSpec {
  std::vector<std::uint64_t> mib = {1, 4, 16, 64, 256};  // of fp32, each member's vector
  std::vector<std::uint32_t> members = {2, 4};
  std::vector<std::string> ways = {"tcp", "shm", "ucx"};  // own_member.h
  CodecSpec codec;                                        // of both halves; gloo has none
  int turns = 9;                                          // of which the medians count
  std::uint32_t busy = 0;   // processes that take a core each meanwhile
  std::string gloo_python;  // empty: without gloo
  // Of emulated lines, one for each member, which are then as many, over TCP and without gloo.
  std::vector<double> lines = {};  // Mbit/s either way; emulated_lines.h
  // Of other machines, all members but the first, without gloo and plain sockets; `lines` are then
  // what the machines say of theirs, or empty. It outlives the measurement. Null: all are here.
  FarMembers* far = nullptr;
};

struct AllReduceSide {
  std::string name = {};  // of ours: the way
  std::vector<ReduceSample> turns = {};
  double seconds = 0, cpu_seconds = 0;  // medians
  // gloo's time over its own, turn by turn, the median: above 1 it is the faster one.
  std::optional<double> ahead = {};
};

struct AllReduceRow {
  std::uint64_t mib = 0;
  std::uint32_t members = 0;
  std::vector<AllReduceSide> own;  // of each way that can be had
  std::optional<AllReduceSide> gloo;
  // The same bytes over plain sockets, neither added nor checked; none behind lines, nor between
  // machines.
  std::optional<AllReduceSide> sockets;
  double copy_seconds = 0;       // of one member's vector, once
  std::uint64_t wire_bytes = 0;  // a round, of all members
  double optimum_seconds = 0;    // behind lines: with the best slices; 0: there are none
  std::vector<std::pair<std::string, std::string>> left_out = {};  // ways, and why
};

struct AllReduceReport {
  std::string machine;
  int cores = 0;
  double wall_seconds = 0;  // since 1970, when it began
  AllReduceBenchSpec spec;
  std::vector<AllReduceRow> rows;
  std::vector<std::string> hosts = {};  // of members on other machines, by rank from 1
};

inline constexpr std::uint64_t kAllReduceBenchFormat = 2;

// One row. Starts its processes and ends them.
Result<AllReduceRow> measure_allreduce(const AllReduceBenchSpec& spec, std::uint64_t mib,
                                       std::uint32_t members);

std::string allreduce_head(const AllReduceBenchSpec& spec);
std::string allreduce_line(const AllReduceBenchSpec& spec, const AllReduceRow& row);
std::string to_json(const AllReduceReport& report);

}  // namespace swarmline
