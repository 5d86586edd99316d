// How far the journal has come: how many records were given to it, and how many of them are
//                               durable.
//   Thread: control thread; plain numbers, counted by RunJournal.
#pragma once

#include <cstdint>

namespace swarmline {

struct JournalProgress {
  std::uint64_t given = 0;
  std::uint64_t durable = 0;  // <= given: the first ones
};

}  // namespace swarmline
