#include "base/marks.h"

#include <map>

namespace swarmline {

namespace {
// Marks register before main(), in no particular order.
std::map<std::string_view, const Mark*>& registry() {
  static std::map<std::string_view, const Mark*> marks;
  return marks;
}
}  // namespace

Mark::Mark(std::string_view name) : name_(name) {
  registry().emplace(name_, this);
}

std::vector<const Mark*> Mark::all() {
  std::vector<const Mark*> marks;
  for (const auto& [name, mark] : registry()) marks.push_back(mark);
  return marks;
}

const Mark* Mark::find(std::string_view name) {
  const auto found = registry().find(name);
  return found == registry().end() ? nullptr : found->second;
}

}  // namespace swarmline
