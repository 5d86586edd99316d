#include "base/result.h"

namespace swarmline {

const char* to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::kUserMistake:
      return "user mistake";
    case ErrorCode::kDeadline:
      return "deadline";
    case ErrorCode::kStopped:
      return "stopped";
    case ErrorCode::kPeerGone:
      return "peer gone";
    case ErrorCode::kRefused:
      return "refused";
    case ErrorCode::kCorrupt:
      return "corrupt";
    case ErrorCode::kIncompatible:
      return "incompatible";
    case ErrorCode::kNotFound:
      return "not found";
    case ErrorCode::kIo:
      return "i/o";
    case ErrorCode::kDevice:
      return "device";
    case ErrorCode::kOutOfMemory:
      return "out of memory";
    case ErrorCode::kDeviceLost:
      return "device lost";
  }
  return "unknown";
}

}  // namespace swarmline
