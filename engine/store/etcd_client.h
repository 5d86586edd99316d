// Speaks to an etcd cluster (3.4 and later) through its JSON gateway, over HTTP or HTTPS.
//   Ownership: one connection, kept while it works; owns its sockets.
//   Thread:    one. Calls block for at most `deadline`, and try one endpoint after the other.
//   Errors:    kIo: nobody answered in time, the handshake failed, or etcd could not do it (no
//              leader, its quota is full, too many requests, ...): its sentence. kRefused: the
//              lease is not there any more.
//   Bounds:    kAnswerBytesMax an answer.
//   Source:    etcd 3.4, gRPC gateway and API reference v3.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json/value.hpp>

#include "base/result.h"
#include "base/units.h"
#include "engine/store/etcd_tls.h"

namespace swarmline {

struct EtcdEndpoint {
  std::string host;
  std::string port;
};

struct EtcdEntry {
  std::string key;
  std::string value;
};

// What a transaction does if its condition holds; all of it or nothing.
class EtcdWrites {
 public:
  EtcdWrites& put(const std::string& key, const std::string& value, std::int64_t lease = 0);
  EtcdWrites& remove(const std::string& key);
  // Every key in [first, end).
  EtcdWrites& remove_range(const std::string& first, const std::string& end);
  boost::json::array take() { return std::move(requests_); }

 private:
  boost::json::array requests_;
};

class EtcdClient {
 public:
  static constexpr std::size_t kAnswerBytesMax = 16 << 20;

  EtcdClient(std::vector<EtcdEndpoint> endpoints, Duration deadline, EtcdTls tls = nullptr);
  ~EtcdClient();
  EtcdClient(const EtcdClient&) = delete;
  EtcdClient& operator=(const EtcdClient&) = delete;

  struct Outcome {
    bool succeeded = false;     // the condition held
    std::int64_t revision = 0;  // of the store, after it
  };
  // Does `writes` if `key` was created at `create_revision` (0: is not there). May be sent twice
  // when an answer is lost: writes must be such that this changes nothing.
  Result<Outcome> write_if(const std::string& key, std::int64_t create_revision, EtcdWrites writes);

  struct Found {
    std::vector<EtcdEntry> entries;
    std::int64_t create_revision = 0;  // of the first
    std::int64_t lease = 0;            // that the first goes with
    bool more = false;
  };
  // Keys in [first, end), at most `count_max`, in rising or falling order; `end` empty: one key.
  Result<Found> range(const std::string& first, const std::string& end, std::size_t count_max,
                      bool newest_first = false);

  Result<std::int64_t> grant_lease(Duration time);
  Result<void> keep_alive(std::int64_t lease);  // kRefused: it is over
  Result<void> revoke_lease(std::int64_t lease);
  // What was overwritten before that revision is forgotten, in the whole store.
  Result<void> compact(std::int64_t revision);

 private:
  Result<boost::json::value> call(std::string_view path, const boost::json::value& request);

  class Connection;
  std::vector<EtcdEndpoint> endpoints_;
  std::size_t current_ = 0;
  Duration deadline_;
  EtcdTls tls_;
  std::unique_ptr<Connection> connection_;
};

// The key behind every key that begins with `prefix`.
std::string etcd_prefix_end(std::string prefix);

}  // namespace swarmline
