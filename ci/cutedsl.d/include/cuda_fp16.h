/* Included by the headers that CuTe DSL writes; these kernels use nothing of it. */
