#include "engine/config/validate.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <charconv>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "base/ip_range.h"
#include "base/limits.h"
#include "base/printable.h"
#include "engine/config/link_security.h"

namespace swarmline {
namespace {

using Problem = std::optional<ConfigProblem>;

constexpr std::size_t kRunNameBytesMax = 100;
constexpr std::string_view kInitKinds[] = {"hf:", "checkpoint:"};
constexpr std::string_view kStoreKinds[] = {"s3://", "gs://"};
constexpr std::uint32_t kByteVocab = 257;  // 256 bytes and end of document
constexpr std::uint32_t kMixtureParts = 10'000;

template <typename... Args>
ConfigProblem problem(std::vector<std::string_view> keys, fmt::format_string<Args...> sentence,
                      Args&&... args) {
  return {std::move(keys), fmt::format(sentence, std::forward<Args>(args)...)};
}

bool is_name(std::string_view name) {
  const auto allowed = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '_' || c == '-';
  };
  return !name.empty() && name.size() <= kRunNameBytesMax && name.front() != '.' &&
         name.front() != '-' && std::ranges::all_of(name, allowed);
}

Problem check_run(const RunConfig& config) {
  if (!is_name(config.run.name)) {
    return problem(
        {"run.name"},
        "found \"{}\", expected 1 to {} letters, digits, '.', '_' or '-' (first a letter, "
        "digit or '_'), since it names a folder; choose another name",
        config.run.name.substr(0, kRunNameBytesMax), kRunNameBytesMax);
  }
  if (config.run.dir.empty())
    return problem({"run.dir"}, "found \"\", expected a folder; write for example dir = \"runs\"");
  const std::string_view init = config.run.init;
  const bool names_one = std::ranges::any_of(kInitKinds, [&](std::string_view kind) {
    return init.starts_with(kind) && init.size() > kind.size();
  });
  if (!init.empty() && !names_one)
    return problem({"run.init"},
                   "found \"{}\", expected \"hf:DIR\", \"checkpoint:PATH\" or \"\"; write for "
                   "example init = \"hf:models/gpt2\"",
                   init);
  return {};
}

Problem check_store(const CheckpointSection& checkpoint) {
  const std::string_view store = checkpoint.store;
  const bool names_one = std::ranges::any_of(kStoreKinds, [&](std::string_view kind) {
    return store.starts_with(kind) && store.size() > kind.size() && store[kind.size()] != '/';
  });
  if (!store.empty() && !names_one)
    return problem({"checkpoint.store"},
                   "found \"{}\", expected \"s3://BUCKET/PATH\", \"gs://BUCKET/PATH\" or \"\"; "
                   "write for example store = \"s3://my-bucket/runs\"",
                   store);
  if (checkpoint.python.empty())
    return problem({"checkpoint.python"},
                   "found \"\", expected a Python with pyarrow; write for example python = "
                   "\"python3\"");
  return {};
}

Problem check_attention(const ModelSection& model) {
  if (model.head_dim == 0 && model.d_model % model.heads != 0) {
    return problem(
        {"model.heads", "model.d_model"},
        "found heads = {} with d_model = {}, expected heads to divide d_model; change one of "
        "them, or set head_dim",
        model.heads, model.d_model);
  }
  if (model.kv_heads > 0 && model.heads % model.kv_heads != 0) {
    return problem(
        {"model.kv_heads", "model.heads"},
        "found kv_heads = {} with heads = {}, expected kv_heads to divide heads; change one of "
        "them, or write kv_heads = 0 for as many as heads",
        model.kv_heads, model.heads);
  }
  if (model.positions == PositionKind::kRotary && model.head_width() % 2 != 0) {
    return problem(
        {"model.positions", "model.heads", "model.d_model"},
        "found rotary positions with d_model / heads = {}, expected an even width of a head, "
        "since rotary turns pairs; change heads or d_model, or use \"learned\"",
        model.head_width());
  }
  if (model.window_pattern.empty() ||
      model.window_pattern.find_first_not_of("SL") != std::string::npos) {
    return problem({"model.window_pattern"},
                   "found \"{}\", expected letters S (window) and L (without); write for example "
                   "window_pattern = \"SSSL\"",
                   model.window_pattern);
  }
  return {};
}

Problem check_boundary(const ModelSection& model) {
  if (model.boundary_factor != 2 && model.boundary_factor != 4) {
    return problem({"model.boundary_factor"}, "found {}, expected 2 or 4; write one of them",
                   model.boundary_factor);
  }
  if (model.boundary != BoundaryKind::kNone && model.d_model % model.boundary_factor != 0) {
    return problem(
        {"model.boundary_factor", "model.d_model"},
        "found boundary_factor = {} with d_model = {}, expected it to divide d_model; change one "
        "of them",
        model.boundary_factor, model.d_model);
  }
  return {};
}

Problem check_model(const RunConfig& config) {
  const ModelSection& model = config.model;
  if (Problem found = check_attention(model)) return found;
  if (Problem found = check_boundary(model)) return found;
  if (model.compute == ComputeKind::kFp8 && model.dtype != DType::kF32) {
    return problem({"model.compute", "model.dtype"},
                   "found compute = \"fp8\" with dtype = \"fp64\", expected dtype = \"fp32\"; "
                   "change one of them");
  }
  if (model.precision == Precision::kBF16 && model.dtype != DType::kF32) {
    return problem({"model.precision", "model.dtype"},
                   "found precision = \"bf16\" with dtype = \"fp64\", expected dtype = \"fp32\"; "
                   "change one of them");
  }
  if (model.stream == StreamKind::kBF16 && model.dtype != DType::kF32) {
    return problem({"model.stream", "model.dtype"},
                   "found stream = \"bf16\" with dtype = \"fp64\", expected dtype = \"fp32\"; "
                   "change one of them");
  }
  if (model.layers % model.share_layers != 0) {
    return problem(
        {"model.share_layers", "model.layers"},
        "found share_layers = {} with layers = {}, expected share_layers to divide layers; "
        "change one of them",
        model.share_layers, model.layers);
  }
  if (config.data.kind == DataKind::kBytes && model.vocab > 0 && model.vocab < kByteVocab) {
    return problem(
        {"model.vocab", "data.kind"},
        "found {} with data.kind = \"bytes\", expected 0 or at least {} (256 bytes and end of "
        "document); write vocab = 0",
        model.vocab, kByteVocab);
  }
  return {};
}

Problem check_optimizer(const RunConfig& config) {
  if (config.optimizer.state == MomentsKind::k8Bit && config.model.dtype != DType::kF32) {
    return problem({"optimizer.state", "model.dtype"},
                   "found state = \"8bit\" with dtype = \"fp64\", expected dtype = \"fp32\"; "
                   "change one of them");
  }
  const std::uint64_t end = config.optimizer.lr_decay_steps;
  if (end > 0 && end <= config.optimizer.warmup_steps) {
    return problem({"optimizer.lr_decay_steps", "optimizer.warmup_steps"},
                   "found lr_decay_steps = {} with warmup_steps = {}, expected the schedule to end "
                   "after the warm-up; change one of them, or write lr_decay_steps = 0",
                   end, config.optimizer.warmup_steps);
  }
  return {};
}

Problem check_weights(const DataSection& data) {
  if (data.weights.empty()) return {};
  if (data.weights.size() != data.files.size()) {
    return problem({"data.weights", "data.files"},
                   "found {} weights with {} entries of files, expected one weight for each entry; "
                   "write as many, or take weights out",
                   data.weights.size(), data.files.size());
  }
  if (data.bytes_max > 0) {
    return problem({"data.bytes_max", "data.weights"},
                   "found bytes_max = {} with weights, expected one of them, since weights say how "
                   "much of each entry is used; take one out",
                   data.bytes_max);
  }
  const double sum = std::accumulate(data.weights.begin(), data.weights.end(), 0.0);
  for (const double weight : data.weights) {
    if (weight * kMixtureParts < sum) {
      return problem({"data.weights"},
                     "found {} of {}, expected at least a {}th of the sum; raise it or take its "
                     "entry out of files",
                     weight, sum, kMixtureParts);
    }
  }
  return {};
}

Problem check_data(const RunConfig& config) {
  if (config.data.files.empty()) {
    return problem({"data.files"},
                   "found no files, expected at least one path or glob; write for example files = "
                   "[\"texts/**/*.txt\"]");
  }
  if (std::ranges::find(config.data.files, "") != config.data.files.end())
    return problem({"data.files"}, "found an empty path, expected paths and globs; take it out");
  if (Problem found = check_weights(config.data)) return found;
  if (std::ranges::find(config.data.validation, "") != config.data.validation.end())
    return problem({"data.validation"},
                   "found an empty path, expected paths and globs; take it out");
  if (config.eval.every_steps > 0 && !config.data.holds_out()) {
    return problem({"eval.every_steps", "data.held_out"},
                   "found every_steps = {} with data.held_out = 0, expected held-out sequences to "
                   "evaluate; write for example held_out = 0.02, or every_steps = 0",
                   config.eval.every_steps);
  }
  return {};
}

Problem check_batch(const BatchSection& batch) {
  if (batch.batch % batch.microbatch != 0) {
    return problem(
        {"batch.microbatch", "batch.batch"},
        "found microbatch = {} with batch = {}, expected microbatch to divide batch; change "
        "one of them",
        batch.microbatch, batch.batch);
  }
  if (batch.batch / batch.microbatch > Limits::microbatches_per_step_max) {
    return problem({"batch.microbatch", "batch.batch"},
                   "found {} microbatches per step, expected at most {}; raise microbatch",
                   batch.batch / batch.microbatch, Limits::microbatches_per_step_max);
  }
  return {};
}

Problem check_cut(const RunConfig& config) {
  const std::vector<std::uint32_t>& cut = config.pipeline.layers;
  const std::uint32_t stages = config.pipeline.stages;
  if (cut.empty()) return {};
  if (cut.size() != stages) {
    return problem(
        {"pipeline.layers", "pipeline.stages"},
        "found a list of {} with stages = {}, expected one number of layers for each stage; "
        "change one of them, or leave layers out to cut by cost",
        cut.size(), stages);
  }
  const std::uint64_t sum = std::accumulate(cut.begin(), cut.end(), std::uint64_t{0});
  if (sum != config.model.layers) {
    return problem(
        {"pipeline.layers", "model.layers"},
        "found a cut of {} layers in all with model.layers = {}, expected the same; change "
        "one of them, or leave layers out to cut by cost",
        sum, config.model.layers);
  }
  const std::uint32_t share = config.model.share_layers;
  const auto cuts_a_block = [&](std::uint32_t layers) { return layers % share != 0; };
  if (const auto found = std::ranges::find_if(cut, cuts_a_block); found != cut.end()) {
    return problem(
        {"pipeline.layers", "model.share_layers"},
        "found {} layers in one stage with model.share_layers = {}, expected multiples of {}, "
        "since layers that share parameters stay together; change the cut",
        *found, share, share);
  }
  return {};
}

// Microbatches of a step for a peer of the stage that has the fewest.
std::uint32_t share_max(const RunConfig& config) {
  const std::uint32_t peers = std::ranges::min(config.pipeline.peers);
  return (config.microbatches_per_step() + peers - 1) / peers;
}

Problem check_order(const RunConfig& config) {
  const PipelineSection& pipeline = config.pipeline;
  if (pipeline.order == OrderKind::kFree) return {};
  if (pipeline.wiring != WiringKind::kStatic) {
    return problem({"pipeline.order", "pipeline.wiring"},
                   "found an order with wiring = \"stochastic\", expected fixed routes, whose "
                   "shares are known "
                   "beforehand; write wiring = \"static\" or order = \"free\"");
  }
  if (pipeline.order == OrderKind::kGPipe && share_max(config) > config.wiring.in_flight_per_peer) {
    return problem(
        {"pipeline.order", "wiring.in_flight_per_peer"},
        "found in_flight_per_peer = {} with {} microbatches a step for a peer, expected at least "
        "as "
        "many, since gpipe has all of them in flight; use more peers, fewer microbatches or a "
        "larger in_flight_per_peer",
        config.wiring.in_flight_per_peer, share_max(config));
  }
  return {};
}

Problem check_pipeline(const RunConfig& config) {
  const PipelineSection& pipeline = config.pipeline;
  const std::uint32_t blocks = config.model.layers / config.model.share_layers;
  if (pipeline.stages > blocks) {
    return problem(
        {"pipeline.stages", "model.layers", "model.share_layers"},
        "found stages = {} with layers / share_layers = {}, expected at least one block of "
        "layers for each stage; use fewer stages or more layers",
        pipeline.stages, blocks);
  }
  if (pipeline.peers.size() != pipeline.stages) {
    return problem(
        {"pipeline.peers", "pipeline.stages"},
        "found a list of {} with stages = {}, expected one number of peers for each stage; "
        "change one of them, or write one number for every stage",
        pipeline.peers.size(), pipeline.stages);
  }
  const std::uint64_t peers =
      std::accumulate(pipeline.peers.begin(), pipeline.peers.end(), std::uint64_t{0});
  if (std::cmp_greater(peers, Limits::peers_max)) {
    return problem({"pipeline.peers", "pipeline.stages"},
                   "found {} peers in all, expected at most {}; use fewer", peers,
                   Limits::peers_max);
  }
  if (Problem found = check_order(config)) return found;
  return check_cut(config);
}

Problem check_codec(const CodecSection& codec) {
  constexpr std::uint32_t kBlockMin = 64;
  if (codec.block != 0 && (codec.block < kBlockMin || !std::has_single_bit(codec.block))) {
    return problem({"codec.block"},
                   "found {}, expected 0 or a power of two from 64 to 4096; write for example "
                   "block = {}",
                   codec.block, std::max(kBlockMin, std::bit_floor(codec.block)));
  }
  if (codec.error_feedback && codec.averaging == "none") {
    return problem({"codec.error_feedback", "codec.averaging"},
                   "found true with averaging = \"none\", which loses nothing that could be fed "
                   "back; choose a codec for averaging, for example \"int4\", or take "
                   "error_feedback out");
  }
  return {};
}

struct Endpoint {
  std::string_view host;  // without the brackets of IPv6
  unsigned port = 0;
};

std::optional<Endpoint> parse_endpoint(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return std::nullopt;
  std::string_view host = text.substr(0, colon);
  const std::string_view digits = text.substr(colon + 1);
  Endpoint endpoint;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), endpoint.port);
  if (error != std::errc{} || end != digits.data() + digits.size() || endpoint.port > 65535)
    return std::nullopt;
  const bool brackets = host.size() > 2 && host.starts_with('[') && host.ends_with(']');
  if (brackets) host = host.substr(1, host.size() - 2);
  const auto allowed = [&](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '-' || c == '_' ||
           (brackets && (c == ':' || c == '%'));
  };
  if (!std::ranges::all_of(host, allowed)) return std::nullopt;
  endpoint.host = host;
  return endpoint;
}

