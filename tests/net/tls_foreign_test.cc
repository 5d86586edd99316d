// What OpenSSL's own record layer and ours say to each other: bulk, changed keys, padding, ends.
#include <csignal>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include "base/rng.h"
#include "engine/net/tcp/tcp_network.h"
#include "tests/net/open_guard.h"
#include "tests/net/raw_socket.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

// A link that OpenSSL alone has made, and on which it was admitted. Blocking, in a thread.
class ForeignLink {
 public:
  explicit ForeignLink(const Address& address, const char* ciphers = nullptr)
      : context_(SSL_CTX_new(TLS_client_method())), socket_(RawSocket::connect(address)) {
    sigset_t pipe;  // OpenSSL's own sockets raise it
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
    const Identity key = Identity::make();
    const std::string der = key.self_signed_certificate();
    const std::string protocol("\x0bswarmline/1");
    SSL_CTX_use_certificate_ASN1(context_, static_cast<int>(der.size()),
                                 reinterpret_cast<const unsigned char*>(der.data()));
    SSL_CTX_use_PrivateKey(context_, key.handle());
    SSL_CTX_set_alpn_protos(context_, reinterpret_cast<const unsigned char*>(protocol.data()),
                            static_cast<unsigned int>(protocol.size()));
    if (ciphers != nullptr) SSL_CTX_set_ciphersuites(context_, ciphers);
    link_ = SSL_new(context_);
    SSL_set_fd(link_, socket_.fd());
    EXPECT_EQ(SSL_connect(link_), 1);
    write(std::string("\0\5hello", 7));
    EXPECT_EQ(read(11), std::string("\0\0\x08listener", 11)) << "it was not admitted";
  }
  ~ForeignLink() {
    SSL_free(link_);
    SSL_CTX_free(context_);
    ERR_clear_error();
  }
  void write(const std::string& bytes) {
    EXPECT_EQ(SSL_write(link_, bytes.data(), static_cast<int>(bytes.size())),
              static_cast<int>(bytes.size()));
  }
  std::string read(std::size_t bytes) {
    std::string got(bytes, '\0');
    for (std::size_t at = 0; at < bytes;) {
      const int more = SSL_read(link_, got.data() + at, static_cast<int>(bytes - at));
      if (more <= 0) return {};
      at += static_cast<std::size_t>(more);
    }
    return got;
  }
  SSL* link() { return link_; }

 private:
  SSL_CTX* context_;
  RawSocket socket_;
  SSL* link_ = nullptr;
};

std::string frame_of(const std::string& payload) {
  const Frame frame{
      .kind = 1, .meta = "m", .payload = {SharedBytes(Buffer::copy_of(as_bytes(payload)))}};
  const auto header = encode_header(frame.header());
  return std::string(reinterpret_cast<const char*>(header.data()), header.size()) + "m" + payload;
}

class TlsForeign : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto bound = server_.listen({"127.0.0.1", 0}, [this](auto connection) {
      connection->start(
          {.on_frame = [connection](Frame frame) { connection->send(std::move(frame)); },
           .on_closed = [this](Error error) { closed_ = std::move(error); }});
    });
    ASSERT_TRUE(bound.has_value());
    address_ = *bound;
  }
  // Until the link it makes has ended.
  void run(const std::function<void()>& foreign) {
    std::thread thread(foreign);
    EXPECT_TRUE(runtime_.run_until([this] { return closed_.has_value(); }, 20s));
    thread.join();
  }
  void echoes(ForeignLink& link, const std::string& payload) {
    const std::string frame = frame_of(payload);
    link.write(frame);
    EXPECT_EQ(link.read(frame.size()), frame);
  }

  AsioRuntime runtime_;
  TcpNetwork server_{runtime_, {.guard = std::make_shared<OpenGuard>()}};
  Address address_;
  std::optional<Error> closed_;
};

std::string text(std::size_t size) {
  Rng rng(size);
  std::string made(size, '\0');
  for (char& c : made) c = static_cast<char>(rng.next_u32());
  return made;
}

TEST_F(TlsForeign, HearsWhatItSaid) {
  run([this] {
    ForeignLink link(address_);
    for (const std::size_t size : {0, 1, 100, 16383, 300'000, 2'000'000}) echoes(link, text(size));
  });
  EXPECT_EQ(closed_->code, ErrorCode::kPeerGone);
  EXPECT_EQ(server_.counters().bad_streams, 0U);
}

TEST_F(TlsForeign, MayTakeTheOtherCipher) {
  run([this] {
    ForeignLink link(address_, "TLS_CHACHA20_POLY1305_SHA256");
    for (const std::size_t size : {1, 300'000}) echoes(link, text(size));
  });
  EXPECT_EQ(server_.counters().bad_streams, 0U);
}

TEST_F(TlsForeign, GoesOnToOtherKeysAndHasUsFollow) {
  run([this] {
    ForeignLink link(address_);
    for (int i = 0; i < 6; ++i) {
      echoes(link, text(200'000));
      EXPECT_EQ(SSL_key_update(link.link(), i % 2 == 0 ? SSL_KEY_UPDATE_REQUESTED
                                                       : SSL_KEY_UPDATE_NOT_REQUESTED),
                1);
    }
    echoes(link, text(200'000));
  });
  EXPECT_EQ(server_.counters().bad_streams, 0U);
}

TEST_F(TlsForeign, MayPadItsRecords) {
  run([this] {
    ForeignLink link(address_);
    SSL_set_block_padding(link.link(), 1000);
    for (const std::size_t size : {1, 999, 5000, 100'000}) echoes(link, text(size));
  });
  EXPECT_EQ(server_.counters().bad_streams, 0U);
}

TEST_F(TlsForeign, EndsByTlssOwnFarewell) {
  run([this] {
    ForeignLink link(address_);
    echoes(link, "last");
    SSL_shutdown(link.link());
    EXPECT_EQ(link.read(1), "") << "it closes, too";
  });
  EXPECT_EQ(closed_->code, ErrorCode::kPeerGone);
  EXPECT_EQ(server_.counters().bad_streams, 0U);
}

TEST_F(TlsForeign, ThatSaysNothingForEverIsClosed) {
  run([this] {
    ForeignLink link(address_);
    bool taken = true;
    for (int i = 0; i < 100 && taken; ++i)
      taken = SSL_key_update(link.link(), SSL_KEY_UPDATE_NOT_REQUESTED) == 1 &&
              SSL_do_handshake(link.link()) == 1;
    EXPECT_EQ(link.read(1), "");
  });
  EXPECT_EQ(closed_->code, ErrorCode::kCorrupt);
  EXPECT_EQ(server_.counters().bad_streams, 1U);
}

}  // namespace
}  // namespace swarmline
