#include "engine/store/etcd_tls.h"

#include <boost/asio/buffer.hpp>
#include <boost/asio/ssl/context.hpp>
#include <fmt/format.h>

#include "engine/store/files.h"
#include "engine/store/secret_file.h"

namespace swarmline {
namespace {

using SslContext = boost::asio::ssl::context;
using Taken = boost::system::error_code;

Error mistake(const std::string& path, const std::string& what) {
  return {ErrorCode::kUserMistake, fmt::format("{}: {}", path, what)};
}

Result<std::string> read_pem(const std::string& path) {
  auto text = read_text_file(path, kPemBytesMax);
  if (!text) return std::unexpected(Error{ErrorCode::kUserMistake, text.error().what});
  return text;
}

}  // namespace

Result<EtcdTls> load_etcd_tls(const EtcdTlsFiles& files) {
  if (files.authority.empty()) return EtcdTls();
  auto tls = std::make_shared<SslContext>(SslContext::tls_client);
  tls->set_options(SslContext::no_tlsv1 | SslContext::no_tlsv1_1);
  tls->set_verify_mode(boost::asio::ssl::verify_peer);
  Taken error;
  const auto authority = read_pem(files.authority);
  if (!authority) return std::unexpected(authority.error());
  tls->add_certificate_authority(boost::asio::buffer(*authority), error);
  if (error)
    return std::unexpected(mistake(files.authority, "found no certificate of an authority in PEM"));
  if (files.certificate.empty()) return tls;
  const auto certificate = read_pem(files.certificate);
  if (!certificate) return std::unexpected(certificate.error());
  tls->use_certificate_chain(boost::asio::buffer(*certificate), error);
  if (error) return std::unexpected(mistake(files.certificate, "found no certificate in PEM"));
  const auto key = read_secret_file(files.key, kPemBytesMax);
  if (!key) return std::unexpected(Error{ErrorCode::kUserMistake, key.error().what});
  tls->use_private_key(boost::asio::buffer(*key), SslContext::pem, error);
  if (error)
    return std::unexpected(
        mistake(files.key, fmt::format("found no key in PEM that fits {}", files.certificate)));
  return tls;
}

}  // namespace swarmline
