// How two ends of a link of shared memory meet over a Unix socket, one step of it each: a secret
// one way, the memory's descriptor the other way, one byte back. For the files of this folder.
//   Thread: control thread; no call waits.
//   Errors: kCorrupt for what is none of that, kPeerGone for an end of the stream; nothing: it has
//           not come yet.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/net/shm/shm_segment.h"

namespace swarmline {

// Whether the process at the other end of the socket is of this one's user.
bool is_of_own_user(int socket);
bool say_secret(int socket, std::string_view secret);
Result<std::optional<std::string>> hear_secret(int socket);
bool hand_over(int socket, const ShmSegment& segment);
Result<std::unique_ptr<ShmSegment>> take_over(int socket);  // null: not yet
bool say_taken(int socket);
Result<bool> hear_taken(int socket);

// The name of an abstract socket of ours, drawn anew; and whether a text is such a name.
std::string new_socket_name();
bool is_socket_name(std::string_view name);
// The same for all processes that can meet, and for no others.
std::string own_machine();

}  // namespace swarmline
