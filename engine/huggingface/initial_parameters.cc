#include "engine/huggingface/initial_parameters.h"

#include <utility>

#include "engine/checkpoint/checkpoint_writer.h"
#include "engine/checkpoint/sha256.h"
#include "engine/huggingface/tensor_stream.h"

namespace swarmline {
Result<void> check_initial_parameters(const ModelSource& source, const ModelSpec& model,
                                      const StageSpec& whole) {
  return source.check(model, make_layout(model, whole));
}

Result<std::string> write_initial_parameters(const ModelSource& source, const ModelSpec& model,
                                             const StageSpec& whole, Manifest manifest,
                                             const std::string& folder) {
  const ParameterLayout layout = make_layout(model, whole);
  SWARMLINE_TRY(source.check(model, layout));
  std::vector<TensorInfo> tensors;
  for (const ParameterSlot& slot : layout.slots)
    tensors.push_back({.name = slot.name, .dtype = layout.dtype, .shape = slot.shape});
  const SafetensorsLayout file = lay_out_safetensors(std::move(tensors), {{"format", "pt"}});
  SWARMLINE_TRY(make_folders(folder));
  auto writer = CheckpointWriter::begin(folder, 0, 1);
  if (!writer) return std::unexpected(std::move(writer).error());
  Sha256 hash;
  SWARMLINE_TRY(stream_safetensors(
      file,
      [&](const TensorInfo& tensor, MutableBytes out) {
        source.read(tensor.name, layout.dtype, out);
      },
      [&](std::uint64_t offset, BytesView bytes) -> Result<void> {
        hash.update(bytes);
        return writer->write_piece(0, offset, bytes);
      }));
  SWARMLINE_TRY(writer->finish_stage(0, file.bytes, hash.finish_hex()));
  manifest.step = manifest.version = 0;
  manifest.optimizer_state = false;
  manifest.boundaries = whole.inner_boundaries;
  manifest.stages = {{.parts = {}, .first_layer = 0, .last_layer = model.shape.layers}};
  return writer->commit(std::move(manifest));
}

}  // namespace swarmline
