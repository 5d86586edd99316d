// What a run's data is: its files by name, size and content; and whether a machine has the same.
//   What:      the coordinator makes the manifest of the data that it opened; every peer compares
//              its own files with it before it gets a seat. The files are in the order of the
//              stream, their names below the folder that all have in common.
//   Thread:    any; both read every byte that the run uses, unless its hash is remembered.
//   Errors:    of manifest_of(): kIo, kNotFound.
//   Bounds:    kDataFilesMax files; names of kDataNameBytesMax; kHashThreadsMax read at once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/limits.h"
#include "base/result.h"
#include "engine/data/file_hashes.h"
#include "engine/data/token_dataset.h"

namespace swarmline {

inline constexpr std::size_t kDataNameBytesMax = 4096;
inline constexpr std::uint32_t kHashThreadsMax = 4;
inline constexpr std::uint64_t kDataPieceBytes = Limits::state_piece_bytes;  // data_pieces.h

struct DataFile {
  std::string name;         // below the manifest's folder
  std::uint64_t bytes = 0;  // of the file
  std::uint64_t used = 0;   // of these, from the beginning: what the run reads
  std::string sha256;       // of what is used: 64 hex digits
  // For who fetches it: how it is read, and, at the coordinator, the SHA-256 of each of its pieces
  // (data_pieces.h), 64 hex digits each. No part of the fingerprint.
  std::uint64_t header_bytes = 0;
  std::uint32_t token_bytes = 1;
  std::uint32_t part = 0;  // of a mixture (data_files.h)
  std::string pieces = {};
  bool operator==(const DataFile&) const = default;
};

struct DataManifest {
  std::string folder;  // as the coordinator names it; relative to where it runs, or not
  std::vector<DataFile> files;
  // SHA-256 of names, sizes and contents, not of the folder: 64 hex digits.
  std::string fingerprint() const;
  bool operator==(const DataManifest&) const = default;
};

Result<DataManifest> manifest_of(const TokenDataset& dataset, const FileHashes& hashes);
// What another process says: names that stay below a folder, sizes that fit, at least one file.
Result<void> check_manifest(const DataManifest& manifest);

// What a machine has of it. Neither a word of what it lacks nor of what differs: all, the same.
struct HeldData {
  std::string fingerprint;         // of the manifest that was compared
  std::string lacks;               // why it can't read the data: a sentence
  std::string differs;             // which file is another, and how: a sentence
  bool fetches = false;            // what it lacks it fetches from others
  bool serves = false;             // others may fetch it here
  std::vector<std::string> paths;  // of its files, in the manifest's order
};

struct DataPlace {     // on this machine
  std::string folder;  // instead of the manifest's; empty: the same
  std::string root;    // nothing is read that does not lie below it; not empty
};
HeldData compare_data(const DataManifest& manifest, const DataPlace& place,
                      const FileHashes& hashes);

// As it lies in a run's folder: what the run's data is, and the hashes of its pieces.
std::string to_json(const DataManifest& manifest);

}  // namespace swarmline
