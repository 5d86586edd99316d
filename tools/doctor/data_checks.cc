#include "tools/doctor/data_checks.h"

#include <fmt/format.h>

#include "console/text.h"
#include "engine/store/files.h"
#include "engine/store/json_value.h"
#include "node/cache_folder.h"
#include "node/peer_data.h"
#include "node/run_data.h"
#include "node/run_folder.h"

namespace swarmline {
namespace {

constexpr std::uint64_t kDataFileBytesMax = 64 * kMiB;

// Of the data that the run began with; empty: it has not begun.
std::string fingerprint_in(const RunFolder& folder) {
  if (!file_exists(folder.data())) return {};
  const auto text = read_text_file(folder.data(), kDataFileBytesMax);
  const auto json = text ? parse_json(*text) : Result<JsonValue>(std::unexpected(text.error()));
  return json ? (*json)["fingerprint"].string : std::string();
}

void count(const DataManifest& manifest, DataFacts& facts) {
  facts.files = manifest.files.size();
  for (const DataFile& file : manifest.files) facts.bytes += file.used;
}

}  // namespace

DataFacts look_at_data(const RunConfig& config) {
  DataFacts facts{.run = config.run_folder()};
  auto data = open_run_data(config, false);
  auto listed = data ? list_data(*data, hashes_folder())
                     : Result<void>(std::unexpected(std::move(data).error()));
  if (!listed) {
    facts.error = listed.error().what;
    return facts;
  }
  count(*data->manifest, facts);
  facts.fingerprint = data->manifest->fingerprint();
  facts.of_run = fingerprint_in(RunFolder(config.run_folder()));
  return facts;
}

DataFacts compare_with_run(const DataManifest& manifest, const RunConfig& config,
                           const PeerConfig& machine) {
  DataFacts facts{.run = config.run.name};
  const HeldData held = PeerData(machine, hashes_folder()).compare(manifest);
  count(manifest, facts);
  facts.of_run = manifest.fingerprint();
  facts.lacks = held.lacks;
  facts.differs = held.differs;
  if (held.lacks.empty() && held.differs.empty()) facts.fingerprint = facts.of_run;
  facts.fetches = machine.fetch_data;
  facts.is_read_here = config.pipeline.stages == 1;
  return facts;
}

Finding judge_data(const DataFacts& facts) {
  if (!facts.error.empty())
    return {"data", CheckOutcome::kFail, facts.error, "see [data] files, from this folder"};
  if (!facts.differs.empty() && !facts.fetches)
    return {"data", CheckOutcome::kFail,
            fmt::format("it is not that of the run {}: {}", facts.run, facts.differs),
            "copy the run's files here, or join with --fetch-data"};
  if (!facts.lacks.empty() || !facts.differs.empty()) {
    const std::string& why = facts.lacks.empty() ? facts.differs : facts.lacks;
    if (facts.fetches)
      return {"data", CheckOutcome::kOk,
              fmt::format("what it reads is fetched from others: {}", why), ""};
    if (facts.is_read_here)
      return {"data", CheckOutcome::kFail, why,
              "the run's only stage reads it: join with --fetch-data"};
    return {"data", CheckOutcome::kWarn, why,
            "this machine may serve stages that read none; for stage 0 name it with --data, or "
            "join with --fetch-data"};
  }
  if (!facts.of_run.empty() && facts.of_run != facts.fingerprint)
    return {"data", CheckOutcome::kFail,
            fmt::format("its fingerprint is {:.12}, and {} began with {:.12}", facts.fingerprint,
                        facts.run, facts.of_run),
            "put back the files that the run began with, or start another one (--fresh)"};
  return {"data", CheckOutcome::kOk,
          fmt::format("{} files, {} are readable{}; fingerprint {:.12}", with_commas(facts.files),
                      human_bytes(static_cast<double>(facts.bytes)),
                      facts.of_run.empty() ? "" : " and the run's", facts.fingerprint),
          ""};
}

}  // namespace swarmline
