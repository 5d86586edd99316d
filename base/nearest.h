// "Did you mean": the known word nearest to what somebody typed.
#pragma once

#include <span>
#include <string_view>

namespace swarmline {

// Levenshtein distance in bytes, with neighbours swapped counting as one.
std::size_t edit_distance(std::string_view a, std::string_view b);

// The candidate with the least distance (the first of equals), or empty when none is near enough to
// be meant: at most a third of the word's length, and at least one, may differ.
std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates);

}  // namespace swarmline
