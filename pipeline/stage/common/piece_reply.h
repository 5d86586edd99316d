// The answer to one piece request, to whoever of that peer asked: that piece of the bytes that are
// held, or that they are not.
// Thread: any; pure.
#pragma once

#include "base/bytes.h"
#include "engine/net/frame.h"
#include "pipeline/protocol/messages.pb.h"

namespace swarmline {

// `held`: all bytes of what the request names; empty: nothing is held of it.
Frame piece_reply(const wire::PieceRequest& request, BytesView held);
// `piece`: the bytes that were asked for.
Frame reply_with(const wire::PieceRequest& request, const SharedBytes& piece);

}  // namespace swarmline
