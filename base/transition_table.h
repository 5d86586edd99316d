// The states of something that lives, and which may follow which: one table that code, pages and
// tests share.
//   What:    `allows(from, to)`, names for people, and the rows it was made of.
//   States:  an enum whose values are 0, 1, ... kStates - 1.
//   Errors:  a table that names a step twice, or a state that is none, does not compile.
//   Thread:  constants.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>

namespace swarmline {

template <typename State>
class StateSet {
 public:
  static constexpr std::size_t kStatesMax = 32;

  constexpr StateSet() = default;
  constexpr StateSet(std::initializer_list<State> states) {
    for (const State state : states) bits_ |= bit(state);
  }
  constexpr bool has(State state) const { return (bits_ & bit(state)) != 0; }
  constexpr bool overlaps(const StateSet& other) const { return (bits_ & other.bits_) != 0; }
  constexpr bool is_within(std::size_t states) const {
    return (std::uint64_t{bits_} >> states) == 0;
  }
  constexpr void add(const StateSet& other) { bits_ |= other.bits_; }

 private:
  static constexpr std::uint32_t bit(State state) {
    return std::uint32_t{1} << static_cast<std::size_t>(state);
  }
  std::uint32_t bits_ = 0;
};

template <typename State>
struct Transitions {
  State from;
  StateSet<State> to;
  std::string_view when = {};  // for people
};

template <typename State, std::size_t kStates>
class TransitionTable {
 public:
  using Names = std::array<std::string_view, kStates>;
  static_assert(kStates <= StateSet<State>::kStatesMax);

  // `rows` are static. A state without one is an end.
  consteval TransitionTable(const Names& names, std::span<const Transitions<State>> rows)
      : names_(names), rows_(rows) {
    for (const std::string_view name : names)
      if (name.empty()) throw "a state without a name";
    for (const Transitions<State>& row : rows) {
      StateSet<State>& after = after_.at(static_cast<std::size_t>(row.from));
      if (after.overlaps(row.to)) throw "a step that is there twice";
      if (!row.to.is_within(kStates)) throw "a state that is none";
      after.add(row.to);
    }
  }
  constexpr bool allows(State from, State to) const {
    return after_[static_cast<std::size_t>(from)].has(to);
  }
  constexpr std::string_view name(State state) const {
    return names_[static_cast<std::size_t>(state)];
  }
  constexpr std::span<const Transitions<State>> rows() const { return rows_; }
  static constexpr std::array<State, kStates> states() {
    std::array<State, kStates> all{};
    for (std::size_t i = 0; i < kStates; ++i) all[i] = static_cast<State>(i);
    return all;
  }

 private:
  Names names_;
  std::span<const Transitions<State>> rows_;
  std::array<StateSet<State>, kStates> after_{};
};

}  // namespace swarmline
