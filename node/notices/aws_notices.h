// EC2 by its instance metadata service, version 2: a token is asked for (PUT) and sent along with
// each request; /spot/instance-action and /events/recommendations/rebalance answer 404 until there
// is something to tell. A spot instance is told two minutes before it is taken.
//   Source: Amazon EC2 User Guide, "Spot Instance interruption notices", "EC2 instance rebalance
//           recommendations" and "Use the Instance Metadata Service": ask every five seconds; a
//           token lives six hours at most; 401 once it does not.
#pragma once

#include <string>

#include "node/notices/notice.h"

namespace swarmline {

class AwsNotices final : public NoticeProvider {
 public:
  std::string name() const override { return "aws"; }
  HttpClientRequest next() const override;
  Duration rest() const override;
  Result<std::optional<Notice>> on_answer(const HttpClientAnswer& answer, double now) override;

 private:
  enum class Asks : std::uint8_t { kToken, kAction, kRebalance };
  Result<std::optional<Notice>> read_action(const HttpClientAnswer& answer, double now);

  Asks asks_ = Asks::kToken;
  bool rested_ = true;  // the token's answer is followed by a question at once
  std::string token_;
  double token_ends_ = 0;
  bool told_action_ = false, told_rebalance_ = false;
};

}  // namespace swarmline
