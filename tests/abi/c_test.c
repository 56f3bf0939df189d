/* SPDX-License-Identifier: Apache-2.0 */
/* snug.h compiled as C: every function links, errors name their argument, descriptors are plain. */
#include <snug/snug.h>
#include <stdio.h>
#include <string.h>

static int failures = 0;

static void expect(int condition, const char* what) {
  if (condition) return;
  printf("FAILED: %s\n", what);
  ++failures;
}

static void expect_error(snug_status have, snug_status want, const snug_error* error,
                         const char* text) {
  if (have == want && strstr(error->message, text) != NULL) return;
  printf("FAILED: have %s \"%s\", want %s with \"%s\"\n", snug_status_name(have), error->message,
         snug_status_name(want), text);
  ++failures;
}

int main(void) {
  snug_error error = {0};
  snug_caps caps;
  snug_device device;
  uint64_t nbytes = 0;
  snug_plan* plan = NULL;

  expect(strcmp(snug_version(), "0.1.0") == 0, "version");
  expect(strcmp(snug_status_name(SNUG_MISALIGNED), "misaligned") == 0, "status name");
  expect(snug_num_known_devices() >= 5, "known devices");
  expect_error(snug_device_by_name("h300", &device, &error), SNUG_INVALID_ARGUMENT, &error,
               "rtx-pro-6000");
  expect(snug_device_by_name("rtx-pro-6000", &device, &error) == SNUG_OK, "device by name");

  snug_caps_init(&caps);
  expect_error(snug_required_nbytes(&caps, &device, &nbytes, &error), SNUG_INVALID_ARGUMENT, &error,
               "hidden");
  caps.hidden = 6144;
  caps.intermediate = 512;
  caps.num_experts = caps.num_local_experts = 160;
  caps.top_k = 8;
  caps.max_tokens = 64;
  expect(snug_required_nbytes(&caps, &device, &nbytes, &error) == SNUG_OK, "required_nbytes");
  expect(nbytes > 0 && nbytes <= 8u << 20, "at most 8 MiB");
  expect(snug_plan_create(&caps, &device, &plan, NULL) == SNUG_OK, "plan without an error struct");
  expect(snug_plan_required_nbytes(plan) == nbytes, "one price");
  expect(snug_reference_nbytes(&caps, &device, 0, &nbytes, &error) == SNUG_OK &&
             nbytes == 31491908u,
         "reference geometry");
  expect(snug_reference_nbytes(&caps, &device, 1, &nbytes, &error) == SNUG_OK &&
             nbytes == 99554116u,
         "reference geometry, unbounded");
  snug_plan_destroy(plan);
  caps.struct_size = 4;
  expect_error(snug_plan_create(&caps, &device, &plan, &error), SNUG_INVALID_ARGUMENT, &error,
               "struct_size");
  expect(plan == NULL, "a failed create leaves null");
  snug_plan_destroy(plan);
  snug_weights_destroy(NULL);
  snug_checkpoint_close(NULL);

  snug_binding binding;
  memset(&binding, 0, sizeof binding);
  expect_error(snug_run(&binding, NULL, &error), SNUG_INVALID_ARGUMENT, &error, "binding");
  return failures == 0 ? 0 : 1;
}
