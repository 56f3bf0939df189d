/* SPDX-License-Identifier: Apache-2.0 */
/* Snug: the routed-expert layer of mixture-of-experts models with 4-bit weights and 16-bit
 * activations, in scratch memory that the caller owns and that is priced exactly.
 *
 *   caps + device -> plan -> (weights) -> bind -> run
 *
 * Rules that hold everywhere:
 *   - Every function that can fail returns snug_status; details go to a caller-owned snug_error,
 *     which may be null. A message names the argument, what it was, and what it may be.
 *   - Every descriptor begins with struct_size; fill it by its snug_..._init function.
 *   - snug_bind and snug_run allocate nothing and never print. Nothing reads the environment.
 *   - Handles are immutable once made (weights: once complete) and may be shared by threads; a
 *     binding and its arena belong to one run at a time.
 */
#ifndef SNUG_SNUG_H
#define SNUG_SNUG_H

#include <stddef.h>
#include <stdint.h>

#if defined(SNUG_STATIC) || !defined(__GNUC__)
#define SNUG_API
#else
#define SNUG_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------- version and errors */

#define SNUG_VERSION_MAJOR 0
#define SNUG_VERSION_MINOR 1
#define SNUG_VERSION_PATCH 0

/* "0.1.0"; static storage. */
SNUG_API const char* snug_version(void);

typedef enum snug_status {
  SNUG_OK = 0,
  SNUG_INVALID_ARGUMENT = 1,   /* fix the named argument */
  SNUG_UNSUPPORTED = 2,        /* valid, but no kernel of this build does it */
  SNUG_ARENA_TOO_SMALL = 3,    /* give the named number of bytes */
  SNUG_MISALIGNED = 4,         /* align the named pointer */
  SNUG_CORRUPT_CHECKPOINT = 5, /* the file is not what it says it is */
  SNUG_IO_ERROR = 6,           /* the system's error is in native_code */
  SNUG_DEVICE_ERROR = 7,       /* the driver's error is in native_code */
  SNUG_CANCELLED = 8,          /* a progress callback asked to stop */
  SNUG_INTERNAL = 9            /* a bug of Snug's */
} snug_status;

/* Filled on failure, untouched on success. */
typedef struct snug_error {
  int32_t code;        /* snug_status */
  int32_t native_code; /* errno, cudaError_t, ...; 0 when there is none */
  char message[248];   /* lower case, argument first, zero-terminated */
} snug_error;

/* "ok", "invalid_argument", ...; "unknown" for other values; static storage. */
SNUG_API const char* snug_status_name(int32_t status);

/* ---------------------------------------------------------------- enumerations */

typedef enum snug_dtype {
  SNUG_BF16 = 0,
  SNUG_F16 = 1,
  SNUG_F32 = 2,
  SNUG_F64 = 3,
  SNUG_S32 = 4,
  SNUG_S64 = 5,
  SNUG_U8 = 6,
  SNUG_S8 = 7,
  SNUG_E4M3 = 8,
  SNUG_E8M0 = 9,
  SNUG_E2M1X2 = 10
} snug_dtype;

typedef enum snug_format {
  SNUG_NVFP4 = 0, /* E2M1, an E4M3 scale per 16 along K, an f32 scale per projection */
  SNUG_MXFP4 = 1  /* E2M1, an E8M0 scale per 32 along K */
} snug_format;

typedef enum snug_activation_kind {
  SNUG_SILU = 0,         /* g * sigmoid(g) * u */
  SNUG_GELU_TANH = 1,    /* gelu(g), tanh form, * u */
  SNUG_GELU = 2,         /* gelu(g), erf form, * u */
  SNUG_RELU2 = 3,        /* max(x, 0)^2; not gated: no up projection */
  SNUG_SWIGLU_OAI = 4,   /* g' * sigmoid(alpha g') * (u' + beta); g' = min(g, limit),
                            u' = u clamped to +-limit */
  SNUG_SILU_CLAMPED = 5, /* silu(g') * u' */
  SNUG_SITU = 6          /* 4 tanh(g / 4) sigmoid(g) * 25 tanh(u / 25) */
} snug_activation_kind;

