#include "node/admission/invites.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "engine/identity/secrets.h"
#include "engine/store/json_value.h"
#include "engine/store/json_writer.h"
#include "node/admission/join_string.h"

namespace swarmline {
namespace {

constexpr std::string_view kProofLabel = "swarmline join 1\n";

std::unexpected<Error> no_line(std::string_view why) {
  return fail(ErrorCode::kCorrupt, fmt::format("a line of the invites {}", why));
}

// "1 h", "90 min", for people.
std::string ago(double seconds) {
  if (seconds < 120) return fmt::format("{:.0f} s", seconds);
  if (seconds < 2 * 3600) return fmt::format("{:.0f} min", seconds / 60);
  return fmt::format("{:.0f} h", seconds / 3600);
}

JsonWriter begin_line() {
  JsonWriter writer;
  writer.begin_object().member("format", kInvitesFormat);
  return writer;
}

std::string line_to_admit(const Invite& by, const KeyHash& key, double at) {
  JsonWriter line = begin_line();
  line.member("admitted", to_string(key)).member("by", to_hex(as_bytes(by.id)));
  line.member("at", at).end_object();
  return line.take();
}

std::string line_that_revokes(const Invite& invite, double at) {
  JsonWriter line = begin_line();
  line.member("revoked", to_hex(as_bytes(invite.id))).member("at", at).end_object();
  return line.take();
}

}  // namespace

std::string_view to_string(InviteScope scope) {
  switch (scope) {
    case InviteScope::kPeer:
      return "peer";
    case InviteScope::kObserver:
      return "observer";
    case InviteScope::kAdmin:
      return "admin";
  }
  return "";
}

std::optional<InviteScope> parse_invite_scope(std::string_view text) {
  for (const InviteScope scope : {InviteScope::kPeer, InviteScope::kObserver, InviteScope::kAdmin})
    if (text == to_string(scope)) return scope;
  return std::nullopt;
}

bool Invite::is_open(double now) const {
  return !revoked && now <= expires && (uses_max == 0 || admitted.size() < uses_max);
}

Invite make_invite(InviteScope scope, double now, double life_seconds, std::uint64_t uses_max) {
  return {.id = random_secret(kInviteIdBytes),
          .secret = random_secret(kInviteSecretBytes),
          .scope = scope,
          .made = now,
          .expires = now + life_seconds,
          .uses_max = uses_max,
          .revoked = std::nullopt,
          .admitted = {},
          .admitted_last = 0};
}

std::optional<double> Invite::over_since(double now) const {
  std::optional<double> since;
  const auto over = [&since](double when) { since = std::min(since.value_or(when), when); };
  if (revoked) over(*revoked);
  if (now > expires) over(expires);
  if (uses_max != 0 && admitted.size() >= uses_max) over(admitted_last);
  return since;
}

std::string invite_proof(std::string_view secret, std::string_view binding) {
  return as_string(hmac_sha256(secret, std::string(kProofLabel) + std::string(binding)));
}

// ---- Who may come in ----------------------------------------------------------------------------

Result<InviteBook::Admitted> InviteBook::admit(std::string_view id, std::string_view proof,
                                               std::string_view binding, const KeyHash& key,
                                               double now) const {
  const Invite* invite = find(id);
  // Nobody learns which ids there are: a wrong secret is as good as none.
  if (invite == nullptr || !equal_in_secret(proof, invite_proof(invite->secret, binding)))
    return fail(ErrorCode::kRefused,
                "its invite is not one of this run; ask for a join string of this run");
  if (invite->admitted.contains(key)) return Admitted{.scope = invite->scope, .line = ""};
  if (invite->revoked)
    return fail(ErrorCode::kRefused, "its invite was revoked; ask for another one");
  if (now > invite->expires + kClockSkewSeconds)
    return fail(ErrorCode::kRefused,
                fmt::format("its invite expired {} ago; ask for another one (swarmline invite)",
                            ago(now - invite->expires)));
  if (now + kClockSkewSeconds < invite->made)
    return fail(ErrorCode::kRefused,
                fmt::format("its invite is of a time to come, in {}: some clock is wrong",
                            ago(invite->made - now)));
  if (invite->uses_max != 0 && invite->admitted.size() >= invite->uses_max)
    return fail(ErrorCode::kRefused,
                fmt::format("its invite was for {} and they have come; ask for another one",
                            invite->uses_max));
  return Admitted{.scope = invite->scope, .line = line_to_admit(*invite, key, now)};
}

const Invite* InviteBook::find(std::string_view id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &invites_[found->second];
}

const Invite* InviteBook::newest_open(InviteScope scope, double now) const {
  const Invite* newest = nullptr;
  for (const Invite& invite : invites_)
    if (invite.scope == scope && invite.uses_max == 0 && invite.is_open(now) &&
        (newest == nullptr || invite.expires > newest->expires))
      newest = &invite;
  return newest;
}

// ---- Lines --------------------------------------------------------------------------------------

std::string InviteBook::line_of(const Invite& invite) {
  JsonWriter line = begin_line();
  line.member("invite", to_hex(as_bytes(invite.id)))
      .member("secret", to_hex(as_bytes(invite.secret)))
      .member("scope", to_string(invite.scope))
      .member("made", invite.made)
      .member("expires", invite.expires)
      .member("uses", invite.uses_max)
      .end_object();
  return line.take();
}

Result<std::string> InviteBook::line_to_revoke(std::string_view id, double now) const {
  const Invite* invite = find(id);
  if (invite == nullptr)
    return fail(ErrorCode::kUserMistake,
                fmt::format("there is no invite {}; \"swarmline invite list\" shows them",
                            to_hex(as_bytes(id))));
  if (invite->revoked) return std::string();
  return line_that_revokes(*invite, now);
}

namespace {

// As many of the oldest as are over for good.
std::set<std::string_view> over_for_good(const std::vector<Invite>& invites, double now) {
  std::vector<std::pair<double, std::string_view>> over;
  for (const Invite& invite : invites)
    if (const auto since = invite.over_since(now)) over.emplace_back(*since, invite.id);
  std::ranges::sort(over);
  std::set<std::string_view> ids;
  for (std::size_t i = 0; i < over.size(); ++i)
    if (over[i].first + kInviteKeptSeconds < now || over.size() - i > kInvitesOverMax)
      ids.insert(over[i].second);
  return ids;
}

}  // namespace

Result<std::string> InviteBook::with(const Invite& another, double now) const {
  const auto gone = over_for_good(invites_, now);
  if (invites_.size() - gone.size() >= kInvitesMax)
    return fail(ErrorCode::kRefused,
                fmt::format("there are {} invites already; revoke some (swarmline invite revoke)",
                            kInvitesMax));
  std::string lines;
  for (const Invite& invite : invites_) {
    if (gone.contains(invite.id)) continue;
    lines += line_of(invite) + "\n";
    for (const KeyHash& key : invite.admitted)
      lines += line_to_admit(invite, key, invite.admitted_last) + "\n";
    if (invite.revoked) lines += line_that_revokes(invite, *invite.revoked) + "\n";
  }
  return lines + line_of(another) + "\n";
}

Result<InviteBook> InviteBook::parse(std::string_view lines) {
  InviteBook book;
  while (!lines.empty()) {
    const std::size_t end = lines.find('\n');
    if (end == std::string_view::npos) break;  // half written, by somebody who died: it is none
    SWARMLINE_TRY(book.take(lines.substr(0, end)));
    lines.remove_prefix(end + 1);
  }
  return book;
}

Result<void> InviteBook::take(std::string_view line) {
  const auto json = parse_json(line);
  if (!json) return no_line("is no JSON");
  const double format = (*json)["format"].number_or(0);
  if (format > kInvitesFormat)
    return fail(
        ErrorCode::kIncompatible,
        fmt::format("the invites have format {}, and this swarmline knows formats up to {}: "
                    "use the newer swarmline",
                    format, kInvitesFormat));
  const double at = (*json)["at"].number_or(0);
  const auto known = [&](std::string_view name) -> Invite* {
    const auto id = from_hex((*json)[name].string, kInviteIdBytes);
    const auto found = id ? by_id_.find(*id) : by_id_.end();
    return found == by_id_.end() ? nullptr : &invites_[found->second];
  };
  if ((*json)["revoked"].kind == JsonValue::Kind::kString) {
    Invite* const invite = known("revoked");
    if (invite == nullptr) return no_line("revokes an invite that there is not");
    if (!invite->revoked) invite->revoked = at;
    return {};
  }
  if ((*json)["admitted"].kind == JsonValue::Kind::kString) {
    Invite* const invite = known("by");
    const auto key = parse_key_hash((*json)["admitted"].string);
    if (invite == nullptr || !key) return no_line("admits by an invite that there is not");
    invite->admitted.insert(*key);
    invite->admitted_last = std::max(invite->admitted_last, at);
    return {};
  }
  const auto id = from_hex((*json)["invite"].string, kInviteIdBytes);
  const auto secret = from_hex((*json)["secret"].string, kInviteSecretBytes);
  const auto scope = parse_invite_scope((*json)["scope"].string);
  if (!id || !secret || !scope || by_id_.contains(*id) || !(*json)["expires"].is_number())
    return no_line("is no invite");
  if (invites_.size() >= kInvitesMax) return no_line("is one too many");
  by_id_.emplace(*id, invites_.size());
  invites_.push_back({.id = *id,
                      .secret = *secret,
                      .scope = *scope,
                      .made = (*json)["made"].number_or(0),
                      .expires = (*json)["expires"].number,
                      .uses_max = (*json)["uses"].count(),
                      .revoked = std::nullopt,
                      .admitted = {},
                      .admitted_last = 0});
  return {};
}

}  // namespace swarmline
