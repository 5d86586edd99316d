#include "pipeline/protocol/data_messages.h"

#include <algorithm>

#include "base/limits.h"
#include "base/printable.h"

namespace swarmline {

wire::DataWanted to_wire(const DataManifest& manifest) {
  wire::DataWanted wanted;
  wanted.set_folder(manifest.folder);
  for (const DataFile& file : manifest.files) {
    wire::DataFile* said = wanted.add_files();
    said->set_name(file.name);
    said->set_bytes(file.bytes);
    said->set_used(file.used);
    said->set_sha256(file.sha256);
    said->set_header_bytes(file.header_bytes);
    said->set_token_bytes(file.token_bytes);
    said->set_part(file.part);
  }
  return wanted;
}

Result<DataManifest> from_wire(const wire::DataWanted& wanted) {
  DataManifest manifest{.folder = wanted.folder(), .files = {}};
  for (const wire::DataFile& file : wanted.files())
    manifest.files.push_back({.name = file.name(),
                              .bytes = file.bytes(),
                              .used = file.used(),
                              .sha256 = file.sha256(),
                              .header_bytes = file.header_bytes(),
                              .token_bytes = std::max(file.token_bytes(), 1U),
                              .part = file.part()});
  SWARMLINE_TRY(check_manifest(manifest));
  return manifest;
}

wire::HeldData to_wire(const HeldData& held) {
  wire::HeldData said;
  said.set_fingerprint(held.fingerprint);
  said.set_lacks(printable(held.lacks, Limits::reason_bytes_max));
  said.set_differs(printable(held.differs, Limits::reason_bytes_max));
  said.set_fetches(held.fetches);
  said.set_serves(held.serves);
  return said;
}

}  // namespace swarmline
