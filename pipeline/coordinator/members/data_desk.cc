#include "pipeline/coordinator/members/data_desk.h"

#include <fmt/format.h>

#include "base/limits.h"
#include "base/marks.h"
#include "base/printable.h"
#include "pipeline/protocol/data_messages.h"

namespace swarmline {

DataDesk::DataDesk(const std::shared_ptr<const DataManifest>& manifest, std::uint32_t stages)
    : stages_(stages) {
  if (!manifest) return;
  fingerprint_ = manifest->fingerprint();
  question_ = to_wire(*manifest);
}

bool DataDesk::asks(const wire::Hello& hello) const {
  return !fingerprint_.empty() && hello.data().fingerprint() != fingerprint_;
}

Result<void> DataDesk::admit(const wire::Hello& hello) const {
  const wire::HeldData& held = hello.data();
  if (!held.differs().empty()) {
    SWARMLINE_MARK("data_desk.differs");
    return fail(ErrorCode::kRefused, "its data is not the run's: " +
                                         printable(held.differs(), Limits::reason_bytes_max));
  }
  if (!lacks_data(hello) || stages_ > 1) return {};
  SWARMLINE_MARK("data_desk.no_stage_without");
  return fail(ErrorCode::kRefused,
              fmt::format("it lacks the run's data, which the run's only stage reads: {}",
                          printable(held.lacks(), Limits::reason_bytes_max)));
}

bool lacks_data(const wire::Hello& hello) {
  return !hello.data().lacks().empty() && !hello.data().fetches();
}

bool fetches_data(const wire::Hello& hello) {
  return !hello.data().lacks().empty() && hello.data().fetches();
}

}  // namespace swarmline
