// SPDX-License-Identifier: Apache-2.0
// C++20 over snug.h: RAII handles and Result values; header-only, no exceptions, nothing hidden.
// Every function does what its C counterpart does; snug.h is the reference.
#ifndef SNUG_SNUG_HPP
#define SNUG_SNUG_HPP

#include <snug/snug.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace snug {
// Inline, so that these names are spelled snug::Plan but never meet the library's own at link time.
inline namespace hpp {

/// What went wrong; ok() when nothing did.
class [[nodiscard]] Error {
 public:
  Error() = default;
  bool ok() const { return data_.code == SNUG_OK; }
  snug_status code() const { return static_cast<snug_status>(data_.code); }
  int32_t native_code() const { return data_.native_code; }
  const char* message() const { return data_.message; }
  const char* code_name() const { return snug_status_name(data_.code); }
  /// For the C functions.
  snug_error* out() { return &data_; }

 private:
  snug_error data_{};
};

/// A value, or the Error that says why there is none.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  Result(Error error) : error_(error) {}
  bool has_value() const { return value_.has_value(); }
  explicit operator bool() const { return has_value(); }
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return std::move(*value_); }
  T& operator*() { return *value_; }
  const T& operator*() const { return *value_; }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }
  const Error& error() const { return error_; }

 private:
  std::optional<T> value_;
  Error error_;
};

namespace detail {
template <auto Destroy>
struct Deleter {
  template <class T>
  void operator()(T* handle) const {
    Destroy(handle);
  }
};

/// Calls a C function that fills a caller's text buffer, first for the size.
template <class Call>
Result<std::string> read_text(const Call& call) {
  Error error;
  size_t needed = 0;
  if (call(nullptr, size_t{0}, &needed, error.out()) != SNUG_OK) return error;
  std::string text(needed, '\0');
  if (call(text.data(), text.size(), &needed, error.out()) != SNUG_OK) return error;
  text.resize(needed - 1);
  return text;
}
}  // namespace detail

inline snug_caps make_caps() {
  snug_caps caps;
  snug_caps_init(&caps);
  return caps;
}

inline snug_io make_io() {
  snug_io io;
  snug_io_init(&io);
  return io;
}

inline snug_routing make_routing() {
  snug_routing routing;
  snug_routing_init(&routing);
  return routing;
}

inline snug_expert_source make_expert_source() {
  snug_expert_source source;
  snug_expert_source_init(&source);
  return source;
}

inline Result<snug_device> device_by_name(const char* name) {
  Error error;
  snug_device device;
  if (snug_device_by_name(name, &device, error.out()) != SNUG_OK) return error;
  return device;
}

inline Result<uint64_t> required_nbytes(const snug_caps& caps, const snug_device& device) {
  Error error;
  uint64_t nbytes = 0;
  if (snug_required_nbytes(&caps, &device, &nbytes, error.out()) != SNUG_OK) return error;
  return nbytes;
}

inline Result<uint64_t> reference_nbytes(const snug_caps& caps, const snug_device& device,
                                         bool unbounded) {
  Error error;
  uint64_t nbytes = 0;
  if (snug_reference_nbytes(&caps, &device, unbounded ? 1 : 0, &nbytes, error.out()) != SNUG_OK) {
    return error;
  }
  return nbytes;
}

inline Result<std::string> refusals(const snug_caps& caps, const snug_device& device) {
  return detail::read_text([&](char* buffer, size_t capacity, size_t* needed, snug_error* error) {
    return snug_plan_refusals(&caps, &device, buffer, capacity, needed, error);
  });
}

inline Error route(const snug_routing& routing, const void* logits, snug_dtype logits_dtype,
                   int64_t logits_stride, const float* bias, int64_t num_tokens,
                   int32_t num_experts, int32_t top_k, int32_t* topk_ids, float* topk_weights) {
  Error error;
  (void)snug_route(&routing, logits, logits_dtype, logits_stride, bias, num_tokens, num_experts,
                   top_k, topk_ids, topk_weights, error.out());
  return error;
}

/// A plan. Movable; destroyed with its last owner.
class Plan {
 public:
  static Result<Plan> make(const snug_caps& caps, const snug_device& device) {
    Error error;
    snug_plan* plan = nullptr;
    if (snug_plan_create(&caps, &device, &plan, error.out()) != SNUG_OK) return error;
    return Plan(plan);
  }
  uint64_t required_nbytes() const { return snug_plan_required_nbytes(handle_.get()); }
  uint64_t weights_nbytes() const { return snug_plan_weights_nbytes(handle_.get()); }
  Result<snug_schedule> schedule(int64_t num_tokens) const {
    Error error;
    snug_schedule s{};
    s.struct_size = sizeof s;
    if (snug_plan_schedule(handle_.get(), num_tokens, &s, error.out()) != SNUG_OK) return error;
    return s;
  }
  Result<std::string> explain(bool json = false) const {
    return detail::read_text(
        [&](char* buffer, size_t capacity, size_t* needed, snug_error* error) {
          return snug_plan_explain(handle_.get(), json ? 1 : 0, buffer, capacity, needed, error);
        });
  }
  const snug_plan* get() const { return handle_.get(); }

