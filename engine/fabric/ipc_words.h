// The words of a group whose members map each other's memory: an offer for each transfer, from who
// sends; and, when all of a turn's have been copied, that they were taken.
//   Errors: nothing: it is no word.
//   Bounds: kIpcTransfersMax transfers from one member to another in an exchange.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>

#include "base/bytes.h"
#include "engine/fabric/ipc_api.h"

namespace swarmline {

inline constexpr std::uint32_t kIpcTransfersMax = 1024;

struct IpcOffer {
  std::uint64_t turn = 0;
  std::uint32_t index = 0, count = 0;  // index < count: transfers of that turn to that member
  std::uint64_t bytes = 0;             // > 0
  SharedMemory memory;
};

struct IpcTaken {
  std::uint64_t turn = 0;
};

Buffer to_word(const IpcOffer& offer);
Buffer to_word(const IpcTaken& taken);
std::optional<std::variant<IpcOffer, IpcTaken>> parse_ipc_word(BytesView word);

}  // namespace swarmline
