// All kernels, in the order in which they need each other. The driver flattens these includes for run-time compilers.
//
// Compiled at run time, only what one plan needs: MXATTN_RECIPE is the id of its recipe, MXATTN_CACHE_RECIPE that of its cache,
// MXATTN_HEAD_BLOCKS and MXATTN_VALUE_BLOCKS are its size where it uses matrix instructions, and MXATTN_NO_MATRIX is there where
// it does not. Without them everything is compiled.
#pragma once

#if defined(MXATTN_CACHE_RECIPE)
#define MXATTN_COMPILES(id) (MXATTN_RECIPE == id || MXATTN_CACHE_RECIPE == id)
#elif defined(MXATTN_RECIPE)
#define MXATTN_COMPILES(id) (MXATTN_RECIPE == id)
#else
#define MXATTN_COMPILES(id) 1
#endif
// Of a cache.
#if defined(MXATTN_RECIPE) && !defined(MXATTN_CACHE_RECIPE)
#define MXATTN_CACHES(id) 0
#else
#define MXATTN_CACHES(id) MXATTN_COMPILES(id)
#endif

#include "hip/kernels/arguments.h"
#include "hip/kernels/arch.h"
#include "hip/kernels/elements.h"
#include "hip/kernels/operands.h"
#include "hip/kernels/quantise.h"
#include "hip/kernels/rows.h"
#include "hip/kernels/softmax.h"
#include "hip/kernels/attend.h"
#include "hip/kernels/attend_lanes.h"
#include "hip/kernels/matrix_i8.h"
#include "hip/kernels/matrix_scaled.h"
#include "hip/kernels/attend_matrix.h"
#include "hip/kernels/combine.h"
#include "hip/kernels/unpack.h"
#include "hip/kernels/cache.h"
#include "hip/kernels/decode.h"
