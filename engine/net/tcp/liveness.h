// When a connection whose other end says nothing is over. For the files of this folder.
//   Errors: a refused option costs time, not correctness. Thread: any.
#pragma once

namespace swarmline {

// Bytes that nobody acknowledges for TcpNetwork::kSilentPeerMax end it; so does, where there are
// none, a silence of what the kernel asks.
void watch_liveness(int socket);

// The same for any option of a socket: a refused one is told to the log.
void set_socket_option(int socket, int level, int option, int value);

}  // namespace swarmline
