// How an etcd cluster is spoken to over HTTPS: whose certificates are believed, and what is shown.
//   What:   TLS 1.2 or 1.3; the member's certificate must lead to the authority and name the host
//           that was dialled. Files are PEM.
//   Errors: kUserMistake, with the file and what is wrong with it; a key that other users may read
//           is one (secret_file.h).
//   Thread: any; what is loaded is not changed. Bounds: kPemBytesMax a file.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"

namespace boost::asio::ssl {
class context;
}

namespace swarmline {

struct EtcdTlsFiles {
  std::string authority;    // empty: in clear text
  std::string certificate;  // of this client, its chain behind it; empty: none is shown
  std::string key;          // of that
};

using EtcdTls = std::shared_ptr<boost::asio::ssl::context>;  // null: in clear text
inline constexpr std::uint64_t kPemBytesMax = 1 << 20;
Result<EtcdTls> load_etcd_tls(const EtcdTlsFiles& files);

}  // namespace swarmline