typedef enum snug_backend {
  SNUG_BACKEND_REFERENCE = 0, /* plain loops; the judge */
  SNUG_BACKEND_CPU = 1,
  SNUG_BACKEND_CUDA = 2
} snug_backend;

/* Instruction sets of the CPU backend; each path needs what the ones before it need. */
typedef enum snug_cpu_path {
  SNUG_CPU_AUTOMATIC = 0, /* the fastest that the device has */
  SNUG_CPU_PORTABLE = 1,
  SNUG_CPU_AVX2 = 2,   /* with FMA and F16C */
  SNUG_CPU_AVX512 = 3, /* F, BW, DQ, VL */
  SNUG_CPU_VNNI = 4,   /* AVX-512 VNNI */
  SNUG_CPU_BF16 = 5,   /* AVX-512 BF16 */
  SNUG_CPU_AMX = 6     /* AMX tiles with bf16 */
} snug_cpu_path;

typedef enum snug_numerics {
  SNUG_NUMERICS_CONTRACT = 0,         /* f32 accumulation, activated values rounded to bf16 */
  SNUG_NUMERICS_FLOAT64 = 1,          /* reference only: f64, activated values rounded to bf16 */
  SNUG_NUMERICS_FLOAT64_UNROUNDED = 2 /* reference only: f64, nothing rounded before the output */
} snug_numerics;

/* ---------------------------------------------------------------- devices */

/* A device is a value: plans need no hardware. */
typedef struct snug_device {
  uint32_t struct_size;
  int32_t backend;     /* snug_backend */
  int32_t arch;        /* CUDA: 80, 89, 90, 120; CPU: 0 */
  int32_t num_units;   /* SMs, or cores */
  int32_t smem_nbytes; /* shared memory a CTA may ask for; CPU: 0 */
  int32_t reserved;    /* 0 */
  int64_t l2_nbytes;
  double read_gbps;     /* device memory */
  double matrix_tflops; /* dense bf16 */
  double step_us;       /* a dependent launch, or a barrier over all workers */
  char name[24];
} snug_device;

/* Number of devices known by name, and the index-th of them (0-based). */
SNUG_API int32_t snug_num_known_devices(void);
SNUG_API snug_status snug_known_device(int32_t index, snug_device* device, snug_error* error);

/* h200, rtx-pro-6000, a100, l40s, cpu, reference; the error lists the names. */
SNUG_API snug_status snug_device_by_name(const char* name, snug_device* device, snug_error* error);

/* ---------------------------------------------------------------- caps and plan */

typedef struct snug_activation {
  int32_t kind; /* snug_activation_kind */
  float alpha;  /* swiglu_oai; else 1 */
  float beta;   /* swiglu_oai; else 0 */
  float limit;  /* swiglu_oai, silu_clamped; else 0 */
} snug_activation;

/* Everything a plan depends on besides the device. Sizes are this rank's. */
typedef struct snug_caps {
  uint32_t struct_size;
  int32_t hidden;            /* a multiple of the format's group: 16 nvfp4, 32 mxfp4 */
  int32_t intermediate;      /* the same; this rank's share under tensor parallelism */
  int32_t num_experts;       /* global: what topk_ids count; 1..4096 */
  int32_t num_local_experts; /* whose weights this rank holds; 0..num_experts */
  int32_t top_k;             /* 1..32 */
  int32_t format;            /* snug_format */
  snug_activation activation;
  int32_t has_bias;               /* 0 or 1: biases of both projections */
  int32_t router_weight_on_input; /* 0 or 1: weights multiply FC1's output; top_k must be 1 */
  int32_t batch_invariant;        /* 0 or 1: a token's bits do not depend on the other tokens */
  int32_t output_dtype;           /* SNUG_BF16 or SNUG_F32 */
  int32_t numerics;               /* snug_numerics */
  int32_t route_tile_pin;         /* 0 = automatic; else honoured exactly or refused */
  int32_t num_threads;            /* CPU workers; their private scratch is priced */
  int32_t cpu_path;               /* snug_cpu_path: automatic, or this path or a refusal */
  int64_t max_tokens;             /* 1..2^24 */
  int64_t expected_tokens;        /* 0 = max_tokens; the speed rule is strict up to here */
  uint64_t arena_limit;           /* bytes; 0 = none */
} snug_caps;

