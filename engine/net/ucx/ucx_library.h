// UCX, opened at run time: Debian's libucx0, the libucx wheels' or a vendor's, whichever the
// system's loader finds (LD_LIBRARY_PATH names others). Compiled against 1.13's headers; its
// interface only grows.
//   Ownership: opened once a process, never closed. Thread: any; what is made with it, one each.
//   Errors:    kNotFound: this machine lacks it, or has an older one; one sentence.
#pragma once

#include <ucp/api/ucp.h>

#include "base/result.h"

namespace swarmline {

// The functions of libucp that this program calls, by their names there.
struct UcxLibrary {
  decltype(&::ucp_config_read) config_read;
  decltype(&::ucp_config_modify) config_modify;
  decltype(&::ucp_config_release) config_release;
  decltype(&::ucp_init_version) init_version;
  decltype(&::ucp_cleanup) cleanup;
  decltype(&::ucp_worker_create) worker_create;
  decltype(&::ucp_worker_destroy) worker_destroy;
  decltype(&::ucp_worker_get_address) worker_get_address;
  decltype(&::ucp_worker_release_address) worker_release_address;
  decltype(&::ucp_worker_get_efd) worker_get_efd;
  decltype(&::ucp_worker_arm) worker_arm;
  decltype(&::ucp_worker_progress) worker_progress;
  decltype(&::ucp_worker_set_am_recv_handler) worker_set_am_recv_handler;
  decltype(&::ucp_ep_create) ep_create;
  decltype(&::ucp_ep_close_nbx) ep_close_nbx;
  decltype(&::ucp_am_send_nbx) am_send_nbx;
  decltype(&::ucp_am_recv_data_nbx) am_recv_data_nbx;
  decltype(&::ucp_am_data_release) am_data_release;
  decltype(&::ucp_request_cancel) request_cancel;
  decltype(&::ucp_request_free) request_free;
  decltype(&::ucp_get_version_string) get_version_string;
  decltype(&::ucs_status_string) status_string;

  static Result<const UcxLibrary*> open();
};

}  // namespace swarmline
