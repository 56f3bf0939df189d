/* SPDX-License-Identifier: Apache-2.0 */
/* One expert layer from your own memory, in C. Every weight and every x is 1.0. */
#include <snug/snug.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kHidden = 64, kIntermediate = 32, kExperts = 4, kTopK = 2, kTokens = 3 };

static snug_error error;
static void check(snug_status status) {
  if (status == SNUG_OK) return;
  fprintf(stderr, "%s: %s\n", snug_status_name(status), error.message);
  exit(1);
}

static void* memory(uint64_t nbytes) { return aligned_alloc(128, (nbytes / 128 + 1) * 128); }

/* A projection whose weights are all 1.0: codes of value 1.0, scales 2^(127 - 127). */
static uint8_t codes[kHidden * kIntermediate / 2], scales[kHidden * kIntermediate / 32];

static void ones(snug_matrix* matrix, int k) {
  matrix->codes = memset(codes, 0x22, sizeof codes);
  matrix->code_row_nbytes = k / 2;
  matrix->scales = memset(scales, 127, sizeof scales);
  matrix->scale_row_nbytes = k / 32;
}

int main(void) {
  snug_caps caps;
  snug_caps_init(&caps);
  caps.hidden = kHidden;
  caps.intermediate = kIntermediate;
  caps.num_experts = caps.num_local_experts = kExperts;
  caps.top_k = kTopK;
  caps.format = SNUG_MXFP4;
  caps.activation.kind = SNUG_RELU2; /* max(x, 0)^2: no up projection */
  caps.output_dtype = SNUG_F32;
  caps.max_tokens = kTokens;
  snug_device device;
  check(snug_device_by_name("cpu", &device, &error));
  snug_plan* plan;
  check(snug_plan_create(&caps, &device, &plan, &error));

  snug_weights* weights;
  const uint64_t nbytes = snug_plan_weights_nbytes(plan);
  void* storage = memory(nbytes);
  check(snug_weights_create(plan, storage, nbytes, &weights, &error));
  snug_expert_source source;
  snug_expert_source_init(&source);
  ones(&source.gate, kHidden);
  ones(&source.down, kIntermediate);
  for (int e = 0; e < kExperts; ++e) check(snug_weights_put(weights, e, &source, &error));

  uint16_t x[kTokens][kHidden]; /* bf16 1.0 = 0x3f80 */
  for (int t = 0; t < kTokens; ++t) {
    for (int k = 0; k < kHidden; ++k) x[t][k] = 0x3f80;
  }
  const int32_t ids[kTokens][kTopK] = {{0, 1}, {2, 3}, {3, -1}}; /* -1 contributes nothing */
  const float router[kTokens][kTopK] = {{0.25f / 512, 0.125f / 512}, {1, 1}, {1, 1}};
  float y[kTokens][kHidden];
  snug_io io;
  snug_io_init(&io);
  io.num_tokens = kTokens;
  io.x = x, io.topk_ids = ids, io.topk_weights = router, io.output = y;
  io.x_stride = io.output_stride = kHidden;
  io.ids_stride = io.weights_stride = kTopK;
  io.arena_nbytes = snug_plan_required_nbytes(plan), io.arena = memory(io.arena_nbytes);
  snug_binding binding;
  check(snug_bind(plan, weights, &io, &binding, &error));
  check(snug_run(&binding, NULL, &error));

  snug_weights_destroy(weights);
  snug_plan_destroy(plan);
  free(io.arena);
  free(storage);
  printf("arena %llu bytes\n", (unsigned long long)io.arena_nbytes);
  printf("y[0][0] = %g (want 64^2 * 32 * (0.25 + 0.125) / 512 = 96)\n", (double)y[0][0]);
  return y[0][0] == 96.0f ? 0 : 1;
}
