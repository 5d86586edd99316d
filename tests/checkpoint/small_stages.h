// Small stages with recognisable numbers, and checkpoints made of them. Header-only.
#pragma once

#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/checkpoint/checkpoint_writer.h"
#include "engine/checkpoint/stage_file_image.h"
#include "engine/model/model_spec.h"

namespace swarmline {

struct SmallTensor {
  std::string name;
  std::vector<std::int64_t> shape;
};

// Slots on 64-byte boundaries, as the model lays them out; the last `tied` of them are tied.
inline ParameterLayout small_layout(const std::vector<SmallTensor>& tensors, std::size_t tied = 0) {
  ParameterLayout layout;
  std::size_t left = tensors.size();
  for (const SmallTensor& tensor : tensors) {
    if (left-- == tied) layout.tied_offset = layout.elements;
    std::uint64_t elements = 1;
    for (const std::int64_t extent : tensor.shape) elements *= static_cast<std::uint64_t>(extent);
    layout.slots.push_back({.name = tensor.name,
                            .shape = tensor.shape,
                            .offset = layout.elements,
                            .elements = elements});
    layout.elements += (elements + 15) / 16 * 16;
  }
  if (tied == 0) layout.tied_offset = layout.elements;
  return layout;
}

// first, first + 1, ... in every slot; zero in the gaps.
inline Buffer counted_arena(const ParameterLayout& layout, float first) {
  Buffer arena = Buffer::zeroed(layout.bytes());
  for (const ParameterSlot& slot : layout.slots) {
    for (std::uint64_t i = 0; i < slot.elements; ++i) {
      arena.as<float>()[slot.offset + i] = first + static_cast<float>(i);
    }
    first += 100;
  }
  return arena;
}

inline Manifest small_manifest(const std::vector<std::uint32_t>& layers_per_stage) {
  Manifest manifest{.run = "tiny", .step = 7, .version = 7, .sequence = 8};
  manifest.model.layers =
      std::accumulate(layers_per_stage.begin(), layers_per_stage.end(), std::uint32_t{0});
  manifest.model.kv_heads = 4;
  manifest.model.d_ff = 512;
  manifest.model.vocab = 257;
  std::uint32_t first = 0;
  for (const std::uint32_t layers : layers_per_stage) {
    const auto stage = static_cast<std::uint32_t>(manifest.stages.size());
    manifest.stages.push_back(
        {.parts = {{.file = part_file_name(stage, 0, 1), .sha256 = std::string(64, '0')}},
         .first_layer = first,
         .last_layer = first + layers});
    first += layers;
  }
  return manifest;
}

inline void send_stage(CheckpointWriter& writer, std::uint32_t stage, const StageFileImage& image,
                       std::uint64_t piece_bytes) {
  for (std::uint64_t offset = 0; offset < image.size_bytes(); offset += piece_bytes) {
    const auto written =
        writer.write_piece(stage, offset, image.piece(offset, piece_bytes).bytes());
    ASSERT_TRUE(written) << written.error().what;
  }
  const auto finished = writer.finish_stage(stage, image.size_bytes(), image.sha256());
  ASSERT_TRUE(finished) << finished.error().what;
}

// One stage an image, one layer each; returns the checkpoint's path.
inline std::string write_checkpoint(const std::string& checkpoints, std::uint64_t step,
                                    const std::vector<StageFileImage>& images) {
  auto writer =
      CheckpointWriter::begin(checkpoints, step, static_cast<std::uint32_t>(images.size()));
  EXPECT_TRUE(writer) << writer.error().what;
  for (std::uint32_t i = 0; i < images.size(); ++i) send_stage(*writer, i, images[i], 100);
  const auto path = writer->commit(small_manifest(std::vector<std::uint32_t>(images.size(), 1)));
  EXPECT_TRUE(path) << path.error().what;
  return *path;
}

}  // namespace swarmline
