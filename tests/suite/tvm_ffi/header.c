/* After the header, and the tests' declarations: sizes and offsets as it has them, a line each. The two have to agree. */
#include <stdio.h>

#define SIZE(type) printf(#type " %zu\n", sizeof(type))
#define OFFSET(type, field) printf(#type "." #field " %zu\n", offsetof(type, field))
#define SAME(ours, theirs) _Static_assert(sizeof(ours) == sizeof(theirs), #ours)
#define SAME_FIELD(ours, field, theirs, their_field) _Static_assert(offsetof(ours, field) == offsetof(theirs, their_field), #ours "." #field)

SAME(Any, TVMFFIAny);
SAME_FIELD(Any, small_str_len, TVMFFIAny, small_str_len);
SAME_FIELD(Any, v_int64, TVMFFIAny, v_int64);
SAME(Object, TVMFFIObject);
SAME_FIELD(Object, type_index, TVMFFIObject, type_index);
SAME_FIELD(Object, deleter, TVMFFIObject, deleter);
SAME(Bytes, TVMFFIByteArray);
SAME(Error, TVMFFIErrorCell);
SAME_FIELD(Error, update_backtrace, TVMFFIErrorCell, update_backtrace);
SAME(Tensor, DLTensor);
SAME_FIELD(Tensor, byte_offset, DLTensor, byte_offset);

int main(void) {
    SIZE(TVMFFIAny);
    OFFSET(TVMFFIAny, type_index);
    OFFSET(TVMFFIAny, small_str_len);
    OFFSET(TVMFFIAny, v_int64);
    OFFSET(TVMFFIAny, v_bytes);
    SIZE(TVMFFIObject);
    OFFSET(TVMFFIObject, combined_ref_count);
    OFFSET(TVMFFIObject, type_index);
    OFFSET(TVMFFIObject, deleter);
    SIZE(TVMFFIObjectAllocHeader);
    SIZE(TVMFFIByteArray);
    OFFSET(TVMFFIByteArray, data);
    OFFSET(TVMFFIByteArray, size);
    SIZE(TVMFFIErrorCell);
    OFFSET(TVMFFIErrorCell, kind);
    OFFSET(TVMFFIErrorCell, message);
    OFFSET(TVMFFIErrorCell, backtrace);
    OFFSET(TVMFFIErrorCell, update_backtrace);
    OFFSET(TVMFFIErrorCell, cause_chain);
    OFFSET(TVMFFIErrorCell, extra_context);
    SIZE(DLTensor);
    OFFSET(DLTensor, data);
    OFFSET(DLTensor, device);
    OFFSET(DLTensor, ndim);
    OFFSET(DLTensor, dtype);
    OFFSET(DLTensor, shape);
    OFFSET(DLTensor, strides);
    OFFSET(DLTensor, byte_offset);
    SIZE(DLDataType);
    OFFSET(DLDataType, code);
    OFFSET(DLDataType, bits);
    OFFSET(DLDataType, lanes);
    SIZE(DLDevice);
    OFFSET(DLDevice, device_type);
    OFFSET(DLDevice, device_id);
    int indices[] = {
        kTVMFFINone, kTVMFFIInt, kTVMFFIBool, kTVMFFIFloat, kTVMFFIOpaquePtr, kTVMFFIDataType, kTVMFFIDevice,
        kTVMFFIDLTensorPtr, kTVMFFIRawStr, kTVMFFIByteArrayPtr, kTVMFFIObjectRValueRef, kTVMFFISmallStr, kTVMFFISmallBytes,
        kTVMFFIStaticObjectBegin, kTVMFFIStr, kTVMFFIBytes, kTVMFFIError, kTVMFFIFunction, kTVMFFIShape, kTVMFFITensor,
        kTVMFFIArray, kTVMFFIMap, kTVMFFIModule, kTVMFFIOpaquePyObject, kTVMFFIList, kTVMFFIDict,
        kTVMFFIObjectDeleterFlagBitMaskStrong, kTVMFFIObjectDeleterFlagBitMaskWeak,
    };
    for (size_t i = 0; i < sizeof indices / sizeof *indices; i++) printf("index %d\n", indices[i]);
    int kinds[] = {
        kDLCPU, kDLCUDA, kDLCUDAHost, kDLOpenCL, kDLVulkan, kDLMetal, kDLVPI, kDLROCM, kDLROCMHost, kDLExtDev,
        kDLCUDAManaged, kDLOneAPI, kDLWebGPU, kDLHexagon, kDLMAIA, kDLTrn,
        kDLInt, kDLUInt, kDLFloat, kDLOpaqueHandle, kDLBfloat, kDLComplex, kDLBool, kDLFloat8_e3m4, kDLFloat8_e4m3,
        kDLFloat8_e4m3b11fnuz, kDLFloat8_e4m3fn, kDLFloat8_e4m3fnuz, kDLFloat8_e5m2, kDLFloat8_e5m2fnuz,
        kDLFloat8_e8m0fnu, kDLFloat6_e2m3fn, kDLFloat6_e3m2fn, kDLFloat4_e2m1fn,
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) printf("kind %d\n", kinds[i]);
    return 0;
}
