#include "engine/huggingface/tensor_stream.h"

namespace swarmline {

Result<void> stream_safetensors(const SafetensorsLayout& layout, const FillTensor& fill,
                                const GiveBytes& give) {
  SWARMLINE_TRY(give(0, as_bytes(layout.header)));
  for (const TensorInfo& tensor : layout.tensors) {
    if (tensor.bytes == 0) continue;
    Buffer bytes(tensor.bytes);
    fill(tensor, bytes.bytes());
    SWARMLINE_TRY(give(layout.header.size() + tensor.offset, bytes.bytes()));
  }
  return {};
}

}  // namespace swarmline
