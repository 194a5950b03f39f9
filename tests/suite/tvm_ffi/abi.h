/* What the tests' kernels need of tvm-ffi's ABI, written from its document. A test compares it with the header itself. */
#include <stddef.h>
#include <stdint.h>

typedef struct { int32_t device_type, device_id; } Device;
typedef struct { uint8_t code, bits; uint16_t lanes; } DataType;
typedef struct {
    void *data;
    Device device;
    int32_t ndim;
    DataType dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} Tensor;

typedef struct {
    uint64_t combined_ref_count; /* strong: the lower half */
    int32_t type_index;
    uint32_t padding;
    void (*deleter)(void *self, int flags);
} Object;

typedef struct { const char *data; size_t size; } Bytes;

typedef struct {
    Bytes kind, message, backtrace;
    void (*update_backtrace)(void *self, const Bytes *backtrace, int32_t mode);
    Object *cause_chain, *extra_context;
} Error;

typedef struct {
    int32_t type_index;
    uint32_t small_str_len;
    union {
        int64_t v_int64;
        uint64_t v_uint64;
        double v_float64;
        void *v_ptr;
        const char *v_c_str;
        Object *v_obj;
        DataType v_dtype;
        Device v_device;
        char v_bytes[8];
    };
} Any;

enum {
    NONE, INT, BOOL, FLOAT, POINTER, DATA_TYPE, DEVICE, TENSOR_POINTER, RAW_STR, BYTE_ARRAY, RVALUE, SMALL_STR, SMALL_BYTES,
    OBJECT = 64, STR, BYTES, ERROR, FUNCTION, SHAPE, TENSOR, ARRAY
};

#ifndef TVM_FFI_C_API_H_ /* which declares them itself */
void TVMFFIErrorSetRaised(Object *error);
void TVMFFIErrorSetRaisedFromCStr(const char *kind, const char *message);
void TVMFFIErrorSetRaisedFromCStrParts(const char *kind, const char **parts, int32_t count);
void TVMFFIErrorMoveFromRaised(Object **result);
int TVMFFIObjectIncRef(Object *object);
int TVMFFIObjectDecRef(Object *object);
void *TVMFFIEnvGetStream(int32_t device_type, int32_t device_id);
int TVMFFIEnvSetStream(int32_t device_type, int32_t device_id, void *stream, void **before);
#endif
