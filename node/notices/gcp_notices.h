// Compute Engine by its metadata server: instance/preempted says TRUE once the machine is to be
// taken, 30 seconds before it is. The first question is answered at once, each further one when
// the value changes, or after a minute.
//   Source: Compute Engine documentation, "Spot VMs" (preemption process) and "View and query VM
//           metadata" (wait_for_change, last_etag, timeout_sec; the header Metadata-Flavor; 503
//           while the server can't answer).
#pragma once

#include <string>

#include "node/notices/notice.h"

namespace swarmline {

class GcpNotices final : public NoticeProvider {
 public:
  std::string name() const override { return "gcp"; }
  HttpClientRequest next() const override;
  Duration patience() const override;
  Duration rest() const override { return rests_ ? std::chrono::seconds(1) : Duration{}; }
  Result<std::optional<Notice>> on_answer(const HttpClientAnswer& answer, double now) override;

 private:
  std::string etag_;
  bool rests_ = false;
  bool told_ = false;
};

}  // namespace swarmline
