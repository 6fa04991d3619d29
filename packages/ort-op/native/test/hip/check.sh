#!/bin/sh
# Builds and runs check.cc: check.sh [build folder [architecture...]]
set -e
cd "$(dirname "$0")/../.."
build=${1:-/tmp/mxattn-hip-check}
[ $# -gt 0 ] && shift
mkdir -p "$build"
flags="-std=c++17 -O2 -Wall -Wextra -Wno-missing-field-initializers -Wno-psabi -I."
architecture() {
  # shellcheck disable=SC2086
  g++ $flags -DMXATTN_ARCHITECTURE="\"$1\"" $2 -c test/hip/architecture.cc -o "$build/$1.o"
}
[ "$build/portable.o" -nt cpu/fused_softmax.h ] || g++ $flags -c cpu/portable.cc -o "$build/portable.o"
architecture generic
architecture gfx90a -DMXATTN_GFX90A=1
architecture gfx942 -DMXATTN_GFX942=1
architecture gfx950 -DMXATTN_GFX950=1
architecture gfx1100 -DMXATTN_GFX11=1
architecture gfx1201 -DMXATTN_GFX12=1
# Designated initialisers of the table of cases.
g++ $flags -std=c++20 -o "$build/check" test/hip/check.cc test/hip/workgroup.cc hip/plan.cc cpu/scratch.cc "$build"/*.o
"$build/check" "$@"
