// SPDX-License-Identifier: Apache-2.0
#include "plan/bind.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "support/plan_inputs.h"

namespace snug {
namespace {

constexpr int32_t kExperts = 6, kLocal = 3, kTopK = 2, kHidden = 64, kIntermediate = 32;
constexpr int64_t kTokens = 5;

/// A rank's layer with memory for everything, valid as it is built.
struct Call {
  Caps caps;
  Device device;
  Plan plan;
  std::vector<uint8_t> memory;  // one block, so that overlaps are plain offsets
  uint8_t* base;
  int32_t map[kExperts] = {-1, 0, -1, 2, 1, -1};
  WeightsView weights;
  IoView io;
  Bound bound;

  explicit Call(const char* device_name = "cpu")
      : caps(make_layer()),
        device(test::device_named(device_name)),
        plan(test::must_plan(caps, device)),
        memory(1 << 20, 0x5A) {
    const auto address = reinterpret_cast<uintptr_t>(memory.data());
    base = memory.data() + (kArenaAlignment - address % kArenaAlignment) % kArenaAlignment;
    weights.layout =
        make_packed_layout(plan.families[plan.regimes[0].policy.family].layout, caps.format,
                           caps.shape, caps.activation.kind, caps.has_bias);
    uint8_t* next = base;
    const auto take = [&next](uint64_t nbytes) {
      uint8_t* at = next;
      next += (nbytes + 255) / 128 * 128;
      return at;
    };
    io.num_tokens = kTokens;
    io.x_stride = kHidden + 8;
    io.ids_stride = kTopK + 1;
    io.weights_stride = kTopK + 2;
    io.output_stride = kHidden + 16;
    io.x = take(kTokens * io.x_stride * 2);
    io.topk_ids = take(kTokens * io.ids_stride * 8);
    io.topk_weights = take(kTokens * io.weights_stride * 4);
    io.output = take(kTokens * io.output_stride * 4);
    io.arena = take(plan.required_nbytes);
    io.arena_nbytes = plan.required_nbytes;
    io.expert_map = map;
    weights.data = take(weights.layout.total_nbytes());
    EXPECT_LT(next, memory.data() + memory.size());
  }

  static Caps make_layer() {
    Caps made = test::make_caps(kExperts, kTopK, kHidden, kIntermediate, kTokens);
    made.shape.num_local_experts = kLocal;
    made.has_bias = true;
    made.num_threads = 2;
    return made;
  }

