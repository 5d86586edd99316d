// What each end takes of the others before it reads it: frames by kind, and what may wait unsent.
// Pure.
//   Strangers: whoever has connected and not said who it is. No payload, Limits::
//              stranger_meta_bytes_max of meta; of a Hello, which may say what its peer holds,
//              Limits::hello_meta_bytes_max.
//   Others:    payload only with what carries tensors or pieces of states; lists may be long, and
//              come in pieces then (engine/net/message_pieces.h): Limits::hello_meta_bytes_max are
//              32 bytes for each microbatch of the largest step, or a hash of each piece of a
//              stage's state of 496 GiB. All else has Limits::control_meta_bytes_max.
//   Thread:    any.
#pragma once

#include "engine/net/network.h"

namespace swarmline {

// At a coordinator's door, and at a peer's.
ConnectionBounds bounds_before_hello();
ConnectionBounds bounds_before_link_hello();
// At a coordinator, of a peer that has said hello, or a tool that has proved that it may steer.
ConnectionBounds bounds_of_peer();
// At a peer: of its coordinator, and of other peers.
ConnectionBounds bounds_of_coordinator();
ConnectionBounds bounds_of_mate();
// At a tool.
ConnectionBounds bounds_of_answers();

}  // namespace swarmline
