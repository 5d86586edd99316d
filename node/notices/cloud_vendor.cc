#include "node/notices/cloud_vendor.h"

#include <string>
#include <string_view>

#include "engine/store/files.h"

namespace swarmline {
namespace {

constexpr std::size_t kFileBytesMax = 256;
constexpr std::string_view kAzureAssetTag = "7783-7084-3265-9085-8269-3286-77";

std::string line_of(const std::filesystem::path& file) {
  const auto text = read_text_file(file.string(), kFileBytesMax);
  return text ? text->substr(0, text->find('\n')) : std::string();
}

}  // namespace

NoticeSource detect_notices(const std::filesystem::path& firmware) {
  if (line_of(firmware / "chassis_asset_tag") == kAzureAssetTag) return NoticeSource::kAzure;
  const std::string vendor = line_of(firmware / "sys_vendor");
  if (vendor == "Amazon EC2" || line_of(firmware / "bios_vendor") == "Amazon EC2")
    return NoticeSource::kAws;
  if (line_of(firmware / "product_name") == "Google Compute Engine") return NoticeSource::kGcp;
  return NoticeSource::kNone;
}

}  // namespace swarmline
