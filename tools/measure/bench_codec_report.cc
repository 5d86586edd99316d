#include "tools/measure/bench_codec_report.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "engine/store/json_writer.h"

namespace swarmline {
namespace {

constexpr double kGiga = 1e9;

double rate(const CodecSpeed& speed, double seconds) {
  return seconds > 0 ? static_cast<double>(speed.tensor_bytes) / seconds / kGiga : 0;
}
double of_memcpy(const CodecSpeed& speed, double seconds) {
  return seconds > 0 ? speed.copy_seconds / seconds : 0;
}
double bytes_per_element(const CodecSpeed& speed) {
  const auto elements =
      static_cast<double>(speed.tensor_bytes) / static_cast<double>(size_bytes(speed.source));
  return static_cast<double>(speed.wire_bytes) / elements;
}

std::string cell(const CodecSpeed& speed, const std::optional<double>& seconds) {
  if (!seconds) return fmt::format("{:>13}", "-");
  return fmt::format("{:>6.2f} {:>5.2f}x", rate(speed, *seconds), of_memcpy(speed, *seconds));
}

std::string_view scales_name(const CodecSpec& codec) {
  if (!quant_spec(codec)) return "";
  return codec.scales == kernels::ScaleKind::kBf16 ? "bf16" : "fp32";
}

void write_codec(JsonWriter& json, const CodecSpec& codec) {
  json.member("codec", name_of(codec.kind)).member("block", codec.block);
  json.member("scales", scales_name(codec)).member("kept", codec.kept);
}

void write_speed(JsonWriter& json, const CodecSpeed& speed, std::string_view what,
                 const std::optional<double>& seconds) {
  json.key(what);
  if (!seconds) {
    json.null();
    return;
  }
  json.begin_object().member("seconds", *seconds).member("gb_per_second", rate(speed, *seconds));
  json.member("of_memcpy", of_memcpy(speed, *seconds)).end_object();
}

std::string csv_codec(std::string_view kind, const CodecSpec& codec) {
  return fmt::format("{},{},{},{},{}", kind, name_of(codec.kind), codec.block, scales_name(codec),
                     codec.kept);
}

// A name with what would end a cell, in quotes (RFC 4180).
std::string csv_text(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted.append(c == '"' ? 2 : 1, c);
  return quoted + "\"";
}

std::string csv_rate(const CodecSpeed& speed, const std::optional<double>& seconds) {
  if (!seconds) return ",";
  return fmt::format("{},{}", rate(speed, *seconds), of_memcpy(speed, *seconds));
}

}  // namespace

std::string_view bench_dtype_name(DType dtype) {
  return dtype == DType::kF32 ? "fp32" : dtype == DType::kF16 ? "fp16" : "bf16";
}

std::string speed_head(std::uint64_t mib) {
  return fmt::format(
      "Speed on {} MiB, one core: GB/s of the uncompressed tensor, and times memcpy of it\n"
      "{:<14} {:<5} {:>7} {:>7}  {:>13} {:>13}  {:>13} {:>13}\n"
      "{:<14} {:<5} {:>7} {:>7}  {:>13} {:>13}  {:>13} {:>13}",
      mib, "", "", "wire B", "memcpy", "kernel", "kernel", "wire buffer", "wire buffer", "codec",
      "from", "/elem", "GB/s", "quantize", "dequantize", "encode", "decode");
}

std::string speed_line(const CodecSpeed& speed) {
  return fmt::format("{:<14} {:<5} {:>7.4f} {:>7.2f}  {} {}  {} {}", to_string(speed.codec),
                     bench_dtype_name(speed.source), bytes_per_element(speed),
                     rate(speed, speed.copy_seconds), cell(speed, speed.quantize_seconds),
                     cell(speed, speed.dequantize_seconds), cell(speed, speed.encode_seconds),
                     cell(speed, speed.decode_seconds));
}

std::string accuracy_head() {
  return fmt::format(
      "Error on fp32 tensors: |error| / |x|, cosine of both, largest error / largest |x|\n"
      "{:<26} {:<14} {:>9} {:>9} {:>11} {:>9}",
      "tensor", "codec", "bits/elem", "rel. L2", "1 - cosine", "max error");
}

std::string accuracy_line(const CodecAccuracy& accuracy) {
  constexpr std::size_t kNameWidth = 26;
  std::string tensor = accuracy.tensor;  // the end of a parameter's name tells more than its start
  if (tensor.size() > kNameWidth) tensor = ".." + tensor.substr(tensor.size() - kNameWidth + 2);
  return fmt::format("{:<26} {:<14} {:>9.3f} {:>9.5f} {:>11.2e} {:>9.5f}", tensor,
                     to_string(accuracy.codec), accuracy.bits_per_element, accuracy.relative_l2,
                     std::max(0.0, 1 - accuracy.cosine), accuracy.max_error);
}

std::string to_json(const CodecBenchReport& report) {
  JsonWriter json(1);
  json.begin_object().member("format", kCodecBenchFormat).member("kind", "codec");
  json.member("wall_seconds", report.wall_seconds).member("machine", report.machine);
  json.member("instruction_set", report.instruction_set).member("rounds", report.rounds);
  json.key("speeds").begin_array();
  for (const CodecSpeed& speed : report.speeds) {
    json.begin_object();
    write_codec(json, speed.codec);
    json.member("source", bench_dtype_name(speed.source));
    json.member("tensor_bytes", speed.tensor_bytes).member("wire_bytes", speed.wire_bytes);
    write_speed(json, speed, "memcpy", speed.copy_seconds);
    write_speed(json, speed, "quantize", speed.quantize_seconds);
    write_speed(json, speed, "dequantize", speed.dequantize_seconds);
    write_speed(json, speed, "encode", speed.encode_seconds);
    write_speed(json, speed, "decode", speed.decode_seconds);
    json.end_object();
  }
  json.end_array().key("errors").begin_array();
  for (const CodecAccuracy& accuracy : report.accuracies) {
    json.begin_object();
    write_codec(json, accuracy.codec);
    json.member("tensor", accuracy.tensor).member("elements", accuracy.elements);
    json.member("bits_per_element", accuracy.bits_per_element);
    json.member("relative_l2", accuracy.relative_l2).member("cosine", accuracy.cosine);
    json.member("max_error", accuracy.max_error).end_object();
  }
  json.end_array().end_object();
  return json.take() + "\n";
}

std::string to_csv(const CodecBenchReport& report) {
  std::string text =
      "kind,codec,block,scales,kept,source,tensor_bytes,wire_bytes,memcpy_gb_per_second,"
      "quantize_gb_per_second,quantize_of_memcpy,dequantize_gb_per_second,dequantize_of_memcpy,"
      "encode_gb_per_second,encode_of_memcpy,decode_gb_per_second,decode_of_memcpy,"
      "tensor,elements,bits_per_element,relative_l2,cosine,max_error\n";
  for (const CodecSpeed& speed : report.speeds) {
    text +=
        fmt::format("{},{},{},{},{},{},{},{},{},,,,,,\n", csv_codec("speed", speed.codec),
                    bench_dtype_name(speed.source), speed.tensor_bytes, speed.wire_bytes,
                    rate(speed, speed.copy_seconds), csv_rate(speed, speed.quantize_seconds),
                    csv_rate(speed, speed.dequantize_seconds),
                    csv_rate(speed, speed.encode_seconds), csv_rate(speed, speed.decode_seconds));
  }
  for (const CodecAccuracy& accuracy : report.accuracies) {
    text += fmt::format("{},,,,,,,,,,,,,{},{},{},{},{},{}\n", csv_codec("error", accuracy.codec),
                        csv_text(accuracy.tensor), accuracy.elements, accuracy.bits_per_element,
                        accuracy.relative_l2, accuracy.cosine, accuracy.max_error);
  }
  return text;
}

}  // namespace swarmline
