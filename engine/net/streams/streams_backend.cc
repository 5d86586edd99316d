#include "engine/net/streams/streams_backend.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "engine/identity/secrets.h"
#include "engine/net/streams/streams_link.h"

namespace swarmline {
namespace {

constexpr std::uint32_t kStreamsMin = 2;  // one is what there is

std::optional<std::uint32_t> number_in(std::string_view text, std::uint32_t most) {
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number > most)
    return std::nullopt;
  return number;
}

std::optional<std::uint32_t> streams_in(std::string_view text) {
  const auto streams = number_in(text, kBulkStreamsMax);
  return streams && *streams >= kStreamsMin ? streams : std::nullopt;
}

// The end that dials, until all are there.
struct Dialling {
  std::shared_ptr<StreamsLink> link;
  std::uint32_t wanted = 0;
  BulkBackend::Made on_made;

  void fail_with(Error error) {
    const BulkBackend::Made once = std::exchange(on_made, {});
    if (!once) return;
    link->close();
    once(std::unexpected(std::move(error)));
  }
  void add(std::shared_ptr<Connection> connection, Frame hello) {
    link->add(std::move(connection), std::move(hello));
    if (link->streams() < wanted) return;
    if (const BulkBackend::Made once = std::exchange(on_made, {}))
      once(std::shared_ptr<BulkLink>(link));
  }
};

}  // namespace

struct StreamsBackend::State {
  struct Awaited {
    std::shared_ptr<StreamsLink> link;
    std::uint32_t wanted = 0;
    Made on_made;
    TimerId timer;
  };

  Runtime& runtime;
  Network& network;
  std::map<std::string, Awaited, std::less<>> awaited = {};  // by their secrets

  void give_up(const std::string& secret) {
    auto late = awaited.extract(secret);
    if (late.empty()) return;
    late.mapped().link->close();
    late.mapped().on_made(fail(
        ErrorCode::kDeadline,
        fmt::format("{} of {} streams came", late.mapped().link->streams(), late.mapped().wanted)));
  }
};

StreamsBackend::StreamsBackend(Runtime& runtime, Network& network)
    : state_(std::make_shared<State>(State{.runtime = runtime, .network = network})) {}

StreamsBackend::~StreamsBackend() {
  for (const auto& [secret, one] : state_->awaited) state_->runtime.cancel(one.timer);
}

std::string StreamsBackend::address(const BulkPath& path) {
  return path.streams < kStreamsMin ? std::string() : std::to_string(path.streams);
}

bool StreamsBackend::reaches(const BulkPath& path, std::string_view address) {
  return path.streams >= kStreamsMin && path.stranger_kind != 0 && streams_in(address).has_value();
}

Result<BulkWay> StreamsBackend::await(const BulkPath& path, const BulkWay& offered,
                                      Duration timeout, Made on_made) {
  if (state_->awaited.size() >= kStreamsAwaitedMax)
    return fail(ErrorCode::kRefused, "too many links of several streams are being made");
  const std::uint32_t wanted = std::min(path.streams, *streams_in(offered.address));
  const std::string secret = random_secret(kBulkSecretBytes);
  state_->awaited[secret] = {
      .link = std::make_shared<StreamsLink>(state_->runtime),
      .wanted = wanted,
      .on_made = std::move(on_made),
      .timer = state_->runtime.call_after(timeout, [weak = std::weak_ptr(state_), secret] {
        if (const auto state = weak.lock()) state->give_up(secret);
      })};
  return BulkWay{.backend = std::string(name()),
                 .address = fmt::format("{} {}", wanted, path.stranger_kind),
                 .secret = secret};
}

bool StreamsBackend::take_stream(std::string_view secret,
                                 const std::shared_ptr<Connection>& stream) {
  const auto found = state_->awaited.find(secret);
  if (found == state_->awaited.end()) return false;
  found->second.link->add(stream, std::nullopt);
  if (found->second.link->streams() < found->second.wanted) return true;
  const State::Awaited whole = std::move(state_->awaited.extract(found).mapped());
  state_->runtime.cancel(whole.timer);
  whole.on_made(std::shared_ptr<BulkLink>(whole.link));
  return true;
}

void StreamsBackend::meet(const BulkPath& path, const BulkWay& answered, Duration timeout,
                          Made on_made) {
  const auto dialling =
      std::make_shared<Dialling>(Dialling{.link = std::make_shared<StreamsLink>(state_->runtime),
                                          .wanted = 0,
                                          .on_made = std::move(on_made)});
  const std::string_view text = answered.address;
  const std::size_t gap = std::min(text.find(' '), text.size());
  const auto streams = streams_in(text.substr(0, gap));
  const auto kind = number_in(text.substr(std::min(gap + 1, text.size())), UINT16_MAX);
  if (!streams || *streams > path.streams || !kind || *kind == 0) {
    state_->runtime.post([dialling] {
      dialling->fail_with({ErrorCode::kCorrupt, "its answer to an offer of streams is none"});
    });
    return;
  }
  dialling->wanted = *streams;
  const Frame hello{.kind = static_cast<std::uint16_t>(*kind),
                    .flags = kFrameFlagBulkStream,
                    .meta = answered.secret};
  for (std::uint32_t i = 0; i < *streams; ++i)
    state_->network.connect(
        path.other, timeout, [dialling, hello, key = path.other_key](auto made) {
          if (!made) return dialling->fail_with(std::move(made).error());
          const bool is_same_end = (*made)->peer_key() == key;
          if (dialling->on_made && is_same_end) return dialling->add(std::move(*made), hello);
          (*made)->start({.on_frame = [](const Frame&) {}, .on_closed = [](const Error&) {}});
          (*made)->close();
          if (!is_same_end)
            dialling->fail_with({ErrorCode::kPeerGone, "another process answers at its address"});
        });
}

}  // namespace swarmline
