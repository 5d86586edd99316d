// For backends that speak Asio (engine/net/tcp): the io_context behind an AsioRuntime, and the
// scope each of their handlers runs in so that slow ones are counted. Not for logic. Thread:
// control thread.
#pragma once

#include <boost/asio/io_context.hpp>

#include "engine/runtime/asio_runtime.h"

namespace swarmline {

boost::asio::io_context& io_context_of(AsioRuntime& runtime);

class HandlerScope {
 public:
  explicit HandlerScope(AsioRuntime::Impl& impl);
  explicit HandlerScope(AsioRuntime& runtime) : HandlerScope(runtime.impl()) {}
  ~HandlerScope();
  HandlerScope(const HandlerScope&) = delete;
  HandlerScope& operator=(const HandlerScope&) = delete;

 private:
  AsioRuntime::Impl& impl_;
  Instant start_;
};

}  // namespace swarmline