/* Zeroes, struct_size, num_experts = num_local_experts = top_k = num_threads = 1, silu, bf16. */
SNUG_API void snug_caps_init(snug_caps* caps);

/* The exact arena bytes of a plan: host arithmetic, no device, nothing kept, below 1 ms. */
SNUG_API snug_status snug_required_nbytes(const snug_caps* caps, const snug_device* device,
                                          uint64_t* required_nbytes, snug_error* error);

typedef struct snug_plan snug_plan;

/* Plans a layer. The handle is a heap copy of a value; destroy it with snug_plan_destroy.
 * Errors: SNUG_INVALID_ARGUMENT or SNUG_UNSUPPORTED naming the field; SNUG_ARENA_TOO_SMALL when
 * arena_limit cannot be met, naming the smallest feasible size. */
SNUG_API snug_status snug_plan_create(const snug_caps* caps, const snug_device* device,
                                      snug_plan** plan, snug_error* error);
SNUG_API void snug_plan_destroy(snug_plan* plan); /* null is allowed */

SNUG_API uint64_t snug_plan_required_nbytes(const snug_plan* plan); /* arena */
SNUG_API uint64_t snug_plan_weights_nbytes(const snug_plan* plan);  /* prepared weights */

/* Alignment that bind demands of the arena (128), and snug_weights_create of the storage (64). */
SNUG_API uint64_t snug_arena_alignment(void);
SNUG_API uint64_t snug_weights_alignment(void);

/* What a call with num_tokens live tokens does. */
typedef struct snug_schedule {
  uint32_t struct_size;
  int32_t regime; /* index of the regime */
  int64_t num_tokens;
  int64_t chunk_tokens; /* tokens done together */
  int64_t num_chunks;
  int32_t route_tile;    /* rows of an expert handled together */
  int32_t column_block;  /* FC2 columns in memory at a time; 0 = none */
  uint64_t arena_nbytes; /* of this call; at most the plan's */
  double predicted_us;
  double floor_us; /* max(weight bytes / read rate, FLOPs / matrix rate) */
} snug_schedule;

/* A pure function of the plan; 0 <= num_tokens <= max_tokens. */
SNUG_API snug_status snug_plan_schedule(const snug_plan* plan, int64_t num_tokens,
                                        snug_schedule* schedule, snug_error* error);

/* The plan as text for people (json = 0) or JSON (json = 1). Writes at most `capacity` bytes with a
 * final zero to `buffer` (may be null when capacity is 0) and the full size, with the zero, to
 * `needed`. Errors: SNUG_INVALID_ARGUMENT when capacity is neither 0 nor enough. */
SNUG_API snug_status snug_plan_explain(const snug_plan* plan, int32_t json, char* buffer,
                                       size_t capacity, size_t* needed, snug_error* error);

/* Every kernel family of the device's backend with the reason why it is refused for these caps, a
 * line each, "accepted" otherwise. Works where planning fails. Buffer rules as above. */
SNUG_API snug_status snug_plan_refusals(const snug_caps* caps, const snug_device* device,
                                        char* buffer, size_t capacity, size_t* needed,
                                        snug_error* error);

/* Scratch bytes that a Marlin-class engine reserves for the same layer (a pricing model that never
 * runs): bounded by reachable tiles, or swept over all (unbounded = 1). */
