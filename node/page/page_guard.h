// Who may look at a run's page: a request is refused, or not. Pure, but for the tokens it is given.
//   What:   on a loopback address Host must name this machine (a page of another site whose name
//           was turned to 127.0.0.1 names itself), and other users of the machine lack the token.
//           What a page of another site asks for is refused. Files of the page itself hold nothing
//           of the run: they take no token.
//   Tokens: the run's, or an observer's or admin's invite while it is open, as token_of() writes
//           it. Compared in a time that tells nothing of them.
//   Thread: control thread.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "engine/net/http/http_message.h"
#include "node/admission/invites.h"

namespace swarmline {

class PageGuard {
 public:
  // `token`: of the run's owner, not empty.
  PageGuard(bool loopback, std::string token) : loopback_(loopback), token_(std::move(token)) {}
  void take_invites(InviteBook invites) { invites_ = std::move(invites); }

  // `now`: seconds since 1970.
  std::optional<HttpAnswer> refuse(const HttpRequest& request, bool needs_token, double now) const;

 private:
  bool is_good(std::string_view token, double now) const;
  bool loopback_;
  std::string token_;
  InviteBook invites_;
};

// An invite as a token of the page: its id and its secret, in hex.
std::string token_of(const Invite& invite);

}  // namespace swarmline
