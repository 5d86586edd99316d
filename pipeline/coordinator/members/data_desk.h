// What newcomers have of the run's data: nobody gets a seat before it is known.
//   What:      the coordinator's files are the run's. A newcomer is told their list, compares its
//              own with it, and says hello again. Who has others is refused; who has none sits at a
//              stage that reads none, if the run has one, unless it fetches what it reads.
//   Ownership: the manifest is shared; null: nobody is asked. Thread: control thread.
//   Errors:    as sentences, for the newcomer.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/ids.h"
#include "base/result.h"
#include "engine/data/data_manifest.h"
#include "pipeline/protocol/messages.pb.h"

namespace swarmline {

inline constexpr StageId kReadingStage{0};  // its sources read the data: targets ride along

class DataDesk {
 public:
  DataDesk(const std::shared_ptr<const DataManifest>& manifest, std::uint32_t stages);

  // It has not been asked about these files.
  bool asks(const wire::Hello& hello) const;
  const wire::DataWanted& question() const { return question_; }
  // kRefused: what it says of its files keeps it from any seat.
  Result<void> admit(const wire::Hello& hello) const;

 private:
  std::string fingerprint_;  // empty: nobody is asked
  wire::DataWanted question_;
  std::uint32_t stages_;
};

// It can't serve the stage that reads the data.
bool lacks_data(const wire::Hello& hello);
// It can, and fetches the data from others.
bool fetches_data(const wire::Hello& hello);

}  // namespace swarmline
