#include "engine/checkpoint/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/check.h"
#include "base/limits.h"
#include "engine/store/json_writer.h"
#include "engine/store/strict_json.h"

namespace swarmline {

namespace {

static_assert(std::endian::native == std::endian::little, "safetensors are little-endian");

namespace json = boost::json;

constexpr std::size_t kLengthBytes = sizeof(std::uint64_t);
constexpr const char* kMetadataKey = "__metadata__";

// Everything of one file that is refused, with the file's name before it.
class HeaderParser {
 public:
  HeaderParser(BytesView file, const std::string& path) : file_(file), path_(path) {}

  Result<SafetensorsHeader> run() {
    Result<std::string_view> text = header_text();
    if (!text) return std::unexpected(text.error());
    const Result<json::value> root = parse_strict_json(*text, path_ + ": the header");
    if (!root) return std::unexpected(root.error());
    if (!root->is_object()) return corrupt("the header is no JSON object");
    for (const json::key_value_pair& entry : root->get_object()) {
      const std::string name = entry.key();
      if (name == kMetadataKey) {
        SWARMLINE_TRY(read_metadata(entry.value()));
      } else {
        SWARMLINE_TRY(read_tensor(name, entry.value()));
      }
    }
    SWARMLINE_TRY(check_coverage());
    return std::move(header_);
  }

 private:
  std::unexpected<Error> corrupt(std::string what) const {
    return fail(ErrorCode::kCorrupt, fmt::format("{}: {}", path_, what));
  }
  std::unexpected<Error> corrupt_tensor(const std::string& name, std::string_view what) const {
    return corrupt(fmt::format("tensor \"{}\" {}", name, what));
  }

  Result<std::string_view> header_text() {
    if (file_.size() < kLengthBytes) {
      return corrupt(fmt::format("{} bytes are no safetensors file", file_.size()));
    }
    std::uint64_t length = 0;
    std::memcpy(&length, file_.data(), kLengthBytes);
    if (length > Limits::safetensors_header_bytes_max) {
      return corrupt(fmt::format("a header of {} bytes; at most {} are allowed", length,
                                 Limits::safetensors_header_bytes_max));
    }
    if (length > file_.size() - kLengthBytes) {
      return corrupt(fmt::format("a header of {} bytes does not fit into the file's {}", length,
                                 file_.size()));
    }
    header_.data_start = kLengthBytes + length;
    const std::string_view text = as_text(file_.subspan(kLengthBytes, length));
    if (!text.starts_with('{')) return corrupt("the header does not start with \"{\"");
    return text;
  }

  Result<void> read_metadata(const json::value& value) {
    if (!value.is_object()) return corrupt("__metadata__ is no JSON object");
    for (const json::key_value_pair& entry : value.get_object()) {
      if (!entry.value().is_string()) return corrupt("__metadata__ holds something but strings");
      header_.metadata.emplace(entry.key(), entry.value().get_string());
    }
    return {};
  }

  Result<void> read_tensor(const std::string& name, const json::value& value) {
    if (!value.is_object()) return corrupt_tensor(name, "is no JSON object");
    const json::object& object = value.get_object();
    const json::value* dtype = object.if_contains("dtype");
    const json::value* shape = object.if_contains("shape");
    const json::value* offsets = object.if_contains("data_offsets");
    if (dtype == nullptr || shape == nullptr || offsets == nullptr || object.size() != 3) {
      return corrupt_tensor(name, "does not have exactly dtype, shape and data_offsets");
    }
    TensorInfo tensor{.name = name};
    SWARMLINE_TRY(read_dtype(*dtype, tensor));
    SWARMLINE_TRY(read_shape(*shape, tensor));
    SWARMLINE_TRY(read_offsets(*offsets, tensor));
    header_.tensors.push_back(std::move(tensor));
    return {};
  }

  Result<void> read_dtype(const json::value& value, TensorInfo& tensor) const {
    if (!value.is_string()) return corrupt_tensor(tensor.name, "has a dtype that is no string");
    const std::string_view text(value.get_string().data(), value.get_string().size());
    const std::optional<DType> dtype = dtype_from_safetensors_name(text);
    if (!dtype) {
      return fail(ErrorCode::kIncompatible,
                  fmt::format("{}: tensor \"{}\" has the dtype \"{}\", which is not supported",
                              path_, tensor.name, text));
    }
    tensor.dtype = *dtype;
    return {};
  }

  // Fills in the bytes that the shape asks for; a range of another length is refused afterwards.
  Result<void> read_shape(const json::value& value, TensorInfo& tensor) const {
    if (!value.is_array()) return corrupt_tensor(tensor.name, "has a shape that is no list");
    if (value.get_array().size() > kTensorRankMax) {
      return corrupt_tensor(tensor.name, fmt::format("has {} dimensions; at most {} are allowed",
                                                     value.get_array().size(), kTensorRankMax));
    }
    std::uint64_t bytes = size_bytes(tensor.dtype);
    for (const json::value& entry : value.get_array()) {
      const std::int64_t* extent = entry.if_int64();
      if (extent == nullptr || *extent < 0) {
        return corrupt_tensor(tensor.name, "has a shape with something but sizes in it");
      }
      if (__builtin_mul_overflow(bytes, static_cast<std::uint64_t>(*extent), &bytes)) {
        return corrupt_tensor(tensor.name, "has a shape whose size overflows");
      }
      tensor.shape.push_back(*extent);
    }
    tensor.bytes = bytes;
    return {};
  }

