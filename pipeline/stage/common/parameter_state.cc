#include "pipeline/stage/common/parameter_state.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/byte_ops.h"
#include "base/check.h"
#include "base/hash.h"
#include "kernels/digest.h"
#include "kernels/kernels.h"

namespace swarmline {
namespace {

// So many bytes of the views, one behind the other, from `first` on.
Buffer copy_range(const std::vector<BytesView>& views, std::uint64_t first, std::uint64_t bytes) {
  Buffer copy(bytes);
  MutableBytes left = copy.bytes();
  std::uint64_t at = 0;  // where the view begins
  for (const BytesView view : views) {
    const std::uint64_t from = std::max(first, at);
    const std::uint64_t end = std::min(first + bytes, at + view.size());
    if (from < end) left = copy_bytes(view.subspan(from - at, end - from), left);
    at += view.size();
  }
  SWARMLINE_CHECK(left.empty());
  return copy;
}

template <typename T>
void add_sums_of(BytesView from, MutableBytes to) {
  kernels::add_into(reinterpret_cast<const T*>(from.data()), reinterpret_cast<T*>(to.data()),
                    to.size() / sizeof(T));
}

void add_sums(DType dtype, BytesView from, MutableBytes to) {
  dtype == DType::kF32 ? add_sums_of<float>(from, to) : add_sums_of<double>(from, to);
}

Result<FlatOptimizer> make_optimizer(StageModel& model, const OptimizerSection& options) {
  if (model.device_parameters() == nullptr || !steps_on_device(options))
    return FlatOptimizer(options, model.layout());
  auto device = model.make_optimizer(options);
  if (!device) return std::unexpected(std::move(device).error());
  return FlatOptimizer(options, model.layout(), std::move(*device));
}

}  // namespace

ParameterState::ParameterState(StageModel& model, const RunConfig& config)
    : model_(model),
      delayed_(config.pipeline.delay == 1),
      optimizer_(make_optimizer(model, config.optimizer)),
      committed_(delayed_ ? Buffer::copy_of(model.parameters()) : Buffer()),
      reduced_(Buffer::zeroed(model.layout().bytes())) {
  lock_pages(reduced_);
  if (device() != nullptr && model.keeps_sums()) {
    if (auto made = model.make_gradients(); made)
      gradients_ = std::move(*made);
    else
      optimizer_ = std::unexpected(std::move(made).error());
  }
  if (!delayed_) return;
  lock_pages(committed_);
  if (auto brought = bring_committed(); !brought)
    optimizer_ = std::unexpected(std::move(brought).error());
}

void ParameterState::lock_pages(Buffer& buffer) {
  if (PageLock lock = model_.lock_pages(buffer.bytes())) pages_.push_back(std::move(lock));
}

MutableBytes ParameterState::committed_bytes() {
  return delayed_ ? committed_.bytes() : model_.parameters();
}

Result<BytesView> ParameterState::committed_parameters() {
  if (!delayed_) {
    SWARMLINE_TRY(model_.collect_parameters());
  } else if (committed_is_older_) {
    const auto there = committed_there();
    if (!there) return std::unexpected(there.error());
    SWARMLINE_TRY(device()->fetch(committed_.bytes(), *there));
    committed_is_older_ = false;
  }
  return committed_bytes();
}

Result<DeviceAddress> ParameterState::committed_there() {
  return delayed_ ? device()->arena(DeviceArena::kCommitted) : model_.device_parameters();
}

Result<void> ParameterState::bring_committed() {
  committed_is_older_ = false;
  if (!delayed_ || device() == nullptr) return {};
  const auto there = committed_there();
  if (!there) return std::unexpected(there.error());
  return device()->bring(*there, committed_.bytes());
}

Result<void> ParameterState::copy_committed() {
  if (device() == nullptr) {
    copy_bytes(committed_.bytes(), model_.parameters());
    model_.parameters_changed();
    return {};
  }
  const auto there = committed_there();
  if (!there) return std::unexpected(there.error());
  SWARMLINE_TRY(device()->copy(model_.device_parameters(), *there, parameter_bytes()));
  model_.device_parameters_changed();
  return {};
}

Result<void> ParameterState::collect_versions() {
  SWARMLINE_TRY(model_.collect_parameters());
  if (!other_version_) return {};
  model_.exchange_parameters();
  auto collected = model_.collect_parameters();
  model_.exchange_parameters();
  return collected;
}

MutableBytes ParameterState::made_accumulator(std::uint64_t step) {
  Buffer& sums = accumulators_[slot(step)];
  if (sums.size() == 0) {
    sums = Buffer(layout().bytes());
    lock_pages(sums);
  }
  return sums.bytes();
}

Result<void> ParameterState::take_memory(bool residuals) {
  if (!optimizer_) return std::unexpected(optimizer_.error());
  if (model_.keeps_sums()) {
    std::vector<MutableBytes> sums = {made_accumulator(0)};
    if (delayed_) sums.push_back(made_accumulator(1));
    SWARMLINE_TRY(model_.take_memory(sums, delayed_));
  }
  std::vector<DeviceArena> arenas;
  if (device() != nullptr) arenas = {DeviceArena::kReduced};
  if (gradients_ && residuals)
    arenas.insert(arenas.end(), {DeviceArena::kResidual, DeviceArena::kNextResidual});
  for (const DeviceArena arena : arenas) SWARMLINE_TRY(device()->arena(arena));
  return {};
}

void ParameterState::begin(std::uint64_t step) {
  const MutableBytes sums = made_accumulator(step);
  adopted_[slot(step)].clear();
  model_.clear_sums(sums);
}

Result<void> ParameterState::collect(std::uint64_t step) {
  const MutableBytes sums = accumulator(step);
  SWARMLINE_TRY(model_.collect_sums(sums));
  std::vector<SharedBytes>& adopted = adopted_[slot(step)];
  for (const SharedBytes& others : adopted) add_sums(layout().dtype, others.view(), sums);
  // Where the model keeps them, its own come in their place the next time.
  if (!model_.keeps_sums()) adopted.clear();
  return {};
}

void ParameterState::adopt_sums(std::uint64_t step, SharedBytes sums) {
  SWARMLINE_CHECK(sums.size() == layout().bytes());
  adopted_[slot(step)].push_back(std::move(sums));
}

Result<DeviceAddress> ParameterState::sums_there(std::uint64_t step) {
  const DeviceAddress sums = model_.device_sums(accumulator(step));
  SWARMLINE_CHECK(gradients_ && sums != nullptr);
  SWARMLINE_TRY(add_adopted(step, sums));
  return sums;
}

// The place of the average is free until the step has one.
Result<void> ParameterState::add_adopted(std::uint64_t step, DeviceAddress sums) {
  std::vector<SharedBytes>& adopted = adopted_[slot(step)];
  if (adopted.empty()) return {};
  const auto room = device()->arena(DeviceArena::kReduced);
  if (!room) return std::unexpected(room.error());
  reduced_there_.clear();
  for (const SharedBytes& others : adopted) {
    SWARMLINE_TRY(device()->bring(*room, others.view()));
    SWARMLINE_TRY(gradients_->add(sums, *room, sums, layout().elements));
  }
  adopted.clear();
  return {};
}

Result<void> ParameterState::use(Version version) {
  if (computing_version_ == version) return {};
  if (other_version_ == version) {
    model_.exchange_parameters();
    other_version_ = std::exchange(computing_version_, version);
    return {};
  }
  if (!delayed_ || committed_version_ != version)
    return fail(ErrorCode::kIncompatible,
                fmt::format("asked to compute on version {}; version {} is committed here",
                            version.value, committed_version_.value));
  // Of the two older versions the older one is committed past: nobody asks for it again.
  if (!other_version_ || *other_version_ <= computing_version_) {
    model_.exchange_parameters();
    other_version_ = computing_version_;
  }
  computing_version_ = version;
  return copy_committed();
}

Result<ReducedSummary> ParameterState::take_reduced(std::uint64_t first, std::uint64_t bytes,
                                                    const Bring& bring) {
  const BytesView here = reduced_.bytes().subspan(first, bytes);
  const DType dtype = layout().dtype;
  if (device() == nullptr)
    return ReducedSummary{.digest = kernels::digest(here),
                          .sum_of_squares = sum_of_squares(here, dtype)};
  const auto arena = device()->arena(DeviceArena::kReduced);
  if (!arena) return std::unexpected(arena.error());
  const DeviceAddress there = *arena + first;
  reduced_there_.erase(first);
  SWARMLINE_TRY(bring ? bring(there) : device()->bring(there, here));
  reduced_there_[first] = bytes;
  const auto digest = device()->digest_memory(there, bytes);
  if (!digest) return std::unexpected(digest.error());
  const auto sum = device()->sum_of_squares(there, bytes / size_bytes(dtype));
  if (!sum) return std::unexpected(sum.error());
  return ReducedSummary{.digest = *digest, .sum_of_squares = *sum};
}

// What came with the state of another stage was not taken.
Result<void> ParameterState::step(const StepScalars& scalars) {
  if (device() == nullptr) return optimizer_->step(scalars, reduced_.bytes(), committed_bytes());
  const auto gradients = device()->arena(DeviceArena::kReduced);
  if (!gradients) return std::unexpected(gradients.error());
  std::uint64_t taken = 0;
  for (const auto& [first, bytes] : reduced_there_) taken += bytes;
  if (taken != layout().bytes()) SWARMLINE_TRY(device()->bring(*gradients, reduced_.bytes()));
  const auto parameters = committed_there();
  if (!parameters) return std::unexpected(parameters.error());
  return optimizer_->step_there(scalars, *gradients, *parameters);
}

Result<void> ParameterState::apply(const StepScalars& scalars, bool skipped) {
  if (!optimizer_) return std::unexpected(optimizer_.error());
  // With a delay the next step computes on the version that this commit replaces.
  if (delayed_ && other_version_ != committed_version_) SWARMLINE_TRY(use(committed_version_));
  if (!skipped) SWARMLINE_TRY(step(scalars));
  reduced_there_.clear();
  ++committed_version_.value;
  if (delayed_) {
    committed_is_older_ |= !skipped && device() != nullptr;
    return {};
  }
  computing_version_ = committed_version_;
  if (skipped) return {};
  if (device() != nullptr) {
    model_.device_parameters_changed();
  } else {
    model_.parameters_changed();
  }
  return {};
}

Result<std::uint64_t> ParameterState::digest() {
  if (!optimizer_) return std::unexpected(optimizer_.error());
  RollingHash hash;
  if (device() == nullptr) {
    hash.add(kernels::digest(committed_bytes()));
  } else {
    const auto there = committed_there();
    if (!there) return std::unexpected(there.error());
    const auto parameters = device()->digest_memory(*there, parameter_bytes());
    if (!parameters) return std::unexpected(parameters.error());
    hash.add(*parameters);
  }
  SWARMLINE_TRY(optimizer_->add_state_to(hash));
  return hash.value();
}

std::uint64_t ParameterState::committed_state_bytes() const {
  return parameter_bytes() + (optimizer_ ? optimizer_->state_bytes() : 0);
}

std::uint64_t ParameterState::saved_bytes() const {
  return committed_state_bytes() + (delayed_ ? committed_.size() : 0);
}

Result<Buffer> ParameterState::save() {
  return save(0, saved_bytes());
}

Result<Buffer> ParameterState::save(std::uint64_t first, std::uint64_t bytes) {
  auto state = committed_state();
  if (!state) return std::unexpected(std::move(state).error());
  if (first + bytes > committed_state_bytes()) {
    const auto before = version_before();
    if (!before) return std::unexpected(before.error());
    state->push_back(*before);
  }
  return copy_range(*state, first, bytes);
}

// The next step computes on it. The first two steps compute on version 0, so it is its own.
Result<BytesView> ParameterState::version_before() {
  if (committed_version_.value == 0) return committed_parameters();
  SWARMLINE_TRY(collect_versions());
  const Version before{committed_version_.value - 1};
  if (computing_version_ == before) return BytesView(model_.parameters());
  if (other_version_ == before) return BytesView(model_.other_parameters());
  return fail(ErrorCode::kIncompatible,
              fmt::format("version {} is not here to be saved", before.value));
}

Result<std::vector<BytesView>> ParameterState::committed_state() {
  if (!optimizer_) return std::unexpected(optimizer_.error());
  const auto parameters = committed_parameters();
  if (!parameters) return std::unexpected(parameters.error());
  std::vector<BytesView> state = {*parameters};
  for (const Moment moment : {Moment::kFirst, Moment::kSecond}) {
    auto values = optimizer_->moment(moment);
    if (!values) return std::unexpected(std::move(values).error());
    state.emplace_back(*values);
  }
  return state;
}

Result<void> ParameterState::load(Version version, BytesView state) {
  if (!optimizer_) return std::unexpected(optimizer_.error());
  if (state.size() != committed_state_bytes() && state.size() != saved_bytes())
    return fail(ErrorCode::kIncompatible, "a stage's state of another size");
  const std::byte* from = state.data();
  const auto take = [&](MutableBytes to) {
    std::copy_n(from, to.size(), to.begin());
    from += to.size();
  };
  take(committed_bytes());
  for (const Moment moment : {Moment::kFirst, Moment::kSecond}) {
    auto values = optimizer_->moment(moment);
    if (!values) return std::unexpected(std::move(values).error());
    take(*values);
  }
  SWARMLINE_TRY(optimizer_->moments_changed());
  SWARMLINE_TRY(bring_committed());
  committed_version_ = version;
  other_version_.reset();
  computing_version_ = version;
  if (delayed_ && state.size() == saved_bytes()) {
    take(model_.parameters());
    if (version.value > 0) --computing_version_.value;
  } else if (delayed_) {
    copy_bytes(committed_.bytes(), model_.parameters());
  }
  model_.parameters_changed();
  return {};
}

void ParameterState::load_parameters(Version version, BytesView parameters) {
  SWARMLINE_CHECK(!delayed_ && parameters.size() == parameter_bytes());
  copy_bytes(parameters, committed_bytes());
  committed_version_ = version;
  computing_version_ = version;
  model_.parameters_changed();
}

Result<void> ParameterState::adopt(ParameterState& from) {
  if (!optimizer_) return std::unexpected(optimizer_.error());
  if (!from.optimizer_) return std::unexpected(from.optimizer_.error());
  SWARMLINE_CHECK(layout().bytes() == from.layout().bytes() && delayed_ == from.delayed_);
  SWARMLINE_TRY(from.collect_versions());
  if (auto committed = from.committed_parameters(); !committed)
    return std::unexpected(committed.error());
  const auto copy = [](BytesView bytes, MutableBytes to) {
    std::copy(bytes.begin(), bytes.end(), to.begin());
  };
  if (from.other_version_) {
    copy(from.model_.other_parameters(), model_.other_parameters());
    model_.exchange_parameters();
    model_.parameters_changed();
    model_.exchange_parameters();
  }
  copy(from.model_.parameters(), model_.parameters());
  for (const Moment moment : {Moment::kFirst, Moment::kSecond}) {
    auto state = from.optimizer_->moment(moment);
    if (!state) return std::unexpected(std::move(state).error());
    auto place = optimizer_->moment(moment);
    if (!place) return std::unexpected(std::move(place).error());
    copy(*state, *place);
  }
  SWARMLINE_TRY(optimizer_->moments_changed());
  committed_version_ = from.committed_version_;
  computing_version_ = from.computing_version_;
  other_version_ = from.other_version_;
  if (pages_.empty()) {
    committed_ = std::move(from.committed_);
    reduced_ = std::move(from.reduced_);
  } else {
    copy(from.committed_.bytes(), committed_.bytes());
    copy(from.reduced_.bytes(), reduced_.bytes());
  }
  reduced_there_.clear();
  model_.parameters_changed();
  return bring_committed();
}

}  // namespace swarmline
