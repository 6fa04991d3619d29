#!/bin/sh
# Builds and runs check.cc: check.sh [build folder [architecture...]]
set -e
cd "$(dirname "$0")/../.."
build=${1:-/tmp/mxattn-hip-check}
[ $# -gt 0 ] && shift
names=${*:-generic gfx90a gfx942 gfx950 gfx1100 gfx1201}
mkdir -p "$build"
flags="-std=c++17 -O2 -Wall -Wextra -Wno-missing-field-initializers -Wno-psabi -I."
architecture() {
  # shellcheck disable=SC2086
  g++ $flags -DMXATTN_ARCHITECTURE="\"$1\"" $2 -c test/hip/architecture.cc -o "$build/$1.o"
}
[ "$build/portable.o" -nt cpu/fused_softmax.h ] || g++ $flags -c cpu/portable.cc -o "$build/portable.o"
rm -f "$build"/g*.o
for name in $names; do
  case $name in
    gfx90a | gfx942 | gfx950) architecture "$name" "-DMXATTN_$(echo "$name" | tr a-z A-Z)=1" ;;
    gfx1*) architecture "$name" "-DMXATTN_$(echo "$name" | tr a-z A-Z | cut -c1-5)=1" ;;
    *) architecture "$name" ;;
  esac
done
[ -f "$build/generic.o" ] || architecture generic
# Designated initialisers of the table of cases.
g++ $flags -std=c++20 -o "$build/check" test/hip/check.cc test/hip/workgroup.cc hip/plan.cc cpu/scratch.cc "$build"/*.o
"$build/check" "$@"
