// SPDX-License-Identifier: Apache-2.0
// The handles that more than one file of the api opens.
// tidy: no twin, declarations
#pragma once

#include "weights/checkpoint.h"
#include "weights/prepare.h"

struct snug_checkpoint {
  snug::Checkpoint value;
};

struct snug_weights {
  snug::WeightsBuilder builder;
};