 private:
  explicit Plan(snug_plan* plan) : handle_(plan) {}
  std::unique_ptr<snug_plan, detail::Deleter<snug_plan_destroy>> handle_;
};

/// An opened checkpoint.
class Checkpoint {
 public:
  static Result<Checkpoint> open(const char* path) {
    Error error;
    snug_checkpoint* checkpoint = nullptr;
    if (snug_checkpoint_open(path, &checkpoint, error.out()) != SNUG_OK) return error;
    return Checkpoint(checkpoint);
  }
  snug_model_info model() const {
    snug_model_info info{};
    info.struct_size = sizeof info;
    (void)snug_checkpoint_model(handle_.get(), &info, nullptr);
    return info;
  }
  int32_t num_layers() const { return snug_checkpoint_num_layers(handle_.get()); }
  Result<snug_layer_info> layer(int32_t index) const {
    Error error;
    snug_layer_info info{};
    info.struct_size = sizeof info;
    if (snug_checkpoint_layer(handle_.get(), index, &info, error.out()) != SNUG_OK) return error;
    return info;
  }
  Result<snug_tensor> tensor(const char* name) const {
    Error error;
    snug_tensor tensor{};
    tensor.struct_size = sizeof tensor;
    if (snug_checkpoint_tensor(handle_.get(), name, &tensor, error.out()) != SNUG_OK) return error;
    return tensor;
  }
  const snug_checkpoint* get() const { return handle_.get(); }

 private:
  explicit Checkpoint(snug_checkpoint* checkpoint) : handle_(checkpoint) {}
  std::unique_ptr<snug_checkpoint, detail::Deleter<snug_checkpoint_close>> handle_;
};

/// Prepared weights in the caller's storage, which must outlive them.
class Weights {
 public:
  using Progress = std::function<bool(int64_t done, int64_t total)>;  // false cancels

  static Result<Weights> make(const Plan& plan, void* storage, uint64_t storage_nbytes) {
    Error error;
    snug_weights* weights = nullptr;
    if (snug_weights_create(plan.get(), storage, storage_nbytes, &weights, error.out()) !=
        SNUG_OK) {
      return error;
    }
    return Weights(weights);
  }
  Error put(int32_t expert, const snug_expert_source& source) {
    Error error;
    (void)snug_weights_put(handle_.get(), expert, &source, error.out());
    return error;
  }
  Error update(int32_t expert, const snug_expert_source& source) {
    Error error;
    (void)snug_weights_update(handle_.get(), expert, &source, error.out());
    return error;
  }
  Error load(const Checkpoint& checkpoint, int32_t layer_index, const snug_shard* shard = nullptr,
             int32_t num_threads = 1, Progress progress = {}) {
    Error error;
    const snug_progress call = [](void* context, int64_t done, int64_t total) {
      return (*static_cast<Progress*>(context))(done, total) ? 0 : 1;
    };
    (void)snug_weights_load(handle_.get(), checkpoint.get(), layer_index, shard, num_threads,
                            progress ? call : nullptr, &progress, error.out());
    return error;
  }
  Error check() const {
    Error error;
    (void)snug_weights_check(handle_.get(), error.out());
    return error;
  }
  const snug_weights* get() const { return handle_.get(); }

 private:
  explicit Weights(snug_weights* weights) : handle_(weights) {}
  std::unique_ptr<snug_weights, detail::Deleter<snug_weights_destroy>> handle_;
};

/// A checked call. Plain data: copy it, keep it, run it as often as its pointers are valid.
class Binding {
 public:
  static Result<Binding> make(const Plan& plan, const Weights& weights, const snug_io& io) {
    Error error;
    Binding binding;
    if (snug_bind(plan.get(), weights.get(), &io, &binding.data_, error.out()) != SNUG_OK) {
      return error;
    }
    return binding;
  }
  Error run(void* stream = nullptr) const {
    Error error;
    (void)snug_run(&data_, stream, error.out());
    return error;
  }

 private:
  snug_binding data_{};
};

}  // namespace hpp
}  // namespace snug

#endif  // SNUG_SNUG_HPP
