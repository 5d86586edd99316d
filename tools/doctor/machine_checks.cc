#include "tools/doctor/machine_checks.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/units.h"
#include "console/text.h"
#include "node/memory_report.h"

namespace swarmline {
namespace {

std::string bytes_text(std::uint64_t bytes) {
  return human_bytes(static_cast<double>(bytes));
}

}  // namespace

Finding judge_port(const PortFacts& facts) {
  const auto at = fmt::format("{} {}", facts.key, facts.address);
  if (facts.bound.empty())
    return {"port", CheckOutcome::kFail,
            fmt::format("{} can't be listened at: {}", at, facts.reason),
            "stop what listens there (perhaps this run itself), or choose another port; 0 takes "
            "any free one"};
  return {"port", CheckOutcome::kOk,
          facts.is_loopback ? fmt::format("{} is free; only this machine reaches it", at)
                            : fmt::format("{} is free", at),
          ""};
}

Finding judge_descriptors(const DescriptorFacts& facts) {
  const std::string found = fmt::format("{} may have {} files and connections open (now {})",
                                        facts.what_for, facts.hard, facts.soft);
  if (facts.hard < facts.needed)
    return {"descriptors", CheckOutcome::kFail,
            fmt::format("{}, and needs {}", found, facts.needed),
            "raise the hard limit (ulimit -Hn, or LimitNOFILE= of its service)"};
  return {"descriptors", CheckOutcome::kOk, fmt::format("{}, and needs {}", found, facts.needed),
          ""};
}

Finding judge_disk(const DiskFacts& facts) {
  if (!facts.reason.empty())
    return {"disk", CheckOutcome::kFail,
            fmt::format("{}: a file can't be written and synced: {}", facts.folder, facts.reason),
            "make room, or choose another [run] dir"};
  const std::string free =
      fmt::format("{} has {} free", facts.folder, bytes_text(facts.free_bytes));
  if (facts.needed_bytes > facts.free_bytes)
    return {
        "disk", CheckOutcome::kFail,
        fmt::format("{}, and {} take {}", free, facts.needed_for, bytes_text(facts.needed_bytes)),
        "make room, lower [checkpoint] keep, or choose another [run] dir"};
  const std::string sync = fmt::format("; a sync takes {:.0f} ms", facts.sync_seconds * 1000);
  const std::string needed =
      facts.needed_bytes == 0
          ? ""
          : fmt::format(", and {} take {}", facts.needed_for, bytes_text(facts.needed_bytes));
  if (facts.sync_seconds > kSlowSyncSeconds)
    return {"disk", CheckOutcome::kWarn, free + needed + sync,
            "each step waits for a sync of the journal: put [run] dir on a faster disk"};
  return {"disk", CheckOutcome::kOk, free + needed + sync, ""};
}

Finding judge_memory(const MemoryFacts& facts) {
  const std::string free =
      facts.free_bytes == 0
          ? fmt::format("how much memory {} has free is not known", facts.of)
          : fmt::format("{} has {} of {} free", facts.of, bytes_text(facts.free_bytes),
                        bytes_text(facts.total_bytes));
  if (facts.stages.empty())
    return {"memory", CheckOutcome::kSkipped, free + "; no stage is planned", ""};
  const StageNeed& most = *std::ranges::max_element(facts.stages, {}, &StageNeed::bytes);
  std::uint64_t all = 0;
  std::uint32_t peers = 0;
  for (const StageNeed& stage : facts.stages) {
    all += stage.peers * stage.bytes;
    peers += stage.peers;
  }
  std::string what =
      fmt::format("{}; a peer of stage {} needs {}", free, most.stage, bytes_text(most.bytes));
  if (facts.stages.size() > 1) what += ", the most of all stages";
  if (facts.whole_swarm) what += fmt::format(", all {} peers {}", peers, bytes_text(all));
  what +=
      fmt::format("; fits a {}: {}, {}", kSpotCard.name,
                  fits(kSpotCard, most.device_bytes) ? "yes" : "no", bytes_text(most.device_bytes));
  if (facts.free_bytes == 0) return {"memory", CheckOutcome::kSkipped, what, ""};
  if (most.bytes > facts.free_bytes)
    return {"memory", CheckOutcome::kFail, what,
            "cut the model into more stages, keep fewer microbatches in flight, or set "
            "pipeline.recompute = true; \"swarmline memory\" shows what each takes"};
  if (facts.whole_swarm && all > facts.free_bytes)
    return {"memory", CheckOutcome::kWarn, what,
            "not all of them fit: let others join from other machines"};
  return {"memory", CheckOutcome::kOk, what, ""};
}

Finding judge_compute(const ComputeFacts& facts) {
  if (!facts.error.empty())
    return {"libtorch", CheckOutcome::kFail,
            fmt::format("{} (libtorch {}): {}", facts.device, facts.libtorch, facts.error),
            "do as it says, or choose another --device"};
  return {"libtorch", CheckOutcome::kOk,
          fmt::format("{}; computed a small stage on {}", facts.libtorch, facts.device), ""};
}

Finding judge_cpu(const ComputeFacts& facts) {
  const std::string what = fmt::format("{}, {} cores, {} for computing; codecs use {}", facts.cpu,
                                       facts.cores, facts.threads, facts.kernels);
  if (facts.threads > facts.cores)
    return {"cpu", CheckOutcome::kWarn, what, fmt::format("set --threads {} or less", facts.cores)};
  return {"cpu", CheckOutcome::kOk, what, ""};
}

Finding judge_driver(const DriverFacts& facts) {
  if (!facts.wanted) return {"driver", CheckOutcome::kSkipped, "the device is the CPU", ""};
  if (facts.driver.empty())
    return {"driver", CheckOutcome::kFail, "there is no NVIDIA driver on this machine",
            "install one, or use --device cpu"};
  return {"driver", CheckOutcome::kOk,
          fmt::format("NVIDIA {}{}{}", facts.driver, facts.gpu.empty() ? "" : "; ", facts.gpu), ""};
}

}  // namespace swarmline
