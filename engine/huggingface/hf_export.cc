#include "engine/huggingface/hf_export.h"

#include <cstring>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "engine/huggingface/tensor_stream.h"
#include "engine/store/json_writer.h"

namespace swarmline {
namespace {

struct Shard {
  std::string name;
  std::vector<const HfTensor*> tensors;
};

std::uint64_t elements_of(const std::vector<std::int64_t>& shape) {
  std::uint64_t elements = 1;
  for (const std::int64_t extent : shape) elements *= static_cast<std::uint64_t>(extent);
  return elements;
}

// In order; a file is full when the next tensor would take it beyond `bytes_max`.
std::vector<Shard> cut_into_shards(const std::vector<HfTensor>& tensors, DType dtype,
                                   std::uint64_t bytes_max) {
  std::vector<Shard> shards(1);
  std::uint64_t bytes = 0;
  for (const HfTensor& tensor : tensors) {
    const std::uint64_t size = elements_of(tensor.shape) * size_bytes(dtype);
    if (!shards.back().tensors.empty() && bytes + size > bytes_max) {
      shards.emplace_back();
      bytes = 0;
    }
    shards.back().tensors.push_back(&tensor);
    bytes += size;
  }
  for (std::size_t i = 0; i < shards.size(); ++i)
    shards[i].name = shards.size() == 1
                         ? "model.safetensors"
                         : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
  return shards;
}

class Exporter {
 public:
  Exporter(const ModelSource& source, DType dtype, std::string folder)
      : source_(source), dtype_(dtype), folder_(std::move(folder)) {}

  Result<void> write(const Shard& shard) const {
    std::vector<TensorInfo> infos;
    std::map<std::string, const HfTensor*> by_name;
    for (const HfTensor* tensor : shard.tensors) {
      infos.push_back({.name = tensor->name, .dtype = dtype_, .shape = tensor->shape});
      by_name[tensor->name] = tensor;
    }
    auto file = AtomicFile::create(folder_ + "/" + shard.name);
    if (!file) return std::unexpected(std::move(file).error());
    SWARMLINE_TRY(stream_safetensors(
        lay_out_safetensors(std::move(infos), {{"format", "pt"}}),
        [&](const TensorInfo& info, MutableBytes out) { fill(*by_name.at(info.name), out); },
        [&](std::uint64_t, BytesView bytes) { return file->append(bytes); }));
    return file->finish();
  }

 private:
  void fill(const HfTensor& tensor, MutableBytes out) const {
    const std::size_t width = size_bytes(dtype_);
    const std::size_t outputs = static_cast<std::size_t>(tensor.shape[tensor.transposed ? 1 : 0]);
    const std::size_t inputs = out.size() / width / outputs;
    std::size_t first = 0;
    for (const HfPart& part : tensor.parts) {
      const auto rows = static_cast<std::size_t>(part.outputs);
      Buffer ours = Buffer::zeroed(rows * inputs * width);
      if (!part.ours.empty()) source_.read(part.ours, dtype_, ours.bytes());
      if (tensor.transposed) {
        for (std::size_t i = 0; i < inputs; ++i)
          for (std::size_t o = 0; o < rows; ++o)
            std::memcpy(out.data() + (i * outputs + first + o) * width,
                        ours.data() + (o * inputs + i) * width, width);
      } else {
        std::memcpy(out.data() + first * inputs * width, ours.data(), ours.size());
      }
      first += rows;
    }
  }

  const ModelSource& source_;
  const DType dtype_;
  const std::string folder_;
};

std::string index_json(const std::vector<Shard>& shards, DType dtype) {
  std::uint64_t bytes = 0;
  std::map<std::string, std::string> file_of;
  for (const Shard& shard : shards)
    for (const HfTensor* tensor : shard.tensors) {
      bytes += elements_of(tensor->shape) * size_bytes(dtype);
      file_of[tensor->name] = shard.name;
    }
  JsonWriter json(2);
  json.begin_object().key("metadata").begin_object().member("total_size", bytes).end_object();
  json.key("weight_map").begin_object();
  for (const auto& [tensor, file] : file_of) json.member(tensor, file);
  json.end_object().end_object();
  return json.take() + "\n";
}

}  // namespace

Result<HfExported> export_hf(const ModelSource& source, const HfExportOptions& options) {
  const ModelSpec& model = source.model();
  auto architecture = architecture_of(model);
  if (!architecture) return std::unexpected(std::move(architecture).error());
  SWARMLINE_TRY(source.check(model, make_layout(model, whole_model(model, {}))));
  if (file_exists(options.out))
    return fail(ErrorCode::kUserMistake,
                fmt::format("{} is there already; name a folder that is not", options.out));
  const HfConfig config{
      .architecture = *architecture,
      .model = model,
      .dtype = options.dtype.value_or(source.hf() ? source.hf()->dtype : model.shape.dtype),
      .end_token = options.end_token};
  const std::string partial = options.out + ".partial";
  SWARMLINE_TRY(remove_folder(partial));
  SWARMLINE_TRY(make_folders(partial));
  const std::vector<HfTensor> tensors = hf_tensors(*architecture, model);
  const std::vector<Shard> shards = cut_into_shards(tensors, config.dtype, options.shard_bytes);
  const Exporter exporter(source, config.dtype, partial);
  HfExported exported{.architecture = *architecture, .dtype = config.dtype, .files = {}};
  for (const Shard& shard : shards) {
    SWARMLINE_TRY(exporter.write(shard));
    exported.files.push_back(shard.name);
  }
  for (const HfTensor& tensor : tensors) exported.parameters += elements_of(tensor.shape);
  std::vector<HfExportOptions::File> files = options.files;
  if (shards.size() > 1)
    files.push_back({"model.safetensors.index.json", index_json(shards, config.dtype)});
  files.push_back({"config.json", to_config_json(config)});
  files.push_back({"generation_config.json", to_generation_config_json(config)});
  for (const auto& [name, text] : files)
    SWARMLINE_TRY(write_text_file_atomically(partial + "/" + name, text));
  SWARMLINE_TRY(replace_folder(partial, options.out));
  return exported;
}

}  // namespace swarmline