ConfigProblem bad_endpoint(std::string_view key, std::string_view text) {
  return problem({key},
                 "found \"{}\", expected HOST:PORT with a port from 0 to 65535; write for example "
                 "\"127.0.0.1:4700\"",
                 text);
}

Problem check_address(std::string_view key, const std::string& address) {
  if (parse_endpoint(address)) return {};
  return bad_endpoint(key, address);
}

Problem check_etcd(const RunConfig& config) {
  constexpr std::size_t kMembersMax = 16;
  if (config.run.etcd.size() > kMembersMax)
    return problem({"run.etcd"}, "found {} members, expected at most {}; name some of them",
                   config.run.etcd.size(), kMembersMax);
  for (const std::string& member : config.run.etcd)
    if (!parse_endpoint(member)) return bad_endpoint("run.etcd", member);
  const SecuritySection& security = config.security;
  if (security.etcd_certificate.empty() != security.etcd_key.empty())
    return problem({"security.etcd_certificate", "security.etcd_key"},
                   "found one without the other, expected a certificate and its key; name both");
  if (security.etcd_authority.empty() && !security.etcd_certificate.empty())
    return problem({"security.etcd_authority", "security.etcd_certificate"},
                   "found a certificate for etcd and no authority, expected the authority whose "
                   "certificates etcd's members show; name its file");
  return {};
}

