// SPDX-License-Identifier: Apache-2.0
// Route tiles: how many rows of one expert a launch handles together, and what that costs in slots.
//
//   routes of expert e   |r r r r r|r r r . .|      tile of 5: two tiles, 8 routes, 10 slots
//
// Every expert's routes are padded to a multiple of the tile, so a larger tile wastes slots when
// routes are few and a smaller one reads the weights more often when they are many.
#pragma once

#include <cstdint>
#include <limits>

#include "base/integers.h"
#include "base/macros.h"

namespace snug {

/// The route tiles of the mma.sync families, ascending.
inline constexpr int32_t kRouteTiles[] = {8, 16, 32, 48, 64};
inline constexpr int32_t kNumRouteTiles = 5;

/// kRouteTiles[index] as arithmetic, because device code cannot index a host array.
SNUG_HD constexpr int32_t route_tile(int32_t index) { return index == 0 ? 8 : 16 * index; }

constexpr bool is_route_tile(int64_t block) {
  for (const int32_t tile : kRouteTiles) {
    if (tile == block) return true;
  }
  return false;
}

/// A contiguous ascending slice of kRouteTiles, as a value.
struct RouteBlocks {
  int32_t sizes[kNumRouteTiles] = {};
  int32_t count = 0;

  constexpr const int32_t* begin() const { return sizes; }
  constexpr const int32_t* end() const { return sizes + count; }
  constexpr bool contains(int64_t block) const {
    for (int32_t i = 0; i < count; ++i) {
      if (sizes[i] == block) return true;
    }
    return false;
  }
};

/// The smallest tile b whose nine tenths exceed the mean number of routes of an expert
/// (num_tokens * top_k / num_experts < 0.9 * b, in integers), else the largest tile.
/// Monotone in num_tokens. num_tokens >= 0 (any), 1 <= top_k <= 32, 1 <= num_experts <= 4096.
SNUG_HD constexpr int32_t select_route_block_size(int64_t num_tokens, int64_t top_k,
                                                  int64_t num_experts) {
  // From 9 * 64 * num_experts tokens on the answer is the largest tile; the bound keeps the
  // product below 2^63 for every token count.
  const int64_t tokens = min_of<int64_t>(num_tokens, 9 * 64 * num_experts);
  for (int32_t i = 0; i < kNumRouteTiles; ++i) {
    if (10 * tokens * top_k < 9 * route_tile(i) * num_experts) return route_tile(i);
  }
  return route_tile(kNumRouteTiles - 1);
}

/// The largest token count that selects `block`: 0 when no positive count does (or `block` is not
/// a route tile), the largest int64 for the largest tile.
SNUG_HD constexpr int64_t last_token_count_for_block(int64_t block, int64_t top_k,
                                                     int64_t num_experts) {
  int64_t before = 0;  // the last count of the tiles below
  for (int32_t i = 0; i < kNumRouteTiles; ++i) {
    const bool largest = i == kNumRouteTiles - 1;
    // Largest m with 10 * m * top_k < 9 * tile * num_experts.
    const int64_t last = largest ? std::numeric_limits<int64_t>::max()
                                 : (9 * route_tile(i) * num_experts - 1) / (10 * top_k);
    if (route_tile(i) == block) return last > before ? last : 0;
    before = last;
  }
  return 0;
}

/// Every tile that some live count in 1..max_tokens may select: the contiguous slice from the
/// selection of one token to that of max_tokens (at least 1). With so few experts that one more
/// token jumps over a tile, the slice still holds the tile between.
constexpr RouteBlocks route_block_sizes_for_capacity(int64_t max_tokens, int64_t top_k,
                                                     int64_t num_experts) {
  const int32_t low = select_route_block_size(1, top_k, num_experts);
  const int32_t high = select_route_block_size(max_of<int64_t>(max_tokens, 1), top_k, num_experts);
  RouteBlocks blocks;
  for (const int32_t tile : kRouteTiles) {
    if (low <= tile && tile <= high) blocks.sizes[blocks.count++] = tile;
  }
  return blocks;
}

/// The most slots that `num_routes` routes can take when each expert's share is padded to `block`:
/// every expert may waste block - 1 of them; with fewer routes than experts, an expert without
/// routes takes none. A bound for every routing, reached by some when num_routes <= num_experts or
/// num_routes - num_experts is a multiple of block.
SNUG_HD constexpr int64_t max_packed_slots(int64_t num_routes, int64_t block, int64_t num_experts) {
  const int64_t padded = num_routes + num_experts * (block - 1);
  return num_routes < num_experts ? min_of<int64_t>(padded, num_routes * block) : padded;
}

/// The smallest power of two that is >= num_tokens, at least 1. num_tokens <= 2^62.
SNUG_HD constexpr int64_t token_bucket(int64_t num_tokens) {
  int64_t bucket = 1;
  while (bucket < num_tokens) bucket *= 2;
  return bucket;
}

}  // namespace snug
