// UcxBackend in a build without UCX's headers: never viable, so that nothing else of it is asked.
#include "engine/net/ucx/ucx_backend.h"

namespace swarmline {
namespace {

std::unexpected<Error> absent() {
  return fail(ErrorCode::kNotFound,
              "this program was built without UCX's headers (Debian's libucx-dev)");
}

}  // namespace

UcxBackend::~UcxBackend() = default;

Result<void> UcxBackend::find_library() {
  return absent();
}

Result<void> UcxBackend::is_viable() {
  return absent();
}

std::string UcxBackend::address(const BulkPath&) {
  return {};
}

bool UcxBackend::reaches(const BulkPath&, std::string_view) {
  return false;
}

Result<BulkWay> UcxBackend::await(const BulkPath&, const BulkWay&, Duration, Made) {
  return absent();
}

void UcxBackend::meet(const BulkPath&, const BulkWay&, Duration, Made on_made) {
  runtime_.post([on_made = std::move(on_made)] { on_made(absent()); });
}

}  // namespace swarmline