SNUG_API snug_status snug_reference_nbytes(const snug_caps* caps, const snug_device* device,
                                           int32_t unbounded, uint64_t* nbytes, snug_error* error);

/* ---------------------------------------------------------------- routing */

typedef enum snug_score {
  SNUG_SCORE_SOFTMAX = 0,
  SNUG_SCORE_SIGMOID = 1,
  SNUG_SCORE_SQRT_SOFTPLUS = 2
} snug_score;

typedef enum snug_group_rank {
  SNUG_GROUP_RANK_MAX = 0,
  SNUG_GROUP_RANK_TOP2_SUM = 1
} snug_group_rank;

typedef struct snug_routing {
  uint32_t struct_size;
  int32_t score;       /* snug_score */
  int32_t renormalize; /* 0 or 1: a token's weights sum to scale */
  int32_t num_groups;  /* 1 = no groups; divides num_experts */
  int32_t topk_groups; /* groups that stay */
  int32_t group_rank;  /* snug_group_rank */
  float scale;         /* multiplies the weights, once */
} snug_routing;

/* Softmax over the chosen experts, no groups, scale 1. */
SNUG_API void snug_routing_init(snug_routing* routing);

/* Router logits -> top_k distinct ids in range, best first, ties by lowest id; weights finite.
 * A NaN logit counts as -inf. On the host; ids are the same bits on every backend.
 *   logits        f32 or bf16 [num_tokens, num_experts], row stride in elements
 *   bias          f32 [num_experts], for selection only; may be null
 *   topk_ids      s32 [num_tokens, top_k]   topk_weights  f32 [num_tokens, top_k]   both dense */
SNUG_API snug_status snug_route(const snug_routing* routing, const void* logits,
                                int32_t logits_dtype, int64_t logits_stride, const float* bias,
                                int64_t num_tokens, int32_t num_experts, int32_t top_k,
                                int32_t* topk_ids, float* topk_weights, snug_error* error);

/* ---------------------------------------------------------------- checkpoints */

typedef struct snug_checkpoint snug_checkpoint;

/* Opens a model folder or one .safetensors file: maps it, checks every header and the completeness
 * of every expert layer. Errors: SNUG_IO_ERROR, SNUG_CORRUPT_CHECKPOINT, SNUG_UNSUPPORTED, naming
 * file, tensor and numbers. */
SNUG_API snug_status snug_checkpoint_open(const char* path, snug_checkpoint** checkpoint,
                                          snug_error* error);
SNUG_API void snug_checkpoint_close(snug_checkpoint* checkpoint); /* null is allowed */

/* What config.json says; 0 where it does not. */
typedef struct snug_model_info {
  uint32_t struct_size;
  int32_t has_config;
  int32_t hidden;
  int32_t intermediate;
  int32_t num_experts;
  int32_t top_k;
  int32_t num_layers;  /* of the whole model */
  int32_t num_tensors; /* in all shards */
  int32_t num_shards;
  snug_activation activation;
  snug_routing routing;
  char model_type[40];
  char quantization[64];
} snug_model_info;

/* struct_size must be set. */
SNUG_API snug_status snug_checkpoint_model(const snug_checkpoint* checkpoint, snug_model_info* info,
                                           snug_error* error);

/* One expert layer in one format. */
typedef struct snug_layer_info {
  uint32_t struct_size;
  int32_t layer;  /* the model's layer number */
  int32_t format; /* snug_format */
  int32_t num_experts;
  int32_t hidden;
  int32_t intermediate;
  int32_t gated;
  int32_t has_bias;
  uint64_t source_nbytes;
  char scheme[32]; /* naming scheme of the tensors, e.g. modelopt_nvfp4 */
} snug_layer_info;

SNUG_API int32_t snug_checkpoint_num_layers(const snug_checkpoint* checkpoint);
/* index 0..num_layers-1, sorted by layer and format; struct_size must be set. */
SNUG_API snug_status snug_checkpoint_layer(const snug_checkpoint* checkpoint, int32_t index,
                                           snug_layer_info* info, snug_error* error);