  Status bind() { return snug::bind(plan, weights, io, {}, &bound); }
};

TEST(Bind, AcceptsWhatIsValidAndChangesNothing) {
  for (const Device& device : known_devices()) {
    Call call(device.name);
    const std::vector<uint8_t> before = call.memory;
    const Executor executor = {[](void*, int32_t, Executor::Body, void*) { FAIL(); }, &call};
    const Status status = snug::bind(call.plan, call.weights, call.io, executor, &call.bound);
    ASSERT_TRUE(status.ok()) << status.message;
    EXPECT_EQ(call.memory, before) << "bind only looks";
    EXPECT_EQ(call.bound.io.arena, call.io.arena);
    EXPECT_EQ(call.bound.weights.data, call.weights.data);
    EXPECT_EQ(call.bound.executor.parallel, executor.parallel);
    EXPECT_EQ(call.bound.schedule.num_tokens, kTokens);
    EXPECT_EQ(call.bound.schedule.layout.required_nbytes,
              make_schedule(call.plan, kTokens).layout.required_nbytes);
  }
}

const std::function<void(Call&)> kAccepted[] = {
    [](Call& c) { c.io.ids_dtype = DType::s64; },
    [](Call& c) { c.io.weights_dtype = DType::bf16; },
    [](Call& c) { c.io.num_tokens = 1; },
    [](Call& c) { c.io.x_stride = kHidden; },
    [](Call& c) { c.io.ids_stride = c.io.weights_stride = kTopK; },
    [](Call& c) { c.io.output_stride = kHidden; },
    [](Call& c) { ++c.io.arena_nbytes; },
    [](Call& c) {
      c.map[0] = 0;  // a replica, declared
      c.io.allow_replicas = true;
    },
};

TEST(Bind, TheOtherFormsOfTheArgumentsAreAccepted) {
  for (const auto& change : kAccepted) {
    Call call;
    change(call);
    const Status status = call.bind();
    EXPECT_TRUE(status.ok()) << status.message;
  }
}

struct Refusal {
  const char* argument;  // the message starts with it
  Code code;
  std::function<void(Call&)> spoil;
};

template <class T>
T* shifted(const void* data, int64_t nbytes) {
  return reinterpret_cast<T*>(const_cast<uint8_t*>(static_cast<const uint8_t*>(data)) + nbytes);
}

const Refusal kRefusals[] = {
    {"num_tokens", Code::invalid_argument, [](Call& c) { c.io.num_tokens = kTokens + 1; }},
    {"num_tokens", Code::invalid_argument, [](Call& c) { c.io.num_tokens = -1; }},
    {"x", Code::invalid_argument, [](Call& c) { c.io.x = nullptr; }},
    {"topk_ids", Code::invalid_argument, [](Call& c) { c.io.topk_ids = nullptr; }},
    {"topk_weights", Code::invalid_argument, [](Call& c) { c.io.topk_weights = nullptr; }},
    {"output", Code::invalid_argument, [](Call& c) { c.io.output = nullptr; }},
    {"arena", Code::invalid_argument, [](Call& c) { c.io.arena = nullptr; }},
    {"weights", Code::invalid_argument, [](Call& c) { c.weights.data = nullptr; }},
    {"expert_map", Code::invalid_argument, [](Call& c) { c.io.expert_map = nullptr; }},
    {"x", Code::misaligned, [](Call& c) { c.io.x = shifted<void>(c.io.x, 1); }},
    {"topk_ids", Code::misaligned,
     [](Call& c) { c.io.topk_ids = shifted<void>(c.io.topk_ids, 2); }},
    {"topk_ids", Code::misaligned,
     [](Call& c) {
       c.io.ids_dtype = DType::s64;
       c.io.topk_ids = shifted<void>(c.io.topk_ids, 4);
     }},
    {"topk_weights", Code::misaligned,
     [](Call& c) { c.io.topk_weights = shifted<void>(c.io.topk_weights, 2); }},
    {"output", Code::misaligned, [](Call& c) { c.io.output = shifted<void>(c.io.output, 1); }},
    {"arena", Code::misaligned, [](Call& c) { c.io.arena = shifted<void>(c.io.arena, 64); }},
    {"weights", Code::misaligned,
     [](Call& c) { c.weights.data = shifted<uint8_t>(c.weights.data, 32); }},
    {"x", Code::invalid_argument, [](Call& c) { c.io.x_stride = kHidden - 1; }},
    {"x", Code::invalid_argument, [](Call& c) { c.io.x_stride = (int64_t{1} << 32) + 1; }},
    {"topk_ids", Code::invalid_argument, [](Call& c) { c.io.ids_stride = kTopK - 1; }},
    {"topk_weights", Code::invalid_argument, [](Call& c) { c.io.weights_stride = -kTopK; }},
    {"output", Code::invalid_argument, [](Call& c) { c.io.output_stride = 0; }},
    {"topk_ids", Code::invalid_argument, [](Call& c) { c.io.ids_dtype = DType::f32; }},
    {"topk_weights", Code::invalid_argument, [](Call& c) { c.io.weights_dtype = DType::f16; }},
    {"arena_nbytes", Code::arena_too_small, [](Call& c) { --c.io.arena_nbytes; }},
    {"arena_nbytes", Code::arena_too_small, [](Call& c) { c.io.arena_nbytes = 0; }},
    {"weights", Code::invalid_argument, [](Call& c) { c.weights.layout.tag = LayoutTag::plain; }},
    {"weights", Code::invalid_argument, [](Call& c) { c.weights.layout.format = Format::mxfp4; }},
    {"weights", Code::invalid_argument, [](Call& c) { c.weights.layout.gated = false; }},
    {"weights", Code::invalid_argument, [](Call& c) { c.weights.layout.has_bias = false; }},
    {"weights", Code::invalid_argument, [](Call& c) { ++c.weights.layout.num_local_experts; }},
    {"weights", Code::invalid_argument, [](Call& c) { c.weights.layout.expert_nbytes += 64; }},
    {"weights", Code::invalid_argument, [](Call& c) { c.weights.layout.fc1.rows.value += 2; }},
    {"weights", Code::invalid_argument, [](Call& c) { c.weights.layout.fc2.k += 16; }},
    {"weights", Code::invalid_argument, [](Call& c) { c.weights.layout = {}; }},
    {"expert_map", Code::invalid_argument, [](Call& c) { c.map[0] = kLocal; }},
    {"expert_map", Code::invalid_argument, [](Call& c) { c.map[0] = -2; }},
    {"expert_map", Code::invalid_argument, [](Call& c) { c.map[0] = 0; }},   // taken already
    {"expert_map", Code::invalid_argument, [](Call& c) { c.map[1] = -1; }},  // nobody is local 0
};

void expect_refused(Call& call, const char* argument, Code code) {
  const std::vector<uint8_t> before = call.memory;
  const Status status = call.bind();
  EXPECT_EQ(status.code, code) << argument << ": " << status.message;
  const std::string start = std::string(argument) + ":";
  EXPECT_EQ(std::strncmp(status.message, start.c_str(), start.size()), 0)
      << argument << ": " << status.message;
  EXPECT_EQ(call.memory, before) << "a refusal writes nothing";
}

TEST(Bind, EveryRefusalNamesItsArgument) {
  for (const Refusal& refusal : kRefusals) {
    Call call;
    refusal.spoil(call);
    expect_refused(call, refusal.argument, refusal.code);
  }
}

TEST(Bind, WeightsOfAnotherShapeAreRefused) {
  for (const auto& change : std::vector<std::function<void(MoeShape&)>>{
           [](MoeShape& s) { s.hidden += 16; }, [](MoeShape& s) { s.intermediate += 16; },
           [](MoeShape& s) { s.num_local_experts -= 1; }}) {
    Call call;
    MoeShape shape = call.caps.shape;
    change(shape);
    call.weights.layout = make_packed_layout(call.weights.layout.tag, call.caps.format, shape,
                                             call.caps.activation.kind, true);
    expect_refused(call, "weights", Code::invalid_argument);
  }
}

/// An argument as bytes, and the way to move it.
struct Part {
  const char* name;
  uint8_t* (*first)(const Call&);
  uint64_t (*nbytes)(const Call&);
  void (*move)(Call&, uint8_t*);
};

uint8_t* bytes_of(const void* data) { return shifted<uint8_t>(data, 0); }

const Part kParts[] = {
    {"x", [](const Call& c) { return bytes_of(c.io.x); },
     [](const Call& c) -> uint64_t { return ((kTokens - 1) * c.io.x_stride + kHidden) * 2; },
     [](Call& c, uint8_t* to) { c.io.x = to; }},
    {"topk_ids", [](const Call& c) { return bytes_of(c.io.topk_ids); },
     [](const Call& c) -> uint64_t { return ((kTokens - 1) * c.io.ids_stride + kTopK) * 4; },
     [](Call& c, uint8_t* to) { c.io.topk_ids = to; }},
    {"topk_weights", [](const Call& c) { return bytes_of(c.io.topk_weights); },
     [](const Call& c) -> uint64_t { return ((kTokens - 1) * c.io.weights_stride + kTopK) * 4; },
     [](Call& c, uint8_t* to) { c.io.topk_weights = to; }},
    {"expert_map", [](const Call& c) { return bytes_of(c.io.expert_map); },
     [](const Call&) -> uint64_t { return kExperts * 4; },
     [](Call& c, uint8_t* to) {
       std::memcpy(to, c.map, sizeof c.map);
       c.io.expert_map = reinterpret_cast<const int32_t*>(to);
     }},
    {"weights", [](const Call& c) { return bytes_of(c.weights.data); },
     [](const Call& c) { return static_cast<uint64_t>(c.weights.layout.total_nbytes()); },
     [](Call& c, uint8_t* to) { c.weights.data = to; }},
    {"output", [](const Call& c) { return bytes_of(c.io.output); },
     [](const Call& c) -> uint64_t { return ((kTokens - 1) * c.io.output_stride + kHidden) * 2; },
     [](Call& c, uint8_t* to) { c.io.output = to; }},
    {"arena", [](const Call& c) { return bytes_of(c.io.arena); },
     [](const Call& c) { return c.plan.required_nbytes; },
     [](Call& c, uint8_t* to) { c.io.arena = to; }},
};
constexpr size_t kOutput = 5, kArena = 6;

/// Two parts in a free corner of the memory: `high` starts `gap` bytes after the end of `low`.
Status bind_with_gap(const Part& low, const Part& high, int64_t gap) {
  Call call;
  uint8_t* corner = call.base + (1 << 19);
  uint8_t* at = corner + (1 << 16);
  high.move(call, at);
  low.move(call, at - low.nbytes(call) - gap);
  return call.bind();
}

// An aligned part cannot start at any byte, so the overlap is as small as both alignments allow.
void expect_overlap(const Part& written, const Part& other) {
  for (const auto& [low, high] : {std::pair{&written, &other}, std::pair{&other, &written}}) {
    Call call;
    const auto nbytes = static_cast<int64_t>(low->nbytes(call));
    const int64_t apart = -nbytes & (kArenaAlignment - 1);  // low starts on an aligned byte
    const Status touching = bind_with_gap(*low, *high, apart);
    EXPECT_TRUE(touching.ok()) << touching.message;
    const int64_t over = apart - static_cast<int64_t>(kArenaAlignment);
    const Status status = bind_with_gap(*low, *high, over);
    const std::string want = std::string(written.name) + ": overlaps " + other.name;
    EXPECT_EQ(status.code, Code::invalid_argument) << want;
    EXPECT_EQ(std::strncmp(status.message, want.c_str(), want.size()), 0)
        << want << " / " << status.message;
  }
}

TEST(Bind, WhatIsWrittenOverlapsNothing) {
  expect_overlap(kParts[kOutput], kParts[kArena]);
  for (size_t i = 0; i < kOutput; ++i) {
    expect_overlap(kParts[kOutput], kParts[i]);
    expect_overlap(kParts[kArena], kParts[i]);
  }
}

TEST(Bind, InputsMayShareBytes) {
  Call call;
  call.io.topk_weights = call.io.x;
  EXPECT_TRUE(call.bind().ok());
}

TEST(Bind, TheArenaMayStartWhereTheOutputEnds) {
  Call call;
  call.io.output_stride = kHidden;  // 5 x 64 bf16 = 640 bytes, a multiple of the alignment
  call.io.arena = static_cast<uint8_t*>(call.io.output) + kTokens * kHidden * 2;
  EXPECT_TRUE(call.bind().ok());
}

TEST(Bind, NoTokensNeedNoPointer) {
  for (const Device& device : known_devices()) {
    Call call(device.name);
    call.io = {};
    call.weights.data = nullptr;
    const Status status = call.bind();
    EXPECT_TRUE(status.ok()) << status.message;
    EXPECT_EQ(call.bound.schedule.num_chunks, 0);
  }
}

TEST(Bind, NoTokensStillNeedTheLayersWeights) {
  Call call;
  call.io = {};
  call.weights.layout.format = Format::mxfp4;
  expect_refused(call, "weights", Code::invalid_argument);
}

TEST(Bind, AnEmptyRankNeedsNoWeights) {
  Call call;
  call.caps.shape.num_local_experts = 0;
  call.plan = test::must_plan(call.caps, call.device);
  call.weights.layout = make_packed_layout(LayoutTag::panel_16x32, call.caps.format,
                                           call.caps.shape, call.caps.activation.kind, true);
  call.weights.data = nullptr;
  for (int32_t& local : call.map) local = -1;
  call.io.arena_nbytes = call.plan.required_nbytes;
  const Status status = call.bind();
  EXPECT_TRUE(status.ok()) << status.message;
}

TEST(Bind, WithoutAMapAllExpertsMustBeLocal) {
  Call call;
  call.io.expert_map = nullptr;
  expect_refused(call, "expert_map", Code::invalid_argument);
  call.caps.shape.num_local_experts = kExperts;
  call.plan = test::must_plan(call.caps, call.device);
  call.weights.layout = make_packed_layout(LayoutTag::panel_16x32, call.caps.format,
                                           call.caps.shape, call.caps.activation.kind, true);
  std::vector<uint8_t> data(static_cast<size_t>(call.weights.layout.total_nbytes()) + 64);
  call.weights.data = data.data() + (64 - reinterpret_cast<uintptr_t>(data.data()) % 64) % 64;
  std::vector<uint8_t> arena(call.plan.required_nbytes + kArenaAlignment);
  call.io.arena = arena.data() +
                  (kArenaAlignment - reinterpret_cast<uintptr_t>(arena.data()) % kArenaAlignment) %
                      kArenaAlignment;
  call.io.arena_nbytes = call.plan.required_nbytes;
  const Status status = call.bind();
  EXPECT_TRUE(status.ok()) << status.message;
}

}  // namespace
}  // namespace snug
