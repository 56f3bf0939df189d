#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What `make demo` shows, on the model in examples/kjv-moe.
#   demo.sh <path of the snug command>
set -eu

snug=$1
model=examples/kjv-moe

step() {
  printf '\n\033[1m%s\033[0m\n$ snug %s\n\n' "$1" "$2"
  # shellcheck disable=SC2086
  "$snug" $2
}

step "1. What is in the checkpoint?" "inspect --model $model"
step "2. What do its expert layers cost on this CPU?" \
  "plan --model $model --device cpu --max-tokens 256"
step "3. And on a GPU that is not here, over two ranks?" \
  "plan --model $model --device h200 --tp 2 --max-tokens 4096"
step "4. What does a large layer save against a Marlin-class engine's scratch?" \
  "plan --experts 160 --top-k 8 --hidden 6144 --intermediate 512 --format nvfp4 \
--activation silu --max-tokens 64 --device rtx-pro-6000 --compare"
step "5. Are the outputs right? An independent oracle's golden values say:" \
  "verify --model $model --format nvfp4"
step "" "verify --model $model --format mxfp4"
step "6. All expert layers, both formats, 256 tokens of held-out text" "run --model $model"
