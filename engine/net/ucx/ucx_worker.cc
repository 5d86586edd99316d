#include "engine/net/ucx/ucx_worker.h"

#include <cstring>
#include <utility>

#include <boost/asio/post.hpp>
#include <fmt/format.h>

#include "engine/runtime/asio_access.h"

namespace swarmline {
namespace asio = boost::asio;
namespace {

std::string version_prefix(const UcxLibrary& ucx) {
  return fmt::format("UCX {}\n", ucx.get_version_string());
}

}  // namespace

bool UcxWorker::is_address(std::string_view address) {
  const auto library = UcxLibrary::open();
  if (!library) return false;
  const std::string prefix = version_prefix(**library);
  return address.size() > prefix.size() && address.starts_with(prefix);
}

std::string_view UcxWorker::without_version(std::string_view address) {
  return address.substr(address.find('\n') + 1);
}

UcxWorker::UcxWorker(AsioRuntime& runtime, const UcxLibrary& ucx)
    : runtime_(runtime), ucx_(ucx), descriptor_(io_context_of(runtime)) {}

Result<std::shared_ptr<UcxWorker>> UcxWorker::make(AsioRuntime& runtime,
                                                   const std::string& transports,
                                                   const std::string& devices) {
  const auto library = UcxLibrary::open();
  if (!library) return std::unexpected(library.error());
  std::shared_ptr<UcxWorker> made(new UcxWorker(runtime, **library));
  SWARMLINE_TRY(made->open(transports, devices));
  made->kick();
  return made;
}

Result<void> UcxWorker::open(const std::string& transports, const std::string& devices) {
  const auto failed = [this](const char* what, ucs_status_t status) {
    return fail(ErrorCode::kIo, fmt::format("UCX can't be used ({}: {})", what, say(status)));
  };
  ucp_config_t* config = nullptr;
  ucs_status_t status = ucx_.config_read(nullptr, nullptr, &config);
  if (status != UCS_OK) return failed("config", status);
  if (status == UCS_OK) status = ucx_.config_modify(config, "TLS", transports.c_str());
  if (status == UCS_OK) status = ucx_.config_modify(config, "NET_DEVICES", devices.c_str());
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  if (status == UCS_OK)
    status = ucx_.init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &context_);
  ucx_.config_release(config);
  if (status != UCS_OK) return failed("context", status);
  ucp_worker_params_t shape{};
  shape.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_EVENTS;
  shape.thread_mode = UCS_THREAD_MODE_SINGLE;
  shape.events = UCP_WAKEUP_RX | UCP_WAKEUP_TX;
  status = ucx_.worker_create(context_, &shape, &worker_);
  if (status != UCS_OK) return failed("worker", status);
  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                       UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = kUcxMessageId;
  handler.flags = UCP_AM_FLAG_WHOLE_MSG;
  handler.cb = &UcxWorker::heard;
  handler.arg = this;
  status = ucx_.worker_set_am_recv_handler(worker_, &handler);
  if (status != UCS_OK) return failed("messages", status);
  int descriptor = -1;
  status = ucx_.worker_get_efd(worker_, &descriptor);
  if (status != UCS_OK) return failed("wake-ups", status);
  descriptor_.assign(descriptor);
  ucp_address_t* address = nullptr;
  size_t bytes = 0;
  status = ucx_.worker_get_address(worker_, &address, &bytes);
  if (status != UCS_OK) return failed("address", status);
  address_ = version_prefix(ucx_);
  address_.append(reinterpret_cast<const char*>(address), bytes);
  ucx_.worker_release_address(worker_, address);
  return {};
}

UcxWorker::~UcxWorker() {
  if (descriptor_.is_open()) descriptor_.release();  // it is UCX's
  if (worker_ != nullptr) ucx_.worker_destroy(worker_);
  if (context_ != nullptr) ucx_.cleanup(context_);
}

ucs_status_t UcxWorker::heard(void* self, const void* header, size_t header_bytes, void* data,
                              size_t bytes, const ucp_am_recv_param_t* param) {
  UcxArrival arrival{.head = {}, .data = data, .bytes = bytes};
  arrival.is_promised = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
  arrival.may_be_kept = arrival.is_promised || (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_DATA) != 0;
  if (header_bytes != sizeof(UcxHead)) return UCS_OK;
  std::memcpy(&arrival.head, header, sizeof(UcxHead));
  auto& worker = *static_cast<UcxWorker*>(self);
  const auto ear = worker.ears_.find(std::string_view(arrival.head.token, kUcxTokenBytes));
  if (ear == worker.ears_.end()) return UCS_OK;
  const Hear hear = ear->second;  // it may be forgotten meanwhile
  return hear(arrival) ? UCS_INPROGRESS : UCS_OK;
}

void UcxWorker::kick() {
  if (std::exchange(kicked_, true)) return;
  asio::post(descriptor_.get_executor(), [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self) return;
    self->kicked_ = false;
    HandlerScope scope(self->runtime_);
    self->progress();
  });
}

// UCX may be waited for only when it says that nothing is left to do.
void UcxWorker::progress() {
  for (unsigned i = 0; i < kUcxProgressMax; ++i)
    if (ucx_.worker_progress(worker_) == 0 && ucx_.worker_arm(worker_) != UCS_ERR_BUSY)
      return wait();
  kick();
}

void UcxWorker::wind_up() {
  for (unsigned i = 0; i < kUcxProgressMax && ucx_.worker_progress(worker_) != 0; ++i) {
  }
}

void UcxWorker::wait() {
  if (std::exchange(waits_, true)) return;
  descriptor_.async_wait(asio::posix::stream_descriptor::wait_read,
                         [weak = weak_from_this()](const boost::system::error_code& error) {
                           const auto self = weak.lock();
                           if (!self || error) return;
                           self->waits_ = false;
                           HandlerScope scope(self->runtime_);
                           self->progress();
                         });
}

}  // namespace swarmline