Problem check_page(const RunConfig& config) {
  const std::string& page = config.net.page;
  if (page == "none") return {};
  const auto endpoint = parse_endpoint(page);
  if (!endpoint)
    return problem({"net.page"},
                   "found \"{}\", expected HOST:PORT with a port from 0 to 65535, or \"none\"; "
                   "write for example \"127.0.0.1:8080\"",
                   page);
  if (is_loopback(endpoint->host) || wants_keys(config) || config.security.insecure) return {};
  return problem({"net.page", "net.listen", "security.loopback"},
                 "found \"{}\", where other machines reach it, in a run without keys, expected an "
                 "address of this machine alone; write for example \"127.0.0.1:8080\", or "
                 "security.loopback = true so that the page is served over TLS",
                 page);
}

Problem check_transport(const RunConfig& config) {
  for (const std::string& range : config.security.trusted_networks)
    if (!IpRange::parse(range))
      return problem({"security.trusted_networks"},
                     "found \"{}\", expected a range of IP addresses; write for example "
                     "\"10.1.0.0/16\"",
                     range);
  if (config.net.transport == Transport::kUcx && config.security.trusted_networks.empty())
    return problem({"net.transport", "security.trusted_networks"},
                   "found transport = \"ucx\" and no network that is trusted, expected the "
                   "networks over which payloads may go neither authenticated nor encrypted; write "
                   "for example trusted_networks = [\"10.1.0.0/16\"], or [\"127.0.0.0/8\"] for "
                   "one machine");
  return {};
}

