// SPDX-License-Identifier: Apache-2.0
#include "plan/choose.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>

#include "base/integers.h"
#include "geometry/route_tiles.h"

namespace snug {

namespace {

Verdict refuse(const char* format, ...) __attribute__((format(printf, 1, 2)));

Verdict refuse(const char* format, ...) {
  Verdict verdict;
  va_list args;
  va_start(args, format);
  std::vsnprintf(verdict.reason, sizeof verdict.reason, format, args);
  va_end(args);
  return verdict;
}

bool has_tile(const KernelFamily& family, int32_t tile) {
  const int32_t* end = family.route_tiles + family.num_route_tiles;
  return std::find(family.route_tiles, end, tile) != end;
}

/// The tile of a family at a token count: the caller's pin, its widest tile, or the monotone rule.
int32_t tile_at(const Caps& caps, const KernelFamily& family, int64_t num_tokens) {
  if (caps.route_tile_pin != 0) return caps.route_tile_pin;
  const int32_t widest = family.route_tiles[family.num_route_tiles - 1];
  if (family.route_tile_is_width) return widest;
  return min_of(select_route_block_size(num_tokens, caps.shape.top_k, caps.shape.num_experts),
                widest);
}

/// Chunk sizes to weigh: everything at once, and powers of two from 512 to below num_tokens; under
/// a limit also powers of four below 512, and chunks for the families that otherwise have none.
std::vector<int64_t> chunk_sizes(const Caps& caps, const KernelFamily& family, bool limited,
                                 int64_t num_tokens) {
  if (family.combine == Combine::token) return {1};
  const int64_t most = family.max_routes != 0 ? family.max_routes / caps.shape.top_k : kMaxTokens;
  std::vector<int64_t> sizes;
  if (num_tokens <= most) sizes.push_back(num_tokens);
  if (family.combine == Combine::owner && !limited) return sizes;
  for (int64_t c = limited ? 1 : 512; c < num_tokens && c <= most; c *= c < 256 ? 4 : 2) {
    sizes.push_back(c);
  }
  return sizes;
}

constexpr int64_t kMostWorkerColumns = 128;

/// Column blocks to weigh: hidden over 1, 2, 4, ... 64, each a multiple of the granule; for private
/// blocks 1, 2, 4, ... granules.
std::vector<int32_t> column_blocks(const Caps& caps, const KernelFamily& family) {
  if (family.combine == Combine::owner || family.combine == Combine::token) return {0};
  std::vector<int32_t> blocks;
  if (family.combine == Combine::worker_block) {
    const int64_t whole = align_up(caps.shape.hidden, family.column_granule);
    for (int64_t block = family.column_granule; block <= kMostWorkerColumns; block *= 2) {
      if (block <= whole) blocks.push_back(static_cast<int32_t>(block));
    }
    return blocks;
  }
  for (int64_t parts = 1; parts <= 64; parts *= 2) {
    const int64_t block = align_up(ceil_div(caps.shape.hidden, parts), family.column_granule);
    if (blocks.empty() || blocks.back() != block) blocks.push_back(static_cast<int32_t>(block));
  }
  return blocks;
}

}  // namespace

Verdict judge_family(const Caps& caps, const Device& device, const KernelFamily& family) {
  if (family.machine != device.machine) {
    return refuse("runs on %s, the device is %s", machine_name(family.machine),
                  machine_name(device.machine));
  }
  if (family.machine == Machine::cpu) {
    const CpuPath path = static_cast<CpuPath>(family.min_arch);
    if (caps.cpu_path != CpuPath::automatic && caps.cpu_path != path) {
      return refuse("cpu_path asks for %s", cpu_path_name(caps.cpu_path));
    }
    const char* best = cpu_path_name(static_cast<CpuPath>(device.arch));
    if (device.arch < family.min_arch) {
      return refuse("needs %s, the device has %s", cpu_path_name(path), best);
    }
    // One path for all token counts: a chunk or a limit then changes no bit.
    if (caps.cpu_path == CpuPath::automatic && device.arch > family.min_arch) {
      return refuse("the device has %s", best);
    }
  } else if (caps.cpu_path != CpuPath::automatic) {
    return refuse("cpu_path %s is for CPUs", cpu_path_name(caps.cpu_path));
  }
  if (device.arch < family.min_arch || (family.max_arch != 0 && device.arch > family.max_arch)) {
    if (family.min_arch == family.max_arch) {
      return refuse("needs sm_%d, have sm_%d", family.min_arch, device.arch);
    }
    return refuse("needs sm_%d or newer, have sm_%d", family.min_arch, device.arch);
  }
  if (family.smem_nbytes > device.smem_nbytes) {
    return refuse("needs %d bytes of shared memory a CTA, have %d", family.smem_nbytes,
                  device.smem_nbytes);
  }
  if (caps.route_tile_pin != 0 && !has_tile(family, caps.route_tile_pin)) {
    return refuse("route_tile_pin %d is not a tile of this family", caps.route_tile_pin);
  }
  if (caps.numerics != Numerics::contract && family.machine != Machine::reference) {
    return refuse("numerics other than contract are the reference backend's");
  }
  if (caps.batch_invariant && family.max_routes != 0) {
    return refuse(
        "batch_invariant needs one family for all token counts, this one ends at %lld "
        "routes",
        static_cast<long long>(family.max_routes));
  }
  return {};
}

std::vector<int64_t> decision_points(const Caps& caps, std::span<const KernelFamily> families) {
  std::vector<int64_t> points;
  for (int64_t m = 1; m < 16; ++m) points.push_back(m);
  for (int64_t octave = 16; octave <= kMaxTokens; octave *= 2) {
    points.push_back(octave);
    points.push_back(octave + octave / 2);
  }
  const int64_t top_k = caps.shape.top_k;
  for (const int32_t tile : kRouteTiles) {
    points.push_back(last_token_count_for_block(tile, top_k, caps.shape.num_experts));
  }
  for (const KernelFamily& family : families) {
    if (family.max_routes != 0) points.push_back(family.max_routes / top_k);
  }
  std::sort(points.begin(), points.end());
  points.erase(std::unique(points.begin(), points.end()), points.end());
  const auto first = std::lower_bound(points.begin(), points.end(), int64_t{1});
  const auto last = std::lower_bound(points.begin(), points.end(), caps.max_tokens);
  return {first, std::min(last + 1, points.end())};
}

std::vector<Candidate> candidates_at(const Caps& caps, const Device& device,
                                     std::span<const KernelFamily> families, const bool* accepted,
                                     bool limited, int64_t num_tokens) {
  std::vector<Candidate> found;
  for (size_t f = 0; f < families.size(); ++f) {
    const KernelFamily& family = families[f];
    if (!accepted[f]) continue;
    const int32_t tile = tile_at(caps, family, num_tokens);
    const std::vector<int32_t> blocks = column_blocks(caps, family);
    const PackedLayout weights = make_packed_layout(family.layout, caps.format, caps.shape,
                                                    caps.activation.kind, caps.has_bias);
    for (const int64_t chunk : chunk_sizes(caps, family, limited, num_tokens)) {
      for (const int32_t block : blocks) {
        const Policy policy = {static_cast<int32_t>(f), tile, block, chunk};
        found.push_back({policy, predict(caps, device, family, weights, policy, num_tokens).us});
      }
    }
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Candidate& a, const Candidate& b) { return a.us < b.us; });
  return found;
}

}  // namespace snug
