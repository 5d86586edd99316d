# Third parties from the distribution, each behind a target swarmline::<name>, so that the rest of the
# build names none of their particulars. All are SYSTEM: their headers give no warnings.

find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)

# swarmline_external(<name> [LIBRARIES lib...] [DEFINITIONS def...]): wraps found libraries.
function(swarmline_external name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "LIBRARIES;DEFINITIONS")
  add_library(swarmline_external_${name} INTERFACE)
  add_library(swarmline::${name} ALIAS swarmline_external_${name})
  target_link_libraries(swarmline_external_${name} INTERFACE ${arg_LIBRARIES})
  target_compile_definitions(swarmline_external_${name} INTERFACE ${arg_DEFINITIONS})
endfunction()

# swarmline_pkg_config(<name> <module> <debian package>): the same from a pkg-config module.
function(swarmline_pkg_config name module package)
  pkg_check_modules(${name}_pkg IMPORTED_TARGET GLOBAL ${module})
  if(NOT ${name}_pkg_FOUND)
    message(FATAL_ERROR "${module} was not found: run scripts/bootstrap (Debian package ${package}).")
  endif()
  swarmline_external(${name} LIBRARIES PkgConfig::${name}_pkg)
endfunction()

set(swarmline_bootstrap_hint "run scripts/bootstrap, which installs what is missing.")
macro(swarmline_require what found package)
  if(NOT ${found})
    message(FATAL_ERROR "${what} was not found (Debian package ${package}): ${swarmline_bootstrap_hint}")
  endif()
endmacro()

find_package(Boost 1.81 QUIET)
if(NOT Boost_FOUND)
  message(FATAL_ERROR "Boost >= 1.81 was not found (Debian package libboost1.81-dev; it cannot stand "
    "beside libboost-dev 1.74): ${swarmline_bootstrap_hint}")
endif()
swarmline_external(boost LIBRARIES Boost::headers Threads::Threads
  DEFINITIONS BOOST_ASIO_NO_DEPRECATED BOOST_ERROR_CODE_HEADER_ONLY BOOST_ASIO_SEPARATE_COMPILATION
              BOOST_BEAST_SEPARATE_COMPILATION)
# Each file that uses Asio or Beast would compile what is no template of it anew.
add_library(swarmline_boost_parts STATIC ${CMAKE_SOURCE_DIR}/cmake/boost_parts.cc
  ${CMAKE_SOURCE_DIR}/cmake/boost_ssl_parts.cc)
target_link_libraries(swarmline_boost_parts PRIVATE Boost::headers OpenSSL::SSL OpenSSL::Crypto)
target_compile_definitions(swarmline_boost_parts
  PRIVATE $<TARGET_PROPERTY:swarmline_external_boost,INTERFACE_COMPILE_DEFINITIONS>)
target_link_libraries(swarmline_external_boost INTERFACE swarmline_boost_parts)

find_package(Protobuf 3.21 QUIET)
swarmline_require("Protobuf >= 3.21" Protobuf_FOUND "libprotobuf-dev, protobuf-compiler")
swarmline_external(protobuf LIBRARIES protobuf::libprotobuf)

find_package(fmt QUIET)
swarmline_require("fmt" fmt_FOUND libfmt-dev)
swarmline_external(fmt LIBRARIES fmt::fmt)
find_package(spdlog QUIET)
swarmline_require("spdlog" spdlog_FOUND libspdlog-dev)
swarmline_external(spdlog LIBRARIES spdlog::spdlog fmt::fmt)
find_package(CLI11 QUIET)
swarmline_require("CLI11" CLI11_FOUND libcli11-dev)
swarmline_external(cli11 LIBRARIES CLI11::CLI11)
find_package(OpenSSL 3 QUIET)
swarmline_require("OpenSSL >= 3" OPENSSL_FOUND libssl-dev)
swarmline_external(openssl LIBRARIES OpenSSL::Crypto OpenSSL::SSL)

