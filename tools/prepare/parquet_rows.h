// The texts of a Parquet file's column as records (row_records.h). A Python with pyarrow reads the
// file, in a process of its own: the C++ interface of that wheel's libraries differs from version
// to version.
//   Thread:  one. The reader ends with the source.
//   Errors:  kUserMistake, one sentence: no Python, no pyarrow, no such column, one that holds no
//            text, a damaged file. kIo.
//   Bounds:  the reader has ROWS_AT_ONCE rows in memory (parquet_reader.py), the
//            pipe kPipeBytes, and of what it complains kComplaintBytesMax are read.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "tools/prepare/byte_source.h"

namespace swarmline {

struct ParquetReading {
  std::string python = "python3";  // a program's name or path
  std::string column = "text";
};

struct ParquetFrom {
  std::uint64_t row = 0;     // the first that is wanted
  std::uint64_t offset = 0;  // bytes of the records before it
};

// `bytes`: of the file.
Result<std::unique_ptr<ByteSource>> open_parquet_rows(const std::string& path, std::uint64_t bytes,
                                                      const ParquetReading& reading,
                                                      ParquetFrom from);

}  // namespace swarmline
