// manifest.json of a checkpoint folder (docs/formats/checkpoint.md): what was saved and how it is
// cut.
//   Thread: pure. Errors of parsing: kCorrupt, and kIncompatible for a newer format; `path` is in
//           the sentence. Bounds: kManifestBytesMax; Limits::stages_max stages of at most
//           kStagePartsMax parts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "engine/config/run_config.h"

namespace swarmline {

inline constexpr int kCheckpointFormat = 2;        // written
inline constexpr int kCheckpointFormatOldest = 1;  // read
inline constexpr std::uint32_t kStagePartsMax = 16;
inline constexpr std::uint64_t kManifestBytesMax = 4 * kMiB;

struct PartFile {
  std::string file;    // name within the folder: part_file_name()
  std::string sha256;  // 64 hex digits, of the whole file
  std::uint64_t bytes = 0;
};

struct SavedStage {
  std::vector<PartFile> parts;    // each a share of its tensors
  std::uint32_t first_layer = 0;  // [first_layer, last_layer) of the model
  std::uint32_t last_layer = 0;
};

struct Manifest {
  std::string run;                   // [run] name
  std::uint32_t config_version = 1;  // of the run's config.toml
  std::uint64_t step = 0;            // steps done
  std::uint64_t version = 0;         // of the parameters
  std::uint64_t era = 0;             // of the run: it went back so often
  std::uint32_t sequence = 0;        // tokens, [batch] sequence
  // That the parameters were trained on, in all segments of the run; none: an older one.
  std::optional<std::uint64_t> tokens;
  ModelSection model;  // resolved: no 0 that stands for a default
  // Layers that begin behind a learned boundary ([model] boundary), rising.
  std::vector<std::uint32_t> boundaries;
  bool optimizer_state = false;    // the stage files hold it too
  std::uint64_t updates = 0;       // with it: steps done that were not skipped
  std::vector<SavedStage> stages;  // in order; together every layer once
};

std::string to_json(const Manifest& manifest);
Result<Manifest> parse_manifest(std::string_view json, const std::string& path);

// "stage-3.safetensors"; of several parts "stage-3-0.safetensors", "stage-3-1.safetensors", ...
std::string part_file_name(std::uint32_t stage, std::uint32_t part, std::size_t parts);

}  // namespace swarmline
