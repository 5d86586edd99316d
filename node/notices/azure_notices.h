// Azure by its Scheduled Events: asked every second; an event that names this machine (or, as long
// as its name is not known, any) is told. Preempt comes at least 30 seconds ahead, Terminate,
// Redeploy and Reboot five to fifteen minutes: while more than kLeaveAhead is left the machine is
// only at risk. Freeze (a pause of seconds) and what is not known are not told. Once this machine
// has nothing left to do it says so (StartRequests), and Azure need not wait any longer.
//   Source: Azure documentation, "Scheduled Events for Linux VMs" (api-version 2020-07-01) and
//           "Azure Instance Metadata Service"; the header Metadata.
#pragma once

#include <set>
#include <string>

#include "node/notices/notice.h"

namespace swarmline {

class AzureNotices final : public NoticeProvider {
 public:
  static constexpr Duration kLeaveAhead = std::chrono::seconds(120);
  static constexpr std::size_t kEventsMax = 128;

  std::string name() const override { return "azure"; }
  HttpClientRequest next() const override;
  Duration patience() const override;
  Duration rest() const override { return std::chrono::seconds(1); }
  Result<std::optional<Notice>> on_answer(const HttpClientAnswer& answer, double now) override;
  std::optional<HttpClientRequest> farewell() const override;

 private:
  struct Event {
    std::string id, type, status;
    std::optional<double> at;
  };
  Result<std::vector<Event>> read(const std::string& body) const;
  std::optional<Notice> judge(const Event& event, double now);

  bool asks_name_ = true;
  bool heard_ = false;                       // the first answer about events may take two minutes
  std::string name_;                         // of this machine; empty: not known
  std::set<std::string> at_risk_, leaving_;  // ids of events that were told
};

}  // namespace swarmline
