// SPDX-License-Identifier: Apache-2.0
// prepare: repacks experts one at a time into the layout of a backend, in memory that the caller
// owns. One resident copy, no staging; every expert arrives exactly once.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/result.h"
#include "geometry/packed_weights.h"
#include "weights/source.h"

namespace snug {

/// Repacks one expert into its record. `expert` is for messages.
///   record  layout.expert_nbytes bytes, 64-byte aligned, overwritten whole
/// Errors: a missing part; a stride, dtype or convention that cannot be; a global scale that is not
/// finite and positive; a block scale that is NaN or makes a weight infinite, naming expert,
/// projection and row; a bias that is not finite. The record's content is then unspecified.
Status prepare_expert(const PackedLayout& layout, const ExpertSource& source, int32_t expert,
                      uint8_t* record);

/// This rank's share under tensor parallelism: rows of gate and up, columns (k) of down. The down
/// bias stays on rank 0 alone, so that the sum over ranks adds it once.
///   intermediate  of the whole layer; must divide by num_ranks into multiples of the group
Result<ExpertSource> shard_expert(const ExpertSource& source, Format format, int64_t intermediate,
                                  int32_t rank, int32_t num_ranks);

/// The prepared weights of one layer and rank.
class WeightsBuilder {
 public:
  /// `storage`: layout.total_nbytes() bytes of the caller's, 64-byte aligned; kept, not owned.
  static Result<WeightsBuilder> make(const PackedLayout& layout, uint8_t* storage,
                                     uint64_t storage_nbytes);

  /// Packs local expert `expert`; refused when it is out of range or has already arrived.
  /// Different experts may be put from different threads.
  Status put(int32_t expert, const ExpertSource& source);

  /// Rewrites a prepared expert in place: addresses stay.
  Status update(int32_t expert, const ExpertSource& source);

  /// Refused until every expert has arrived, naming the first that has not.
  Status check_complete() const;

  const PackedLayout& layout() const { return layout_; }
  const uint8_t* data() const { return storage_; }

 private:
  PackedLayout layout_;
  uint8_t* storage_ = nullptr;
  std::vector<uint8_t> arrived_;  // [num_local_experts]
};

/// Called after each expert with the number done; a non-zero answer cancels.
using Progress = std::function<int(int64_t done, int64_t total)>;

/// Puts all experts of a builder from `source_of(local expert)`, on `num_threads` threads; the
/// progress callback runs on the calling thread. The first error wins.
Status prepare_all(WeightsBuilder& builder,
                   const std::function<Result<ExpertSource>(int32_t)>& source_of,
                   int32_t num_threads, const Progress& progress);

}  // namespace snug
