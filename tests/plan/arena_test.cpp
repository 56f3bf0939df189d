// SPDX-License-Identifier: Apache-2.0
#include "plan/arena.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "geometry/route_tiles.h"
#include "support/plan_inputs.h"

namespace snug {
namespace {

std::vector<KernelFamily> all_families() {
  std::vector<KernelFamily> all;
  for (const std::span<const KernelFamily> table :
       {std::span<const KernelFamily>(reference::kFamilies),
        std::span<const KernelFamily>(cpu::kFamilies),
        std::span<const KernelFamily>(cuda::kFamilies)}) {
    all.insert(all.end(), table.begin(), table.end());
  }
  return all;
}

/// The column blocks that fit a family: none, or one granule, and the whole width.
std::vector<int32_t> blocks_of(const KernelFamily& family, int32_t hidden) {
  if (family.combine == Combine::owner || family.combine == Combine::token) return {0};
  const int32_t granule = family.column_granule;
  return {granule, static_cast<int32_t>(align_up(hidden, granule))};
}

/// Calls `body(caps, family, policy)` for every small layer and every kernel family.
template <class Body>
void for_each_small_layer(Body body) {
  for (const KernelFamily& family : all_families()) {
    for (const int32_t experts : {1, 2, 3, 7, 40, 97, 512, 4096}) {
      for (const int32_t local : {0, 1, experts / 2, experts}) {
        for (const int32_t top_k : {1, 3, 8}) {
          for (const int32_t intermediate : {16, 48, 512}) {
            for (const int32_t hidden : {16, 320}) {
              Caps caps = test::make_caps(experts, top_k, hidden, intermediate, 4096);
              caps.shape.num_local_experts = local;
              caps.num_threads = 3;
              for (const int32_t block : blocks_of(family, hidden)) {
                for (const int32_t tile :
                     {family.route_tiles[0], family.route_tiles[family.num_route_tiles - 1]}) {
                  body(caps, family, Policy{0, tile, block, 4096});
                  if (testing::Test::HasFatalFailure()) return;
                }
              }
            }
          }
        }
      }
    }
  }
}

constexpr int64_t kChunks[] = {1,  2,  3,  4,  5,  6,  7,  8,   9,   15,  16,
                               17, 31, 33, 63, 64, 65, 96, 100, 128, 300, 1000};

std::string name_of(const Caps& caps, const KernelFamily& family, const Policy& policy,
                    int64_t chunk) {
  std::ostringstream text;
  showValue(caps, text);
  text << " " << family.name << " tile " << policy.route_tile << " block " << policy.column_block
       << " chunk " << chunk;
  return text.str();
}

/// The first thing that is wrong with a layout, or "".
std::string fault_of(const ArenaLayout& layout) {
  uint64_t furthest = 0;
  for (int i = 0; i < kNumSlices; ++i) {
    const Slice& a = layout.slices[i];
    const std::string name = slice_name(static_cast<SliceId>(i));
    if (a.nbytes == 0) continue;
    if (a.offset % kArenaAlignment != 0) return name + " is not aligned";
    if (a.first > a.last) return name + " dies before it is born";
    if (a.nbytes % static_cast<uint64_t>(dtype_nbytes(a.dtype)) != 0) return name + " is cut";
    furthest = std::max(furthest, a.offset + a.nbytes);
    for (int j = 0; j < i; ++j) {
      const Slice& b = layout.slices[j];
      const bool live_together = a.first <= b.last && b.first <= a.last;
      const bool touch = a.offset < b.offset + b.nbytes && b.offset < a.offset + a.nbytes;
      if (b.nbytes != 0 && live_together && touch) {
        return name + " overlaps " + slice_name(static_cast<SliceId>(j));
      }
    }
  }
  return furthest == layout.required_nbytes ? "" : "required_nbytes is not the furthest end";
}

TEST(Arena, SlicesThatLiveTogetherAreDisjointAlignedAndInside) {
  for_each_small_layer([](const Caps& caps, const KernelFamily& family, const Policy& policy) {
    for (const int64_t chunk : kChunks) {
      const ArenaLayout layout = lay_out_arena(caps, family, policy, chunk);
      const std::string fault = fault_of(layout);
      if (!fault.empty()) FAIL() << fault << ": " << name_of(caps, family, policy, chunk);
    }
  });
}

// A regime is priced at its last count, so no smaller count of it may need more.
TEST(Arena, BytesAndOffsetsNeverShrinkWhenTheChunkGrows) {
  for_each_small_layer([](const Caps& caps, const KernelFamily& family, const Policy& policy) {
    ArenaLayout before = lay_out_arena(caps, family, policy, 1);
    for (const int64_t chunk : kChunks) {
      const ArenaLayout now = lay_out_arena(caps, family, policy, chunk);
      ASSERT_GE(now.required_nbytes, before.required_nbytes)
          << name_of(caps, family, policy, chunk);
      for (int i = 0; i < kNumSlices; ++i) {
        const char* name = slice_name(static_cast<SliceId>(i));
        ASSERT_GE(now.slices[i].nbytes, before.slices[i].nbytes) << name;
        ASSERT_TRUE(now.slices[i].nbytes != 0 || now.slices[i].offset == 0) << name;
        ASSERT_GE(now.slices[i].offset, before.slices[i].offset)
            << name << ": " << name_of(caps, family, policy, chunk);
      }
      before = now;
    }
  });
}

TEST(Arena, TheCursorSharesBytesWithALaterSlice) {
  const Caps caps = test::published_layer(64);
  for (const KernelFamily& family : {cpu::kFamilies[0], cuda::kFamilies[0], cuda::kFamilies[1]}) {
    const Policy policy = {0, family.route_tiles[0], blocks_of(family, 6144)[0], 64};
    const ArenaLayout layout = lay_out_arena(caps, family, policy, 64);
    const Slice& cursor = layout[SliceId::expert_cursor];
    ASSERT_EQ(cursor.nbytes, 160u * 4);
    EXPECT_EQ(cursor.last, Step::route);
    const Slice& activated = layout[SliceId::activated];
    EXPECT_GE(cursor.offset, activated.offset) << family.name;
    EXPECT_LE(cursor.offset + cursor.nbytes, activated.offset + activated.nbytes) << family.name;
    uint64_t sum = 0;
    for (const Slice& slice : layout.slices) sum += align_up(slice.nbytes, kArenaAlignment);
    EXPECT_LT(layout.required_nbytes, sum - cursor.nbytes + kArenaAlignment) << family.name;
  }
}

TEST(Arena, SlicesOfOneLayerByHand) {
  Caps caps = test::make_caps(160, 8, 6144, 512, 64);
  const KernelFamily& grouped = cuda::kFamilies[1];
  const Policy policy = {1, 8, 1536, 64};
  const ArenaLayout layout = lay_out_arena(caps, grouped, policy, 64);
  EXPECT_EQ(layout[SliceId::sync].nbytes, (64u + 4) * 4);
  EXPECT_EQ(layout[SliceId::local_expert].nbytes, 512u * 4);
  EXPECT_EQ(layout[SliceId::expert_offsets].nbytes, 161u * 4);
  EXPECT_EQ(layout[SliceId::slot_route].nbytes, 512u * 4);
  EXPECT_EQ(layout[SliceId::tile_expert].nbytes, 204u * 4);  // 1632 slots in tiles of 8
  EXPECT_EQ(layout[SliceId::active_experts].nbytes, 160u * 4);
  EXPECT_EQ(layout[SliceId::activated].nbytes, 512u * 512 * 2);
  EXPECT_EQ(layout[SliceId::fc2_rows].nbytes, 2u * 512 * 1536 * 4);  // two blocks in flight
  // One block in all: only one exists.
  const ArenaLayout whole = lay_out_arena(caps, grouped, {1, 8, 6144, 64}, 64);
  EXPECT_EQ(whole[SliceId::fc2_rows].nbytes, 512u * 6144 * 4);

  caps.num_threads = 3;  // a private block each
  const ArenaLayout on_cpu = lay_out_arena(caps, cpu::kFamilies[0], {0, 32, 32, 64}, 64);
  EXPECT_EQ(on_cpu[SliceId::fc2_rows].nbytes, 3u * 512 * 32 * 4);
  EXPECT_EQ(on_cpu[SliceId::tile_expert].nbytes, 0u);

  const ArenaLayout loops = lay_out_arena(caps, reference::kFamilies[0], {0, 1, 0, 1}, 1);
  EXPECT_EQ(loops[SliceId::activated].nbytes, 512u * 8);
  EXPECT_EQ(loops[SliceId::fc2_rows].nbytes, 6144u * 8);
  EXPECT_EQ(loops.required_nbytes, (512u + 6144) * 8);
}

TEST(Arena, LifetimesCoverWriterAndReaders) {
  const ArenaLayout layout =
      lay_out_arena(test::published_layer(64), cuda::kFamilies[1], {1, 8, 1536, 64}, 64);
  struct Life {
    SliceId id;
    Step first, last;
  };
  const ArenaLayout on_cpu =
      lay_out_arena(test::published_layer(64), cpu::kFamilies[0], {0, 32, 32, 64}, 64);
  constexpr Life kLives[] = {
      {SliceId::sync, Step::route, Step::combine},
      {SliceId::local_expert, Step::route, Step::combine},  // the sum skips remote routes
      {SliceId::expert_offsets, Step::route, Step::fc2},
      {SliceId::slot_route, Step::route, Step::fc2},
      {SliceId::tile_expert, Step::route, Step::fc2},
      {SliceId::activated, Step::fc1, Step::fc2},
      {SliceId::fc2_rows, Step::fc2, Step::combine},
      {SliceId::worker_scratch, Step::fc1, Step::fc2},
      {SliceId::active_experts, Step::route, Step::fc2},
      {SliceId::expert_cursor, Step::route, Step::route},
  };
  ASSERT_EQ(std::size(kLives), static_cast<size_t>(kNumSlices));
  for (const Life& life : kLives) {
    const Slice& slice = (life.id == SliceId::worker_scratch ? on_cpu : layout)[life.id];
    EXPECT_GT(slice.nbytes, 0u) << slice_name(life.id);
    EXPECT_LE(slice.first, life.first) << slice_name(life.id);
    EXPECT_GE(slice.last, life.last) << slice_name(life.id);
  }
}

}  // namespace
}  // namespace snug
