// How the slices of an all-reduce are cut into chunks. Pure.
//   Units:  elements; chunks are numbered within their slice, and all of them, slice after slice.
//   Errors: none; a slice or chunk that does not exist is the caller's to check.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace swarmline {

class SliceChunks {
 public:
  struct Place {
    std::uint32_t slice = 0;
    std::uint32_t chunk = 0;  // within it
    bool operator==(const Place&) const = default;
  };

  // `bounds`: slices + 1, ascending; fewer than 2^32 chunks. `chunk_elements`: > 0, of each but a
  // slice's last.
  SliceChunks(std::vector<std::uint64_t> bounds, std::uint64_t chunk_elements);

  std::uint32_t slices() const { return static_cast<std::uint32_t>(bounds_.size() - 1); }
  std::uint32_t in(std::uint32_t slice) const { return before_[slice + 1] - before_[slice]; }
  std::uint32_t total() const { return before_.back(); }
  std::uint64_t first(const Place& at) const {
    return bounds_[at.slice] + at.chunk * chunk_elements_;
  }
  std::uint64_t elements(const Place& at) const;
  std::uint32_t number(const Place& at) const { return before_[at.slice] + at.chunk; }
  Place place(std::uint32_t number) const;
  // In the order of their use: a chunk of each slice, then the next of each. `at`: {0, 0} or what
  // this returned; the next one from there on that exists. False: there is none.
  bool from(Place& at) const;
  bool after(Place& at) const;

 private:
  std::vector<std::uint64_t> bounds_;
  std::uint64_t chunk_elements_;
  std::vector<std::uint32_t> before_;  // chunks of the slices before
  std::uint32_t most_ = 0;             // of a slice
};

}  // namespace swarmline
