// All kernels, in the order in which they need each other. The driver flattens these includes for run-time compilers.
#pragma once

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
