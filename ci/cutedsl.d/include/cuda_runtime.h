/* What the headers that CuTe DSL writes use of CUDA's runtime, so that they compile where there is no CUDA toolkit. */
#pragma once

typedef int cudaError_t;
enum { cudaSuccess = 0 };
typedef struct CUlib_st *cudaLibrary_t;
typedef struct CUstream_st *cudaStream_t;

cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaLibraryUnload(cudaLibrary_t library);
const char *cudaGetErrorName(cudaError_t error);
const char *cudaGetErrorString(cudaError_t error);
