// The files of the page, built into the program (node/page/files). Thread: any; they never change.
#pragma once

#include <string_view>

namespace swarmline {

struct PageFile {
  std::string_view name;  // "index.html"
  std::string_view content_type;
  std::string_view bytes;
};

// Null: there is none of that name.
const PageFile* find_page_file(std::string_view name);

}  // namespace swarmline