swarmline_pkg_config(tomlplusplus tomlplusplus libtomlplusplus-dev)
swarmline_pkg_config(sqlite3 sqlite3 libsqlite3-dev)
swarmline_pkg_config(xxhash libxxhash libxxhash-dev)
swarmline_pkg_config(hwy libhwy libhwy-dev)
swarmline_pkg_config(prometheus prometheus-cpp-core prometheus-cpp-dev)
swarmline_pkg_config(pcre2 libpcre2-8 libpcre2-dev)
# Opened at run time (engine/tokenizer/sentencepiece_library.h).
find_path(swarmline_sentencepiece sentencepiece_processor.h)
swarmline_require("SentencePiece" swarmline_sentencepiece libsentencepiece-dev)
swarmline_external(sentencepiece_headers LIBRARIES ${CMAKE_DL_LIBS})
# Opened at run time (engine/net/ucx/ucx_library.h); a build without its headers does without it.
find_path(swarmline_ucx ucp/api/ucp.h)
if(swarmline_ucx)
  swarmline_external(ucx_headers LIBRARIES ${CMAKE_DL_LIBS})
else()
  message(STATUS "UCX's headers were not found (Debian package libucx-dev): this build does without UCX")
endif()
swarmline_pkg_config(utf8proc libutf8proc libutf8proc-dev)
swarmline_pkg_config(zlib zlib zlib1g-dev)
swarmline_pkg_config(zstd libzstd libzstd-dev)

find_package(GTest QUIET)
swarmline_require("GoogleTest" GTest_FOUND "libgtest-dev, libgmock-dev")
swarmline_external(gtest LIBRARIES GTest::gmock GTest::gtest)
swarmline_external(gtest_main LIBRARIES GTest::gmock GTest::gtest_main)
find_package(benchmark QUIET)
swarmline_require("Google Benchmark" benchmark_FOUND libbenchmark-dev)
swarmline_external(benchmark LIBRARIES benchmark::benchmark benchmark::benchmark_main)

# swarmline_proto(NAME <n> PROTOS <file>...): generates C++ from .proto files of the current folder
# into the build tree and makes the library swarmline::<n>. Protos import each other, and C++ includes
# the result, by path from the repository's root: "engine/net/control.pb.h". No layer: a proto library
# may be a DEP of any.
function(swarmline_proto)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME" "PROTOS;DEPS")
  set(out_dir ${CMAKE_BINARY_DIR}/generated)
  file(MAKE_DIRECTORY ${out_dir})
  set(generated)
  foreach(proto IN LISTS arg_PROTOS)
    cmake_path(ABSOLUTE_PATH proto NORMALIZE)
    cmake_path(RELATIVE_PATH proto BASE_DIRECTORY ${CMAKE_SOURCE_DIR} OUTPUT_VARIABLE relative)
    string(REGEX REPLACE "\\.proto$" "" stem ${relative})
    add_custom_command(
      OUTPUT ${out_dir}/${stem}.pb.cc ${out_dir}/${stem}.pb.h
      COMMAND protobuf::protoc --proto_path=${CMAKE_SOURCE_DIR} --cpp_out=${out_dir} ${relative}
      WORKING_DIRECTORY ${CMAKE_SOURCE_DIR}
      DEPENDS ${proto} protobuf::protoc
      VERBATIM)
    list(APPEND generated ${out_dir}/${stem}.pb.cc ${out_dir}/${stem}.pb.h)
  endforeach()
  add_library(swarmline_${arg_NAME} STATIC ${generated})
  add_library(swarmline::${arg_NAME} ALIAS swarmline_${arg_NAME})
  target_include_directories(swarmline_${arg_NAME} SYSTEM PUBLIC ${out_dir})
  target_compile_options(swarmline_${arg_NAME} PRIVATE -w)
  target_link_libraries(swarmline_${arg_NAME} PUBLIC swarmline::protobuf)
  foreach(dep IN LISTS arg_DEPS)
    target_link_libraries(swarmline_${arg_NAME} PUBLIC swarmline::${dep})
  endforeach()
  cmake_path(RELATIVE_PATH CMAKE_CURRENT_SOURCE_DIR BASE_DIRECTORY ${CMAKE_SOURCE_DIR} OUTPUT_VARIABLE folder)
  swarmline_layer_of(layer ${folder})
  set_target_properties(swarmline_${arg_NAME} PROPERTIES SWARMLINE_LAYER ${layer})
endfunction()
