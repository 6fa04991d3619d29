// Outside any namespace, before a build of the kernel.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "cpu/problem.h"
#include "cpu/scratch.h"
