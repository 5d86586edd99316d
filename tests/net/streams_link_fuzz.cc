// Whatever the other end says over the streams of a link: no payload is received that was not asked
// for, each piece that was taken is answered once, and the link ends at most once, with kCorrupt.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "engine/net/streams/streams_link.h"
#include "sim/doors/sim_runtime.h"

namespace swarmline {
namespace {

constexpr std::size_t kStreams = 3;
constexpr std::size_t kWordBytes = 6;

class SpokenConnection final : public Connection {
 public:
  void start(Handlers handlers) override { handlers_ = std::move(handlers); }
  void believe(const ConnectionBounds& bounds) override { room_ = bounds.room; }
  void send(Frame frame) override { answers += frame.kind == 2 ? 1 : 0; }
  void close() override { handlers_ = {}; }
  std::uint64_t unsent_bytes() const override { return 0; }
  Counters counters() const override { return {}; }
  std::string remote() const override { return "the other end"; }

  // As a network delivers it: nothing beyond the bounds.
  void say(Frame frame) const {
    const FrameRoom room = room_(frame.kind);
    const Handlers handlers = handlers_;
    if (frame.meta.size() <= room.meta_bytes_max &&
        frame.payload_bytes() <= room.payload_bytes_max && handlers.on_frame)
      handlers.on_frame(std::move(frame));
  }

  std::size_t answers = 0;

 private:
  Handlers handlers_;
  FrameRoom (*room_)(std::uint16_t) = nullptr;
};

std::string as_meta(std::uint64_t number, std::size_t bytes) {
  std::string meta(bytes, '\0');
  std::memcpy(meta.data(), &number, std::min(bytes, sizeof(number)));
  return meta;
}

// Sizes at and around those that matter.
std::uint64_t size_of(std::uint8_t pieces, std::uint8_t rest) {
  return (pieces % 5) * kStreamPieceBytes + rest;
}

struct Spoken {
  SimRuntime runtime{1};
  Runtime& node = runtime.node(SimNodeId{1});
  std::shared_ptr<StreamsLink> link = std::make_shared<StreamsLink>(node);
  std::vector<std::shared_ptr<SpokenConnection>> streams;
  SharedBytes zeros{Buffer::zeroed(kStreamPieceBytes + 256)};
  std::size_t asked = 0, received = 0, said = 0, sent = 0;
  int closed = 0;

  Spoken() {
    for (std::size_t i = 0; i < kStreams; ++i) {
      streams.push_back(std::make_shared<SpokenConnection>());
      link->add(streams.back(), std::nullopt);
    }
    link->start({.on_arriving = [](std::uint64_t) {},
                 .on_received = [this](const Buffer&) { SWARMLINE_CHECK(++received <= asked); },
                 .on_sent = [this] { SWARMLINE_CHECK(sent-- > 0); },
                 .on_closed =
                     [this](const Error& error) {
                       SWARMLINE_CHECK(++closed == 1 && error.code == ErrorCode::kCorrupt);
                     }});
  }
  void turn() {
    bool is_over = false;
    node.post([&is_over] { is_over = true; });
    runtime.run_until([&] { return is_over; }, std::chrono::seconds(1));
  }
  void hear(const std::array<std::uint8_t, kWordBytes>& word) {
    const SpokenConnection& stream = *streams[word[1] % kStreams];
    switch (word[0] % 5) {
      case 0:
        ++asked;
        return link->receive(Buffer(1 + size_of(word[2], word[3])));
      case 1:
        if (closed == 0) ++sent;
        return link->send({zeros.slice(0, 1 + word[3])});
      case 2: {
        ++said;
        const std::uint64_t bytes =
            std::min<std::uint64_t>(size_of(word[4], word[5]), zeros.size());
        return stream.say({.kind = 1,
                           .request = word[2] % 8U,
                           .meta = as_meta(size_of(word[3], word[2] / 8U % 2U), 8),
                           .payload = {zeros.slice(0, bytes)}});
      }
      case 3:
        return stream.say({.kind = 2, .meta = as_meta(size_of(word[2], word[3]), word[4] % 10U)});
      default:
        return turn();
    }
  }
  std::size_t answers() const {
    std::size_t all = 0;
    for (const auto& stream : streams) all += stream->answers;
    return all;
  }
};

}  // namespace
}  // namespace swarmline

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace swarmline;
  Spoken spoken;
  for (std::size_t at = 0; at + kWordBytes <= size; at += kWordBytes) {
    std::array<std::uint8_t, kWordBytes> word{};
    std::memcpy(word.data(), data + at, kWordBytes);
    spoken.hear(word);
  }
  spoken.turn();
  SWARMLINE_CHECK(spoken.answers() <= spoken.said);
  spoken.link->close();
  return 0;
}
