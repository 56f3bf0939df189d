# SPDX-License-Identifier: Apache-2.0
# Flags that all of our own targets share. Consumers never see them.

add_library(snug_warnings INTERFACE)
target_compile_options(snug_warnings INTERFACE
  -Wall -Wextra
  # Designated and partial initialisers leave the rest at its default on purpose.
  -Wno-missing-field-initializers
  $<$<BOOL:${SNUG_WERROR}>:-Werror>)

# Products are never fused into sums: results are the same on every machine and compiler.
add_library(snug_numerics INTERFACE)
target_compile_options(snug_numerics INTERFACE -ffp-contract=off)