  Result<void> read_offsets(const json::value& value, TensorInfo& tensor) const {
    if (!value.is_array() || value.get_array().size() != 2) {
      return corrupt_tensor(tensor.name, "has data_offsets that are not two numbers");
    }
    const std::int64_t* begin = value.get_array()[0].if_int64();
    const std::int64_t* end = value.get_array()[1].if_int64();
    if (begin == nullptr || end == nullptr || *begin < 0 || *end < *begin) {
      return corrupt_tensor(tensor.name, "has data_offsets that are no range");
    }
    const std::uint64_t data_bytes = file_.size() - header_.data_start;
    if (static_cast<std::uint64_t>(*end) > data_bytes) {
      return corrupt_tensor(tensor.name, fmt::format("ends at byte {} of {} bytes of data: the "
                                                     "file was cut short",
                                                     *end, data_bytes));
    }
    const auto range = static_cast<std::uint64_t>(*end - *begin);
    if (range != tensor.bytes) {
      return corrupt_tensor(
          tensor.name,
          fmt::format("of shape ({}) {} needs {} bytes and has {}", fmt::join(tensor.shape, ", "),
                      safetensors_name(tensor.dtype), tensor.bytes, range));
    }
    tensor.offset = static_cast<std::uint64_t>(*begin);
    return {};
  }

  Result<void> check_coverage() {
    // Empty tensors lie at the offset of their neighbour: the end decides.
    std::ranges::sort(header_.tensors, [](const TensorInfo& a, const TensorInfo& b) {
      return std::pair(a.offset, a.offset + a.bytes) < std::pair(b.offset, b.offset + b.bytes);
    });
    std::uint64_t next = 0;
    for (const TensorInfo& tensor : header_.tensors) {
      if (tensor.offset != next) {
        return corrupt_tensor(tensor.name, fmt::format("starts at byte {} where the one before "
                                                       "ends at {}",
                                                       tensor.offset, next));
      }
      next += tensor.bytes;
    }
    if (const std::uint64_t data = file_.size() - header_.data_start; next != data) {
      return corrupt(fmt::format("the tensors cover {} of {} bytes of data", next, data));
    }
    return {};
  }

  BytesView file_;
  const std::string& path_;
  SafetensorsHeader header_;
};

}  // namespace

Result<SafetensorsHeader> parse_safetensors(BytesView file, const std::string& path) {
  return HeaderParser(file, path).run();
}

SafetensorsLayout lay_out_safetensors(std::vector<TensorInfo> tensors,
                                      const std::map<std::string, std::string>& metadata) {
  std::uint64_t offset = 0;
  std::set<std::string> names;
  JsonWriter json;
  json.begin_object();
  if (!metadata.empty()) {
    json.key(kMetadataKey).begin_object();
    for (const auto& [key, text] : metadata) json.member(key, text);
    json.end_object();
  }
  for (TensorInfo& tensor : tensors) {
    SWARMLINE_CHECK_MSG(names.insert(tensor.name).second && tensor.name != kMetadataKey,
                        tensor.name);
    tensor.offset = offset;
    tensor.bytes = size_bytes(tensor.dtype);
    json.key(tensor.name).begin_object().member("dtype", safetensors_name(tensor.dtype));
    json.key("shape").begin_array();
    for (const std::int64_t extent : tensor.shape) {
      SWARMLINE_CHECK(extent >= 0 && !__builtin_mul_overflow(tensor.bytes, extent, &tensor.bytes));
      json.value(extent);
    }
    json.end_array();
    offset += tensor.bytes;
    json.key("data_offsets").begin_array().value(tensor.offset).value(offset).end_array();
    json.end_object();
  }
  json.end_object();

  std::string text = json.take();
  const std::uint64_t unpadded = kLengthBytes + text.size();
  text.append((kSafetensorsAlignment - unpadded % kSafetensorsAlignment) % kSafetensorsAlignment,
              ' ');
  const std::uint64_t length = text.size();
  std::string header(kLengthBytes, '\0');
  std::memcpy(header.data(), &length, kLengthBytes);
  header += text;
  return {.header = header, .bytes = header.size() + offset, .tensors = std::move(tensors)};
}

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  Result<std::shared_ptr<const MappedFile>> mapped = MappedFile::open(path);
  if (!mapped) return std::unexpected(mapped.error());
  Result<SafetensorsHeader> header = parse_safetensors((*mapped)->bytes(), path);
  if (!header) return std::unexpected(header.error());
  SafetensorsFile file;
  file.file_ = std::move(*mapped);
  file.header_ = std::move(*header);
  for (std::size_t i = 0; i < file.header_.tensors.size(); ++i) {
    file.by_name_.emplace(file.header_.tensors[i].name, i);
  }
  return file;
}

const TensorInfo* SafetensorsFile::find(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &header_.tensors[found->second];
}

BytesView SafetensorsFile::bytes(const TensorInfo& tensor) const {
  return file_->bytes().subspan(header_.data_start + tensor.offset, tensor.bytes);
}

}  // namespace swarmline
