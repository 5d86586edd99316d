#include "tools/measure/meeting_host.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "engine/identity/secrets.h"
#include "pipeline/protocol/protocol_version.h"

namespace swarmline {
namespace {

std::string host_part(const std::string& remote) {
  const auto address = parse_address(remote);
  return address ? address->host : remote;
}

}  // namespace

std::string command_of(std::string_view what) {
  std::string command(what);
  std::ranges::replace(command, '-', ' ');
  return command;
}

MeetingHost::MeetingHost(MeetingHostSpec spec) : spec_(std::move(spec)) {}
MeetingHost::~MeetingHost() = default;

Result<void> MeetingHost::open(
    const Address& listen, const std::function<std::vector<Address>(const Address&)>& reached_at) {
  const Identity own = Identity::make();
  JoinString join{.run = std::string(spec_.what),
                  .run_key = own.hash(),
                  .invite_id = random_secret(kInviteIdBytes),
                  .secret = random_secret(kInviteSecretBytes),
                  .addresses = {}};
  if (!spec_.insecure) guard_ = std::make_shared<MeetingGuard>(own, join);
  network_ = std::make_unique<TcpNetwork>(runtime_, TcpOptions{.guard = guard_});
  const auto bound = network_->listen(
      listen, [this](std::shared_ptr<Connection> connection) { accepted(std::move(connection)); });
  if (!bound) return std::unexpected(bound.error());
  join.addresses = reached_at(*bound);
  if (spec_.insecure) {
    join_text_ = to_string(join.addresses.front());
    return {};
  }
  if (join.addresses.size() > kJoinAddressesMax) join.addresses.resize(kJoinAddressesMax);
  auto text = to_text(join);
  if (!text) return std::unexpected(std::move(text).error());
  join_text_ = std::move(*text);
  return {};
}

Result<void> MeetingHost::gather(const std::function<void(const std::string&)>& say) {
  say_ = say;
  const std::size_t wanted = spec_.members - 1;
  const bool are_here = runtime_.run_until([&] { return guests_.size() == wanted; }, spec_.wait);
  say_ = {};
  is_gathered_ = true;
  if (are_here) return {};
  return fail(ErrorCode::kDeadline,
              fmt::format("{}: {} of {} machines were here after {:.0f} s; see that the others "
                          "reach the address in the line, or wait longer with --wait",
                          command_of(spec_.what), guests_.size() + 1, spec_.members,
                          to_seconds(spec_.wait)));
}

Result<void> MeetingHost::tell(std::size_t guest, MeetingKind kind, std::string meta) {
  if (guests_[guest]->left) return std::unexpected(*guests_[guest]->left);
  guests_[guest]->connection->send({.kind = kind, .meta = std::move(meta)});
  return {};
}

Result<Frame> MeetingHost::hear(std::size_t guest, Duration patience) {
  Visitor& from = *guests_[guest];
  runtime_.run_until([&] { return !from.words.empty() || from.left; }, patience);
  if (!from.words.empty()) {
    Frame frame = std::move(from.words.front());
    from.words.pop_front();
    return frame;
  }
  if (from.left) return std::unexpected(*from.left);
  return fail(ErrorCode::kDeadline,
              fmt::format("{}: {} said nothing for {:.0f} s", command_of(spec_.what), from.host,
                          to_seconds(patience)));
}

void MeetingHost::expect_link(LinkTaker taker) {
  if (link_) link_->close();
  link_.reset();
  taker_ = std::move(taker);
}

std::optional<Error> MeetingHost::who_left() {
  const auto left = [](const auto& guest) { return guest->left.has_value(); };
  runtime_.run_until([&] { return std::ranges::any_of(guests_, left); }, kFarewellTime);
  const auto first = std::ranges::find_if(guests_, left);
  return first == guests_.end() ? std::nullopt : (*first)->left;
}

void MeetingHost::end(const std::string& failed) {
  for (const auto& guest : guests_) {
    if (guest->left) continue;
    guest->connection->send({.kind = kMeetingOver, .meta = encode_answer(failed)});
    guest->connection->close();
  }
  runtime_.run_until(
      [&] { return std::ranges::all_of(guests_, [](const auto& g) { return !!g->left; }); },
      kFarewellTime);
}

void MeetingHost::accepted(std::shared_ptr<Connection> connection) {
  auto as_link = taker_.door != nullptr ? taker_.door->over(connection) : nullptr;
  if (as_link) connection = as_link;
  strangers_.push_back(std::make_unique<Visitor>(Visitor{
      .connection = connection, .as_link = as_link, .host = host_part(connection->remote())}));
  Visitor& visitor = *strangers_.back();
  connection->start(
      {.on_frame = [this, &visitor](Frame frame) { hear_from(visitor, std::move(frame)); },
       .on_closed = [this, &visitor](const Error& error) { on_closed(visitor, error); },
       .on_arriving = {},
       .stranger = bounds_of_words()});
}

void MeetingHost::hear_from(Visitor& visitor, Frame frame) {
  if (visitor.as_link && visitor.as_link == link_) return taker_.on_frame(std::move(frame));
  if (visitor.hello) {
    if (visitor.words.size() == kGuestWordsMax) return visitor.connection->close();
    visitor.words.push_back(std::move(frame));
    return;
  }
  if (frame.kind == kMeetingHello) return greet(visitor, frame);
  if (frame.kind != kLinkBegins || !visitor.as_link || link_ || taker_.door == nullptr ||
      !equal_in_secret(frame.meta, taker_.token))
    return visitor.connection->close();
  visitor.connection->believe({});
  link_ = visitor.as_link;
  taker_.on_link(link_);
}

void MeetingHost::greet(Visitor& visitor, const Frame& frame) {
  auto hello = parse_meeting_hello(frame.meta);
  if (!hello) return visitor.connection->close();
  visitor.hello = std::move(*hello);
  const auto fits = check(visitor);
  visitor.connection->send(
      {.kind = kMeetingAnswer, .meta = encode_answer(fits ? "" : fits.error().what)});
  if (fits) return come(visitor);
  if (say_) say_(fmt::format("{} was refused: {}", visitor.host, fits.error().what));
  visitor.connection->close();
}

Result<void> MeetingHost::check(const Visitor& visitor) const {
  const MeetingHello& hello = *visitor.hello;
  const auto no = [](std::string why) { return fail(ErrorCode::kRefused, std::move(why)); };
  if (hello.format != kMeetingFormat || hello.protocol != kProtocolVersion)
    return no(
        fmt::format("it is swarmline {} there and {} at the end that listens, which don't "
                    "measure together; use one version on all machines",
                    hello.program, spec_.program));
  if (hello.what != spec_.what)
    return no(fmt::format("{} is measured here, not {}; join by the line that is printed here",
                          command_of(spec_.what), command_of(hello.what)));
  if (is_gathered_ || guests_.size() + 1 >= spec_.members)
    return no(
        fmt::format("all {} machines are here already; --members says how many", spec_.members));
  const auto same = std::ranges::find_if(guests_, [&](const auto& guest) {
    return !hello.machine.empty() && guest->hello->machine == hello.machine;
  });
  if (same == guests_.end()) return {};
  return no("another process of that machine takes part already; join from one more machine");
}

void MeetingHost::come(Visitor& visitor) {
  visitor.connection->believe(bounds_of_words());
  const auto at =
      std::ranges::find(strangers_, &visitor, [](const auto& one) { return one.get(); });
  guests_.push_back(std::move(*at));
  strangers_.erase(at);
  if (say_) say_(fmt::format("{} has come, {}", visitor.host, so_many()));
}

void MeetingHost::on_closed(Visitor& visitor, const Error& error) {
  const auto is_it = [&](const auto& one) { return one.get() == &visitor; };
  if (visitor.as_link && visitor.as_link == link_) {
    link_.reset();
    taker_.on_closed(error);
  }
  if (std::erase_if(strangers_, is_it) > 0) return;
  visitor.left =
      Error{ErrorCode::kPeerGone,
            fmt::format("{}: {} has left: {}", command_of(spec_.what), visitor.host, error.what)};
  if (is_gathered_) return;
  const std::string host = visitor.host;
  std::erase_if(guests_, is_it);
  if (say_) say_(fmt::format("{} has left, {}", host, so_many()));
}

std::string MeetingHost::so_many() const {
  return fmt::format("{} of {} machines are here", guests_.size() + 1, spec_.members);
}

}  // namespace swarmline
