#include "saxpy.h"
#include "host.h"
HOST(saxpy)

int saxpy_call(float a, void *x, void *y, int n, cudaStream_t stream) {
    saxpy_Tensor_x_t of_x = {x, {n}};
    saxpy_Tensor_y_t of_y = {y, {n}};
    return cute_dsl_saxpy_wrapper(&module, a, &of_x, &of_y, stream);
}
