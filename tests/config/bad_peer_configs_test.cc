// Every mistake a peer's config can hold, with the sentence it gets.

#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "engine/config/load.h"

namespace swarmline {
namespace {

struct PeerMistake {
  std::string_view name;
  std::string text;
  std::string_view sentence;  // its beginning
};
void PrintTo(const PeerMistake& bad, std::ostream* out) {
  *out << bad.name;
}

std::vector<PeerMistake> peer_mistakes() {
  constexpr auto in_peer = [](std::string_view name, std::string_view text,
                              std::string_view sentence) {
    return PeerMistake{name, "config_version = 1\n[peer]\n" + std::string(text), sentence};
  };
  return {
      {"NoVersion", "[peer]\n", "t:1: config_version: found none, expected 1; "},
      {"RunSection", "config_version = 1\n[run]\nsteps = 1\n",
       "t:2: [run]: found an unknown section, expected one of "
       "peer; "},
      in_peer("UnknownKey", "thread = 3\n",
              "t:3: peer.thread: found an unknown key, expected a key of [peer]; did you mean "
              "threads?"),
      in_peer("Device", "device = \"gpu\"\n",
              "t:3: peer.device: found \"gpu\", expected \"cpu\", \"cuda\" or \"cuda:N\"; "),
      in_peer("DeviceNumber", "device = \"cuda:\"\n",
              "t:3: peer.device: found \"cuda:\", expected "),
      in_peer("NoThreads", "threads = 0\n",
              "t:3: peer.threads: found 0, expected an integer from 1 to 1024; "),
      in_peer("Jitter", "emulate = {jitter = 2}\n",
              "t:3: peer.emulate.jitter: found 2, expected a number from 0 to 1; "),
      in_peer("EmulateAsNumber", "emulate = 3\n",
              "t:3: peer.emulate: found an unknown key, expected a key of [peer]; "),
      in_peer("NegativePrice", "price = -1\n",
              "t:3: peer.price: found -1, expected a finite number of at least 0; "),
      in_peer("MemoryUnit", "memory_bytes = \"16X\"\n",
              "t:3: peer.memory_bytes: found \"16X\", expected an integer of at least 0, or text "
              "with K, M, G or T behind it; write for example memory_bytes = \"16G\""),
      in_peer("MemoryInParts", "memory_bytes = \"0.0001K\"\n",
              "t:3: peer.memory_bytes: found \"0.0001K\", expected an integer of at least 0"),
      in_peer("TooMuchMemory", "memory_bytes = \"99999999T\"\n",
              "t:3: peer.memory_bytes: found \"99999999T\", expected an integer of at least 0"),
      in_peer("NegativeBandwidth", "bandwidth = \"-1G\"\n",
              "t:3: peer.bandwidth: found \"-1G\", expected a finite number of at least 0"),
      in_peer("CacheTooSmall", "fetch_data_cache_mb = \"8M\"\n",
              "t:3: peer.fetch_data_cache_mb: found \"8M\", expected an integer from 16 to"),
      in_peer("PriceHasNoUnit", "price = \"1K\"\n",
              "t:3: peer.price: found \"1K\", expected a finite number of at least 0; "),
      in_peer("ListenNowhere", "listen = \"nowhere\"\n",
              "t:3: peer.listen: found \"nowhere\", expected HOST:PORT "),
      in_peer("Advertise", "advertise = \"nowhere\"\n",
              "t:3: peer.advertise: found \"nowhere\", expected HOST:PORT "),
  };
}

class BadPeerConfig : public testing::TestWithParam<PeerMistake> {};

TEST_P(BadPeerConfig, GetsOneSentence) {
  const Result<PeerConfig> config = peer_config_from_text(GetParam().text, "t");
  ASSERT_FALSE(config) << to_toml(*config);
  EXPECT_EQ(config.error().code, ErrorCode::kUserMistake);
  EXPECT_EQ(config.error().what.substr(0, GetParam().sentence.size()), GetParam().sentence)
      << "the whole sentence: " << config.error().what;
}

INSTANTIATE_TEST_SUITE_P(peer_mistakes, BadPeerConfig, testing::ValuesIn(peer_mistakes()),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace swarmline
