// What a metadata server may answer: each provider hears one answer after another, made of the
// input, and must neither crash nor stop asking.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "node/notices/aws_notices.h"
#include "node/notices/azure_notices.h"
#include "node/notices/gcp_notices.h"
#include "node/notices/notice_command.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace swarmline;
  constexpr int kStatuses[] = {200, 200, 200, 401, 404, 503};
  AwsNotices aws;
  GcpNotices gcp;
  AzureNotices azure;
  std::string_view left(reinterpret_cast<const char*>(data), size);
  double now = 1'790'000'000;
  while (!left.empty()) {
    const auto status = static_cast<unsigned char>(left.front());
    const std::size_t end = left.find('\0', 1);
    const std::string body(left.substr(1, end == left.npos ? left.npos : end - 1));
    left.remove_prefix(end == left.npos ? left.size() : end + 1);
    const HttpClientAnswer answer{.status = kStatuses[status % std::size(kStatuses)],
                                  .etag = body.substr(0, 16),
                                  .body = body};
    for (NoticeProvider* from :
         {static_cast<NoticeProvider*>(&aws), static_cast<NoticeProvider*>(&gcp),
          static_cast<NoticeProvider*>(&azure)}) {
      const auto notice = from->on_answer(answer, now);
      if (notice && *notice) SWARMLINE_CHECK((*notice)->left >= Duration{});
      SWARMLINE_CHECK(from->next().target.starts_with('/') && from->patience() > Duration{});
    }
    (void)read_notice_command(status, body);
    now += 1000;
  }
  (void)azure.farewell();
  return 0;
}