/* A tensor in a mapped file; valid until the checkpoint is closed. */
typedef struct snug_tensor {
  uint32_t struct_size;
  int32_t dtype; /* snug_dtype */
  int32_t rank;
  int32_t reserved;
  int64_t shape[8];
  const void* data;
  uint64_t nbytes;
} snug_tensor;

/* Looks a tensor up by name; struct_size must be set. Errors: SNUG_INVALID_ARGUMENT when there is
 * none, SNUG_UNSUPPORTED when its dtype has no snug_dtype. */
SNUG_API snug_status snug_checkpoint_tensor(const snug_checkpoint* checkpoint, const char* name,
                                            snug_tensor* tensor, snug_error* error);

/* ---------------------------------------------------------------- prepared weights */

/* Conventions of a source matrix; never guessed. */
typedef enum snug_nibble_order { SNUG_LOW_FIRST = 0, SNUG_HIGH_FIRST = 1 } snug_nibble_order;
typedef enum snug_scale_order {
  SNUG_SCALES_LINEAR = 0,        /* [rows, k / group] */
  SNUG_SCALES_SWIZZLED_128X4 = 1 /* tiles of 128 rows x 4 groups */
} snug_scale_order;
typedef enum snug_global_scale_use {
  SNUG_GLOBAL_NONE = 0,     /* mxfp4 */
  SNUG_GLOBAL_MULTIPLY = 1, /* weight = code * scale * global */
  SNUG_GLOBAL_DIVIDE = 2    /* weight = code * scale / global */
} snug_global_scale_use;

/* One projection of one expert. Logical (row, k) is stored at (first_row + row * row_step,
 * first_k + k), so fused, interleaved and sharded tensors need no copies. */
typedef struct snug_matrix {
  const uint8_t* codes;     /* [stored rows, stored k / 2] */
  int64_t code_row_nbytes;  /* row to row */
  const uint8_t* scales;    /* one byte a group */
  int64_t scale_row_nbytes; /* row to row; swizzled: groups of a row padded to 4 */
  const void* bias;         /* [stored rows] or null */
  int32_t bias_dtype;       /* SNUG_BF16 or SNUG_F32 */
  int32_t nibble_order;     /* snug_nibble_order */
  int32_t scale_order;      /* snug_scale_order */
  int32_t global_scale_use; /* snug_global_scale_use */
  float global_scale;
  int32_t e8m0_bias; /* exponent bias of E8M0 scales; 127 by the format */
  int64_t first_row;
  int64_t row_step; /* at least 1; 2 where gate and up rows alternate */
  int64_t first_k;  /* a multiple of the format's group */
} snug_matrix;

/* One expert; ungated activations use gate for their only FC1 matrix and leave up.codes null. */
typedef struct snug_expert_source {
  uint32_t struct_size;
  uint32_t reserved;
  snug_matrix gate;
  snug_matrix up;
  snug_matrix down;
} snug_expert_source;

/* row_step 1, global_scale 1, e8m0_bias 127, the rest zero. */
SNUG_API void snug_expert_source_init(snug_expert_source* source);

typedef struct snug_weights snug_weights;

/* Starts the prepared weights of one layer in the caller's storage: at least
 * snug_plan_weights_nbytes(plan) bytes, aligned to snug_weights_alignment(), kept until destroy. */
SNUG_API snug_status snug_weights_create(const snug_plan* plan, void* storage,
                                         uint64_t storage_nbytes, snug_weights** weights,
                                         snug_error* error);
SNUG_API void snug_weights_destroy(snug_weights* weights); /* null is allowed; frees no storage */

/* Repacks local expert `expert`, which must not have arrived before. The source may be freed after
 * the call. Errors name expert, projection and row. */
SNUG_API snug_status snug_weights_put(snug_weights* weights, int32_t expert,
                                      const snug_expert_source* source, snug_error* error);

