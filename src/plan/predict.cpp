// SPDX-License-Identifier: Apache-2.0
#include "plan/predict.h"

#include "base/integers.h"

namespace snug {

namespace {

// Rows that stay in the L2 cost a third of device memory (assumed; no machine measured says less).
constexpr double kL2Speed = 3.0;
// Share of the L2 that a column block of FC2 rows may count on.
constexpr double kL2Share = 0.5;
// What a worker's private rows may take of its own cache (half of 2 MiB; 1 MiB on smaller cores).
constexpr double kWorkerCache = 1 << 20;
// A finished column block is announced by its own counter while the next one is computed, so that
// handing over costs a fraction of a full barrier (assumed until the kernels are measured).
constexpr double kBlockHandover = 0.25;

/// base^exponent by squaring: the same bits on every machine, unlike pow().
double integer_power(double base, int64_t exponent) {
  double result = 1;
  for (; exponent > 0; exponent >>= 1, base *= base) {
    if (exponent & 1) result *= base;
  }
  return result;
}

/// Microseconds to move bytes at a rate in GB/s, or to do FLOPs at a rate in TFLOP/s.
double transfer_us(double nbytes, double gbps) { return nbytes / (gbps * 1e3); }
double compute_us(double flops, double tflops) { return flops / (tflops * 1e6); }

struct Work {  // of one chunk
  double tokens, routes, touched, slots;
};

Work work_of(const Caps& caps, const KernelFamily& family, const Policy& policy, int64_t tokens) {
  const MoeShape& s = caps.shape;
  Work w;
  w.tokens = static_cast<double>(tokens);
  const double local = static_cast<double>(s.num_local_experts) / s.num_experts;
  w.routes = w.tokens * s.top_k * local;
  w.touched = expected_touched_experts(s, tokens);
  const double tail = family.tail_slots < 0 ? (policy.route_tile - 1) * 0.5 : family.tail_slots;
  w.slots = w.routes + w.touched * tail;
  return w;
}

}  // namespace

double expected_touched_experts(const MoeShape& shape, int64_t num_tokens) {
  const double miss = integer_power(1.0 - 1.0 / shape.num_experts, num_tokens * shape.top_k);
  return shape.num_local_experts * (1.0 - miss);
}

namespace {

/// Adds one chunk's steps to `p`.
void add_chunk(const Caps& caps, const Device& device, const KernelFamily& family,
               const Policy& policy, const PackedLayout& layout, int64_t tokens, Prediction& p) {
  const Work w = work_of(caps, family, policy, tokens);
  const double hidden = caps.shape.hidden, intermediate = caps.shape.intermediate;
  const double read = device.read_gbps * family.read_fraction;
  const double rate = family.unit_tflops > 0
                          ? min_of(device.num_units * family.unit_tflops, device.matrix_tflops)
                          : device.matrix_tflops * family.matrix_fraction;
  const double n1 = static_cast<double>(layout.fc1.rows.value);

  StepCost& route = p.steps[static_cast<int>(Step::route)];
  route.nbytes += w.tokens * caps.shape.top_k * 12;
  route.us += family.groups_routes ? device.step_us : 0;

  StepCost& fc1 = p.steps[static_cast<int>(Step::fc1)];
  const double fc1_weights =
      w.touched * static_cast<double>(layout.fc1.codes_nbytes + layout.fc1.scales_nbytes);
  const double activated = w.routes * intermediate * 2;
  const double fc1_nbytes = fc1_weights + w.tokens * hidden * 2 + activated;
  fc1.nbytes += fc1_nbytes;
  fc1.flops += 2 * w.routes * n1 * hidden;
  fc1.us += device.step_us +
            max_of(transfer_us(fc1_nbytes, read), compute_us(2 * w.slots * n1 * hidden, rate));

  StepCost& fc2 = p.steps[static_cast<int>(Step::fc2)];
  const double fc2_weights =
      w.touched * static_cast<double>(layout.fc2.codes_nbytes + layout.fc2.scales_nbytes);
  const double fc2_nbytes = fc2_weights + activated;
  fc2.nbytes += fc2_nbytes;
  fc2.flops += 2 * w.routes * hidden * intermediate;
  fc2.us += device.step_us + max_of(transfer_us(fc2_nbytes, read),
                                    compute_us(2 * w.slots * hidden * intermediate, rate));

  StepCost& combine = p.steps[static_cast<int>(Step::combine)];
  const double out_nbytes = w.tokens * hidden * dtype_nbytes(caps.output_dtype);
  combine.nbytes += out_nbytes;
  combine.us += transfer_us(out_nbytes, device.read_gbps);
  if (family.combine == Combine::worker_block) {
    // Every column block reads the activated rows again; its own rows are written and read.
    const double passes = hidden / policy.column_block;
    const double rows_nbytes = 2 * w.routes * hidden * 4;
    const bool near = w.routes * policy.column_block * 4 <= kWorkerCache;
    combine.us += transfer_us(activated * passes, device.read_gbps) +
                  transfer_us(rows_nbytes, device.read_gbps * (near ? kL2Speed : 1.0));
  } else if (policy.column_block > 0) {
    const double rows_nbytes = 2 * w.routes * hidden * 4;  // written by FC2, read by the sum
    const double resident = w.routes * policy.column_block * 4 * kColumnBlocksInFlight;
    const bool in_l2 = resident <= kL2Share * static_cast<double>(device.l2_nbytes);
    if (!in_l2) combine.nbytes += rows_nbytes;
    combine.us += transfer_us(rows_nbytes, device.read_gbps * (in_l2 ? kL2Speed : 1.0));
  }
  if (family.combine == Combine::column_block) {
    const int64_t blocks = ceil_div(caps.shape.hidden, policy.column_block);
    combine.us += device.step_us * (1 + kBlockHandover * static_cast<double>(blocks - 1));
  }
}

}  // namespace

Prediction predict(const Caps& caps, const Device& device, const KernelFamily& family,
                   const Policy& policy, int64_t num_tokens) {
  const PackedLayout weights = make_packed_layout(family.layout, caps.format, caps.shape,
                                                  caps.activation.kind, caps.has_bias);
  return predict(caps, device, family, weights, policy, num_tokens);
}

Prediction predict(const Caps& caps, const Device& device, const KernelFamily& family,
                   const PackedLayout& layout, const Policy& policy, int64_t num_tokens) {
  Prediction p;
  const int64_t chunk = min_of(policy.chunk_tokens, num_tokens);
  if (chunk <= 0) return p;
  const int64_t whole = num_tokens / chunk, rest = num_tokens % chunk;
  add_chunk(caps, device, family, policy, layout, chunk, p);
  for (StepCost& step : p.steps) {
    step.nbytes *= static_cast<double>(whole);
    step.flops *= static_cast<double>(whole);
    step.us *= static_cast<double>(whole);
  }
  if (rest > 0) add_chunk(caps, device, family, policy, layout, rest, p);

  double flops = 0;
  for (const StepCost& step : p.steps) {
    p.us += step.us;
    flops += step.flops;
  }
  const double weights = expected_touched_experts(caps.shape, num_tokens) *
                         static_cast<double>(layout.fc1.codes_nbytes + layout.fc1.scales_nbytes +
                                             layout.fc2.codes_nbytes + layout.fc2.scales_nbytes);
  p.floor_us =
      max_of(transfer_us(weights, device.read_gbps), compute_us(flops, device.matrix_tflops));
  return p;
}

}  // namespace snug
