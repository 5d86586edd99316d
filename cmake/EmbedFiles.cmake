# cmake -P: writes a C++ file OUT that holds FILES (of FOLDER, separated by commas) as PageFile of
# node/page/page_files.h.
string(REPLACE "," ";" FILES "${FILES}")
set(types_html "text/html; charset=utf-8")
set(types_js "text/javascript; charset=utf-8")
set(types_css "text/css; charset=utf-8")
set(types_svg "image/svg+xml")
set(arrays "")
set(rows "")
foreach(name IN LISTS FILES)
  file(READ ${FOLDER}/${name} hex HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," bytes "${hex}")
  string(REGEX MATCH "[^.]+$" ending ${name})
  string(MAKE_C_IDENTIFIER ${name} id)
  string(APPEND arrays "constexpr char k_${id}[] = {${bytes}};\n")
  string(APPEND rows "    {\"${name}\", \"${types_${ending}}\", {k_${id}, sizeof k_${id}}},\n")
endforeach()
file(WRITE ${OUT} "// Made by cmake/EmbedFiles.cmake.
#include \"node/page/page_files.h\"

namespace swarmline {
namespace {

${arrays}
constexpr PageFile kFiles[] = {
${rows}};

}  // namespace

const PageFile* find_page_file(std::string_view name) {
  for (const PageFile& file : kFiles)
    if (file.name == name) return &file;
  return nullptr;
}

}  // namespace swarmline
")