/* Rewrites a prepared expert in place; addresses stay. Not while a run uses the weights. */
SNUG_API snug_status snug_weights_update(snug_weights* weights, int32_t expert,
                                         const snug_expert_source* source, snug_error* error);

/* This rank's share of a layer. */
typedef struct snug_shard {
  uint32_t struct_size;
  int32_t tp_rank;
  int32_t tp_size;        /* tensor-parallel ranks, at least 1 */
  int32_t reserved;       /* 0 */
  const int32_t* experts; /* [num_local_experts] global ids; null = identity */
} snug_shard;

/* Return non-zero to cancel. Called on the calling thread. */
typedef int (*snug_progress)(void* context, int64_t done, int64_t total);

/* Loads every local expert of a checkpoint's layer, one at a time on num_threads threads.
 *   layer_index  as in snug_checkpoint_layer      shard, progress  may be null */
SNUG_API snug_status snug_weights_load(snug_weights* weights, const snug_checkpoint* checkpoint,
                                       int32_t layer_index, const snug_shard* shard,
                                       int32_t num_threads, snug_progress progress, void* context,
                                       snug_error* error);

/* SNUG_OK once every expert has arrived; else the error names the first that has not. */
SNUG_API snug_status snug_weights_check(const snug_weights* weights, snug_error* error);

/* ---------------------------------------------------------------- bind and run */

/* Runs body(argument, worker, n) for workers 0..n-1, n <= num_workers, all at the same time, and
 * returns when all have ended. */
typedef void (*snug_parallel)(void* context, int32_t num_workers,
                              void (*body)(void* argument, int32_t worker, int32_t num_workers),
                              void* argument);

/* The caller's memory of one call; strides count elements. Inputs are never written. */
typedef struct snug_io {
  uint32_t struct_size;
  int32_t ids_dtype;      /* SNUG_S32 or SNUG_S64 */
  int32_t weights_dtype;  /* SNUG_F32 or SNUG_BF16 */
  int32_t allow_replicas; /* 0 or 1: several experts may map to one local expert */
  int64_t num_tokens;     /* live tokens, 0..max_tokens */
  const void* x;          /* bf16 [num_tokens, hidden] */
  int64_t x_stride;
  const void* topk_ids; /* [num_tokens, top_k], global ids; out of range = no contribution */
  int64_t ids_stride;
  const void* topk_weights; /* [num_tokens, top_k] */
  int64_t weights_stride;
  const int32_t* expert_map; /* s32 [num_experts] -> local id or -1; null = all are local */
  void* output;              /* output_dtype [num_tokens, hidden], overwritten */
  int64_t output_stride;
  void* arena;            /* arena_nbytes bytes, aligned to snug_arena_alignment() */
  uint64_t arena_nbytes;  /* at least the plan's required_nbytes */
  snug_parallel parallel; /* CPU workers; null = OpenMP */
  void* parallel_context;
} snug_io;

/* Zeroes, struct_size, s32 ids, f32 weights. */
SNUG_API void snug_io_init(snug_io* io);

/* A checked call, as plain data of the caller's. Refers to plan-independent copies, the weights'
 * storage and the caller's pointers; the plan may be destroyed afterwards, the storage not. */
typedef struct snug_binding {
  uint64_t opaque[256];
} snug_binding;

/* Checks everything that can be checked, writes only `binding`, allocates nothing.
 * Errors: null, misaligned or overlapping pointers, short strides, dtypes, too many tokens, a short
 * arena, weights of another plan or incomplete, a bad expert map, a backend without kernels. */
SNUG_API snug_status snug_bind(const snug_plan* plan, const snug_weights* weights,
                               const snug_io* io, snug_binding* binding, snug_error* error);

/* Performs the layer. CPU: returns when done; stream must be null. */
SNUG_API snug_status snug_run(const snug_binding* binding, void* stream, snug_error* error);

#ifdef __cplusplus
}
#endif

#endif /* SNUG_SNUG_H */