Problem check_net(const RunConfig& config) {
  if (Problem found = check_address("net.listen", config.net.listen)) return found;
  if (!config.net.advertise.empty() && !parse_endpoint(config.net.advertise))
    return bad_endpoint("net.advertise", config.net.advertise);
  if (config.net.peer_silence_seconds > 0 &&
      config.net.peer_silence_seconds < 2 * config.net.heartbeat_seconds) {
    return problem({"net.peer_silence_seconds", "net.heartbeat_seconds"},
                   "found peer_silence_seconds = {} with heartbeat_seconds = {}, expected at least "
                   "two heartbeats, so that one "
                   "late message is no death; change one of them",
                   config.net.peer_silence_seconds, config.net.heartbeat_seconds);
  }
  for (const std::string& address : config.net.standby)
    if (!parse_endpoint(address)) return bad_endpoint("net.standby", address);
  if (Problem found = check_transport(config)) return found;
  return check_page(config);
}

bool is_device(std::string_view device) {
  if (device == "cpu" || device == "cuda") return true;
  constexpr std::string_view kPrefix = "cuda:";
  if (!device.starts_with(kPrefix)) return false;
  const std::string_view digits = device.substr(kPrefix.size());
  return !digits.empty() && digits.size() <= 3 &&
         digits.find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace

std::optional<ConfigProblem> find_problem(const RunConfig& config) {
  if (Problem found = check_run(config)) return found;
  if (Problem found = check_model(config)) return found;
  if (Problem found = check_optimizer(config)) return found;
  if (Problem found = check_data(config)) return found;
  if (Problem found = check_batch(config.batch)) return found;
  if (Problem found = check_pipeline(config)) return found;
  if (Problem found = check_codec(config.codec)) return found;
  if (Problem found = check_etcd(config)) return found;
  if (Problem found = check_store(config.checkpoint)) return found;
  return check_net(config);
}

std::optional<ConfigProblem> find_problem(const PeerConfig& config) {
  if (!is_device(config.device)) {
    return problem(
        {"peer.device"},
        "found \"{}\", expected \"cpu\", \"cuda\" or \"cuda:N\"; write for example device = "
        "\"cpu\"",
        config.device);
  }
  if (Problem found = check_address("peer.listen", config.listen)) return found;
  if (!config.advertise.empty() && !parse_endpoint(config.advertise))
    return bad_endpoint("peer.advertise", config.advertise);
  if (config.notices == NoticeSource::kCommand && config.notice_command.empty())
    return problem({"peer.notices"},
                   "found \"command\", but notice_command is empty; write for example "
                   "notice_command = \"/usr/local/bin/wait-for-notice\"");
  if (config.zone.size() > Limits::name_bytes_max || !is_printable(config.zone))
    return problem({"peer.zone"},
                   "found \"{}\", expected at most {} printable ASCII characters; use a shorter or "
                   "plainer name",
                   printable(config.zone, Limits::name_bytes_max), Limits::name_bytes_max);
  return {};
}

}  // namespace swarmline
