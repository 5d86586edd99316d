#include "tools/doctor/doctor.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "node/cache_folder.h"
#include "node/descriptors.h"
#include "node/peer_data.h"
#include "node/stage_table.h"
#include "tools/doctor/data_checks.h"
#include "tools/doctor/link_checks.h"
#include "tools/doctor/machine_facts.h"
#include "tools/doctor/run_checks.h"

namespace swarmline {
namespace {

// What is planned, from wherever the config came.
struct Planned {
  std::optional<RunConfig> config;
  std::vector<StageHolding> stages;  // empty: not known
};

std::uint32_t all_peers(const RunConfig& config) {
  const auto& peers = config.pipeline.peers;
  return std::accumulate(peers.begin(), peers.end(), 0U);
}

// Of the peer that has most links: those of its stage, and of the stages before and behind it.
std::uint32_t links_of_a_peer(const RunConfig& config) {
  const auto& peers = config.pipeline.peers;
  std::uint32_t most = 0;
  for (std::size_t stage = 0; stage < peers.size(); ++stage) {
    const std::size_t begin = stage == 0 ? 0 : stage - 1;
    const std::size_t end = std::min(stage + 2, peers.size());
    most = std::max(most, std::accumulate(peers.begin() + static_cast<std::ptrdiff_t>(begin),
                                          peers.begin() + static_cast<std::ptrdiff_t>(end), 0U));
  }
  return most;
}

Finding check_descriptors(const DoctorQuestion& question, const Planned& planned) {
  DescriptorFacts facts = look_at_descriptors();
  if (!planned.config) {
    facts.what_for = "a process";
    facts.needed = kDescriptorsBesides;
  } else if (question.config) {
    facts.what_for = fmt::format("a coordinator of {} peers", all_peers(*planned.config));
    facts.needed = kDescriptorsBesides + all_peers(*planned.config);
  } else {
    facts.what_for =
        fmt::format("a peer with {} others at its links", links_of_a_peer(*planned.config));
    facts.needed = kDescriptorsBesides + links_of_a_peer(*planned.config);
  }
  return judge_descriptors(facts);
}

Finding check_memory(const DoctorQuestion& question, const Planned& planned) {
  MemoryFacts facts = look_at_memory(question.machine.device);
  if (question.machine.memory_bytes > 0) {
    facts.of = "--memory";
    facts.free_bytes = facts.total_bytes = question.machine.memory_bytes;
  }
  facts.whole_swarm = question.config && !question.join;
  const bool cuda = question.machine.device.starts_with("cuda");
  for (const StageHolding& holding : planned.stages)
    facts.stages.push_back({.stage = holding.stage.stage.value,
                            .peers = holding.peers,
                            .bytes = cuda ? holding.cuda.device.total() : holding.needed_bytes,
                            .device_bytes = holding.cuda.device.total()});
  return judge_memory(facts);
}

Finding check_disk(const DoctorQuestion& question, const Planned& planned) {
  if (question.config) {
    const RunConfig& config = *question.config;
    DiskFacts facts = look_at_disk(config.run_folder());
    std::uint64_t one = 0;
    for (const StageHolding& holding : planned.stages) one += holding.saved_bytes;
    const std::uint64_t kept = std::uint64_t{config.checkpoint.keep} + 1;  // and one being written
    facts.needed_bytes = kept * one;
    facts.needed_for = fmt::format("{} checkpoints", kept);
    return judge_disk(facts);
  }
  if (!question.machine.fetch_data) return judge_disk(look_at_disk("."));
  DiskFacts facts = look_at_disk(pieces_folder(question.machine));
  facts.needed_bytes = question.machine.fetch_data_cache_mb * kMiB;
  facts.needed_for = "the pieces of data that it may keep";
  return judge_disk(facts);
}

std::vector<Finding> check_compute(const DoctorQuestion& question) {
  ComputeFacts facts = look_at_cpu();
  facts.device = question.machine.device;
  facts.threads = question.machine.threads;
  facts.libtorch = question.libtorch;
  std::vector<Finding> findings;
  if (question.compute) {
    if (const auto computed = question.compute(question.machine); !computed)
      facts.error = computed.error().what;
    findings.push_back(judge_compute(facts));
  }
  findings.push_back(judge_cpu(facts));
  findings.push_back(judge_driver(look_at_driver(question.machine.device)));
  return findings;
}

Finding check_port(const DoctorQuestion& question) {
  return question.config ? judge_port(look_at_port("[net] listen", question.config->net.listen))
                         : judge_port(look_at_port("[peer] listen", question.machine.listen));
}

Result<Planned> plan_of_config(const RunConfig& config) {
  auto check = check_config(config);
  // Data that can't be read is a finding of its own; without it the vocabulary may be unknown.
  if (!check) return Planned{.config = config, .stages = {}};
  return Planned{.config = config, .stages = std::move(check->stages)};
}

Planned plan_of_run(const CoordinatorFacts& facts) {
  Planned planned{.config = facts.config, .stages = {}};
  if (!facts.config) return planned;
  const auto model = resolve_model(*facts.config, facts.vocab);
  if (!model) return planned;
  if (auto stages = stage_holdings(*facts.config, *model)) planned.stages = std::move(*stages);
  return planned;
}

Finding check_run_data(const CoordinatorFacts& facts, const PeerConfig& machine) {
  if (!facts.config || !facts.data)
    return {"data", CheckOutcome::kSkipped, "the coordinator did not say what the run's data is",
            ""};
  return judge_data(compare_with_run(*facts.data, *facts.config, machine));
}

void append(std::vector<Finding>& all, std::vector<Finding> more) {
  std::ranges::move(more, std::back_inserter(all));
}

}  // namespace

Result<std::vector<Finding>> examine(const DoctorQuestion& question) {
  std::vector<Finding> findings;
  const bool of_this_machine = question.config || question.join || !question.status;
  if (of_this_machine) {
    Planned planned;
    if (question.config) {
      auto plan = plan_of_config(*question.config);
      if (!plan) return std::unexpected(std::move(plan).error());
      planned = std::move(*plan);
    }
    findings.push_back(check_port(question));
    if (question.config) findings.push_back(judge_data(look_at_data(*question.config)));
    if (question.join) {
      const auto link = try_coordinator(*question.join, question.machine);
      if (!link) return std::unexpected(link.error());
      append(findings, judge_link(*link));
      if (!question.config) {
        findings.push_back(check_run_data(*link, question.machine));
        planned = plan_of_run(*link);
      }
    }
    findings.push_back(check_memory(question, planned));
    findings.push_back(check_disk(question, planned));
    findings.push_back(check_descriptors(question, planned));
    append(findings, check_compute(question));
  }
  if (question.status) append(findings, judge_run(*question.status));
  return findings;
}

}  // namespace swarmline
