// Which files a run's data is: what [data] files and validation name on this machine.
//   Order:   that of the patterns, matches of a glob sorted, a file once in all; a prepared folder
//            stands for its token files. Files of `validation` come last, and are not trained on
//            where `files` matches them, too.
//   Parts:   of a mixture: with weights each entry of `files` is one, else all of them are part 0;
//            `validation` is the part after them.
//   Errors:  kUserMistake, one sentence. Bounds: kDataFilesMax.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/config/run_config.h"

namespace swarmline {

struct DataPath {
  std::string path;
  std::uint32_t part = 0;
  bool from_glob = false;         // it is left out where it is empty
  std::uint32_t token_bytes = 0;  // of raw tokens; 0: found out from the file
};

struct DataPaths {
  std::vector<DataPath> files;
  std::uint32_t vocab = 0;   // that prepared folders among them need; 0: there are none
  bool all_prepared = true;  // every file is one of a prepared folder
  // The token that each document begins with; there where [data] mask_documents wants to know it.
  std::optional<std::uint32_t> separator;
};

// Of what is trained on.
std::uint32_t data_parts(const DataSection& data);

// `root`: nothing is named that does not lie below it; empty: anything may be.
Result<DataPaths> list_data_files(const DataSection& data, const std::string& root);
Result<void> check_below_root(const std::string& path, const std::string& root);

// A file that holds compressed text or a table, whose bytes are not what anybody wants to train on;
// by its name, or by `head`, the first bytes of a file that is read as text.
struct PackedFile {
  std::string_view what;  // "a gzip file"
  bool prepared = false;  // `swarmline data prepare` unpacks it
};
std::optional<PackedFile> find_packed(std::string_view path, std::string_view head);

}  // namespace swarmline
