#include "bench/stage/device_side.h"

#include <chrono>

#include "base/order_statistics.h"
#include "compression/device_codec.h"
#include "engine/model/libtorch.h"

namespace swarmline::bench {
namespace {

bool is_cpu(const std::string& device) {
  return device == "cpu";
}

void wait_for(const std::string& device) {
  if (!is_cpu(device)) torch::cuda::synchronize(at::Device(device).index());
}

class HostCodec final : public WireCodec {
 public:
  explicit HostCodec(std::uint64_t elements) : values_(elements * sizeof(float)) {}
  Result<void> decode(BytesView wire) override {
    return swarmline::decode(wire, DType::kF32, values_.bytes());
  }
  Result<Buffer> encode(const CodecSpec& codec) override {
    return swarmline::encode(codec, values_.bytes(), DType::kF32);
  }

 private:
  Buffer values_;
};

class CodecOnDevice final : public WireCodec {
 public:
  CodecOnDevice(std::unique_ptr<DeviceCodec> codec, at::Tensor values)
      : codec_(std::move(codec)), values_(std::move(values)) {}
  Result<void> decode(BytesView wire) override { return codec_->decode(wire, values()); }
  Result<Buffer> encode(const CodecSpec& codec) override { return codec_->encode(codec, values()); }

 private:
  DeviceValues values() const {
    return {.at = static_cast<DeviceAddress>(values_.data_ptr()),
            .elements = static_cast<std::uint64_t>(values_.numel())};
  }

  std::unique_ptr<DeviceCodec> codec_;
  at::Tensor values_;
};

double median_copy(const std::string& device, const at::Tensor& to, const at::Tensor& from,
                   int rounds) {
  std::vector<double> times;
  for (int round = -1; round < rounds; ++round) {
    const double us = microseconds(device, [&] { to.copy_(from); });
    if (round >= 0) times.push_back(us);
  }
  return median(std::move(times));
}

}  // namespace

double microseconds(const std::string& device, const std::function<void()>& body) {
  wait_for(device);
  const auto begin = std::chrono::steady_clock::now();
  body();
  wait_for(device);
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin)
      .count();
}

Result<std::unique_ptr<WireCodec>> make_wire_codec(const std::string& device,
                                                   const StageModel& model,
                                                   std::uint64_t elements) {
  if (!model.takes_wire()) return std::make_unique<HostCodec>(elements);
  at::Device at_device(device);
  if (!at_device.has_index()) at_device.set_index(0);
  auto codec = make_device_codec(at_device.index());
  if (!codec) return std::unexpected(std::move(codec).error());
  return std::make_unique<CodecOnDevice>(
      std::move(*codec), at::empty({static_cast<std::int64_t>(elements)},
                                   at::TensorOptions(at::kFloat).device(at_device)));
}

std::vector<CopyRate> time_copies(const std::string& device, StageModel& model, std::size_t bytes,
                                  int rounds) {
  if (is_cpu(device)) return {};
  Buffer pageable = Buffer::zeroed(bytes), locked = Buffer::zeroed(bytes);
  const PageLock lock = model.lock_pages(locked.bytes());
  const auto tensor = [&](Buffer& of) {
    return at::from_blob(of.data(), {static_cast<std::int64_t>(bytes)},
                         at::TensorOptions(at::kByte));
  };
  const at::Tensor there = at::empty({static_cast<std::int64_t>(bytes)},
                                     at::TensorOptions(at::kByte).device(at::Device(device)));
  std::vector<CopyRate> rates = {
      {"pageable to device", median_copy(device, there, tensor(pageable), rounds)},
      {"pageable to host", median_copy(device, tensor(pageable), there, rounds)}};
  if (lock == nullptr) return rates;
  rates.push_back({"page-locked to device", median_copy(device, there, tensor(locked), rounds)});
  rates.push_back({"page-locked to host", median_copy(device, tensor(locked), there, rounds)});
  return rates;
}

}  // namespace swarmline::bench
