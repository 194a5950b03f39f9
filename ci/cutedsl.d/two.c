#include "two.h"
#include "host.h"
HOST(two)

int two_call(float factor, void *x, void *between, void *y, int n, cudaStream_t stream) {
    two_Tensor_x_t of_x = {x, {n}};
    two_Tensor_between_t of_between = {between, {n}};
    two_Tensor_y_t of_y = {y, {n}};
    return cute_dsl_two_wrapper(&module, factor, &of_x, &of_between, &of_y, stream);
}
