#include "node/page/page_guard.h"

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "engine/config/link_security.h"
#include "engine/identity/secrets.h"
#include "node/admission/join_string.h"

namespace swarmline {
namespace {

// Without its port and the brackets of IPv6.
std::string_view host_of(std::string_view authority) {
  if (authority.starts_with('[')) {
    const std::size_t end = authority.find(']');
    return end == authority.npos ? std::string_view() : authority.substr(1, end - 1);
  }
  return authority.substr(0, std::min(authority.find(':'), authority.size()));
}

// A page's own requests name where it came from.
bool is_own_origin(const HttpRequest& request) {
  const std::string_view origin = request.origin;
  const std::size_t slashes = origin.find("://");
  return slashes != origin.npos && !request.host.empty() &&
         origin.substr(slashes + 3) == request.host;
}

bool comes_from_elsewhere(const HttpRequest& request) {
  if (!request.origin.empty() && !is_own_origin(request)) return true;
  return request.fetch_site == "cross-site" || request.fetch_site == "same-site";
}

bool equals(std::string_view a, std::string_view b) {
  return a.size() == b.size() && equal_in_secret(a, b);
}

}  // namespace

std::string token_of(const Invite& invite) {
  return to_hex(as_bytes(invite.id)) + to_hex(as_bytes(invite.secret));
}

bool PageGuard::is_good(std::string_view token, double now) const {
  if (equals(token, token_)) return true;
  const auto id = from_hex(token.substr(0, 2 * kInviteIdBytes), kInviteIdBytes);
  const Invite* invite = id ? invites_.find(*id) : nullptr;
  return invite != nullptr && invite->scope != InviteScope::kPeer && invite->is_open(now) &&
         equals(token, token_of(*invite));
}

std::optional<HttpAnswer> PageGuard::refuse(const HttpRequest& request, bool needs_token,
                                            double now) const {
  if (loopback_ && !is_loopback(host_of(request.host)))
    return http_text(403,
                     "this page is for its own machine: open it as http://127.0.0.1:PORT/, or "
                     "through an SSH tunnel to that");
  if (!needs_token) return std::nullopt;
  if (comes_from_elsewhere(request)) return http_text(403, "a page of another site asks for this");
  const std::string_view token =
      request.bearer.empty() ? request.query_value("token") : std::string_view(request.bearer);
  if (is_good(token, now)) return std::nullopt;
  HttpAnswer refusal = http_text(
      401,
      token.empty()
          ? "expected a token: the run's is in page.token in its folder, and in the URL that "
            "\"swarmline status\" prints"
          : "that token is not good; the run's is in page.token in its folder, and in the URL that "
            "\"swarmline status\" prints");
  refusal.headers["WWW-Authenticate"] = "Bearer realm=\"swarmline\"";
  return refusal;
}

}  // namespace swarmline
