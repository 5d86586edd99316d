#include "engine/net/ucx/ucx_library.h"

#include <dlfcn.h>

#include <fmt/format.h>

namespace swarmline {
namespace {

constexpr const char* kLibrary = "libucp.so.0";
constexpr unsigned kMajor = 1, kMinor = 13;

template <typename Function>
bool find(void* handle, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(handle, name));
  return function != nullptr;
}

bool find_all(void* handle, UcxLibrary& ucx) {
  return find(handle, "ucp_config_read", ucx.config_read) &&
         find(handle, "ucp_config_modify", ucx.config_modify) &&
         find(handle, "ucp_config_release", ucx.config_release) &&
         find(handle, "ucp_init_version", ucx.init_version) &&
         find(handle, "ucp_cleanup", ucx.cleanup) &&
         find(handle, "ucp_worker_create", ucx.worker_create) &&
         find(handle, "ucp_worker_destroy", ucx.worker_destroy) &&
         find(handle, "ucp_worker_get_address", ucx.worker_get_address) &&
         find(handle, "ucp_worker_release_address", ucx.worker_release_address) &&
         find(handle, "ucp_worker_get_efd", ucx.worker_get_efd) &&
         find(handle, "ucp_worker_arm", ucx.worker_arm) &&
         find(handle, "ucp_worker_progress", ucx.worker_progress) &&
         find(handle, "ucp_worker_set_am_recv_handler", ucx.worker_set_am_recv_handler) &&
         find(handle, "ucp_ep_create", ucx.ep_create) &&
         find(handle, "ucp_ep_close_nbx", ucx.ep_close_nbx) &&
         find(handle, "ucp_am_send_nbx", ucx.am_send_nbx) &&
         find(handle, "ucp_am_recv_data_nbx", ucx.am_recv_data_nbx) &&
         find(handle, "ucp_am_data_release", ucx.am_data_release) &&
         find(handle, "ucp_request_cancel", ucx.request_cancel) &&
         find(handle, "ucp_request_free", ucx.request_free) &&
         find(handle, "ucp_get_version_string", ucx.get_version_string) &&
         find(handle, "ucs_status_string", ucx.status_string);
}

}  // namespace

Result<const UcxLibrary*> UcxLibrary::open() {
  static const Result<UcxLibrary> opened = []() -> Result<UcxLibrary> {
    void* const handle = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr)
      return fail(ErrorCode::kNotFound,
                  fmt::format("this machine lacks UCX ({}); install Debian's libucx0, or the wheel "
                              "libucx-cu13 with LD_LIBRARY_PATH at its libraries",
                              ::dlerror()));
    const auto version =
        reinterpret_cast<decltype(&::ucp_get_version)>(::dlsym(handle, "ucp_get_version"));
    unsigned major = 0, minor = 0, release = 0;
    if (version != nullptr) version(&major, &minor, &release);
    UcxLibrary library{};
    if (major != kMajor || minor < kMinor || !find_all(handle, library))
      return fail(ErrorCode::kNotFound, fmt::format("{} is version {}.{}, at least {}.{} is needed",
                                                    kLibrary, major, minor, kMajor, kMinor));
    return library;
  }();
  if (!opened) return std::unexpected(opened.error());
  return &*opened;
}

}  // namespace swarmline
