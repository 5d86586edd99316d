// A fixture for tests of real processes over loopback TCP: `swarmline` runs of one config, and the
// reference in this process on the same data. SWARMLINE_ORACLE_DEVICE=cuda: all of it on that
// device, several peers on one (scripts/gpu-check).
//   Bounds: a process that has not ended after kProcessLimit fails the test and is killed.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/oracle/oracle_case.h"
#include "tests/store/temp_folder.h"

namespace swarmline::oracle {

// A run takes a few seconds on idle cores.
inline constexpr std::chrono::seconds kProcessLimit{150};

std::string device_under_test();

class ProcessRuns : public ::testing::Test {
 protected:
  // Writes the text, the run's config (with paths of this test) and the peers'.
  void write_files(RunConfig config);
  // Its output; fails the test when it does not end well within kProcessLimit.
  std::string run_program(std::vector<std::string> arguments);
  void run_swarm_process();
  void run_reference_process();
  // What the runs of those two leave: losses, evaluation, and on request parameters, too.
  Trace swarm_trace(bool with_parameters) const { return trace_of("oracle", with_parameters); }
  Trace reference_process_trace(bool with_parameters) const {
    return trace_of("oracle-reference", with_parameters);
  }
  // For run_references() and run_reference_trace() in this process, on the device under test.
  ReferenceOptions reference_options() const;
  MakeSource make_source() const;

  const TempFolder temp_;
  const std::filesystem::path folder_ = temp_.path();
  RunConfig config_;

 private:
  Trace trace_of(const std::string& run, bool with_parameters) const;
};

}  // namespace swarmline::oracle
