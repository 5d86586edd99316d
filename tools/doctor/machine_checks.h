// Whether this machine can do what it is to do: judged by what was found out about it.
//   What:    facts in, a finding out; where each fact comes from, machine_facts.h says.
//   Units:   bytes, seconds. Thread: any; pure. Errors: none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/doctor/finding.h"

namespace swarmline {

struct PortFacts {
  std::string key;      // of the config: "[net] listen"
  std::string address;  // as it says
  bool is_loopback = false;
  std::string bound;   // where it could listen; empty: it could not
  std::string reason;  // why not
};
Finding judge_port(const PortFacts& facts);

struct DescriptorFacts {
  std::uint64_t soft = 0, hard = 0;
  std::uint64_t needed = 0;  // of the process here that has most links
  std::string what_for;      // "a coordinator of 8 peers"
};
Finding judge_descriptors(const DescriptorFacts& facts);

struct DiskFacts {
  std::string folder;       // that was tried: the run folder, or what is there above it
  std::string reason;       // why no file could be written and synced there; empty: it could
  double sync_seconds = 0;  // that took
  std::uint64_t free_bytes = 0;
  std::uint64_t needed_bytes = 0;  // for what it is to hold at a time; 0: unknown
  std::string needed_for;          // "4 checkpoints"
};
inline constexpr double kSlowSyncSeconds = 0.5;  // each commit waits for one
Finding judge_disk(const DiskFacts& facts);

struct StageNeed {
  std::uint64_t stage = 0;
  std::uint32_t peers = 0;
  std::uint64_t bytes = 0;         // of one peer, on its device
  std::uint64_t device_bytes = 0;  // the same, if that were a GPU
};
struct MemoryFacts {
  std::string of;                // "this machine", or its GPU's name
  std::uint64_t free_bytes = 0;  // 0: unknown
  std::uint64_t total_bytes = 0;
  std::vector<StageNeed> stages;  // planned; empty: none is known
  bool whole_swarm = false;       // all peers are to run here, as `launch` does
};
Finding judge_memory(const MemoryFacts& facts);
struct ComputeFacts {
  std::string device;    // "cpu", "cuda", "cuda:N"
  std::string libtorch;  // version it was built with
  std::string error;     // of a small stage that was computed there; empty: it worked
  std::string cpu;       // its name
  std::uint32_t cores = 0;
  std::uint32_t threads = 0;  // that are to compute
  std::string kernels;        // the instruction set that the codecs use
};
Finding judge_compute(const ComputeFacts& facts);
Finding judge_cpu(const ComputeFacts& facts);

struct DriverFacts {
  bool wanted = false;  // the device is a GPU
  std::string driver;   // its version; empty: there is none
  std::string gpu;      // the device's name, if the driver's tool says it
};
Finding judge_driver(const DriverFacts& facts);

}  // namespace swarmline
