/* Functions of the packed calling convention. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KERNEL(name) int __tvm_ffi_##name(void *self, const Any *args, int32_t count, Any *result)

int __tvm_ffi_data = 1;

/* ---- arguments ---- */

static char text[4096];

/* Every argument as C reads it: "type:value", one after the other. */
KERNEL(describe) {
    char *at = text, *end = text + sizeof text;
    at += snprintf(at, end - at, "%s %d", self ? "self" : "null", count);
    for (const Any *a = args; a < args + count && at < end; a++) {
        at += snprintf(at, end - at, " %d:", a->type_index);
        if (a->type_index != SMALL_STR && a->type_index != SMALL_BYTES && a->small_str_len != 0) at += snprintf(at, end - at, "!");
        switch (a->type_index) {
            case NONE: case INT: case BOOL: at += snprintf(at, end - at, "%lld", (long long)a->v_int64); break;
            case FLOAT: at += snprintf(at, end - at, "%g", a->v_float64); break;
            case POINTER: at += snprintf(at, end - at, "%p", a->v_ptr); break;
            case DATA_TYPE: {
                /* What it leaves of the value is 0. */
                DataType d = a->v_dtype;
                at += snprintf(at, end - at, "%d/%d/%d/%llx", d.code, d.bits, d.lanes, (unsigned long long)(a->v_uint64 >> 32));
                break;
            }
            case DEVICE: at += snprintf(at, end - at, "%d/%d", a->v_device.device_type, a->v_device.device_id); break;
            case RAW_STR: at += snprintf(at, end - at, "%s", a->v_c_str); break;
            case SMALL_STR: case SMALL_BYTES: at += snprintf(at, end - at, "%u/%s", a->small_str_len, a->v_bytes); break;
            case STR: case BYTES: {
                Bytes *bytes = (Bytes *)(a->v_obj + 1);
                at += snprintf(at, end - at, "%zu/%s/%llx", bytes->size, bytes->data, (unsigned long long)a->v_obj->combined_ref_count);
                break;
            }
        }
    }
    return 0;
}
const char *described(void) { return text; }

/* ---- results ---- */

static char bytes_of_result[] = "a longer text";

typedef struct { Object header; Bytes bytes; } StrObject;
static StrObject longer = { { 0, STR }, { bytes_of_result, sizeof bytes_of_result - 1 } };

/* The result of the kind that the argument says, with a value of its own. */
KERNEL(kind) {
    result->type_index = args[0].v_int64;
    switch (result->type_index) {
        case INT: result->v_int64 = -5; break;
        case BOOL: result->v_int64 = 1; break;
        case FLOAT: result->v_float64 = 2.5; break;
        case POINTER: result->v_ptr = text; break;
        case DATA_TYPE: result->v_dtype = (DataType){ 2, 16, 4 }; break;
        case DEVICE: result->v_device = (Device){ 2, 3 }; break;
        case SMALL_STR: result->small_str_len = 5; memcpy(result->v_bytes, "small", 6); break;
        case SMALL_BYTES: result->small_str_len = 3; memcpy(result->v_bytes, "\0\1\2", 4); break;
        case RAW_STR: result->v_c_str = "nobody's"; break;
        case STR: case BYTES:
            longer.header.type_index = result->type_index;
            longer.header.combined_ref_count++;
            result->v_obj = &longer.header;
            break;
    }
    return 0;
}
void *pointer(void) { return text; }

KERNEL(not_utf8) {
    result->type_index = SMALL_STR;
    result->small_str_len = 2;
    memcpy(result->v_bytes, "\xff\xfe", 3);
    return 0;
}

KERNEL(null_object) { result->type_index = OBJECT; result->v_obj = NULL; return 0; }

/* ---- objects that count their ends ---- */

static int strong_ends, weak_ends;

static void end(void *self, int flags) {
    if (flags & 1) __atomic_fetch_add(&strong_ends, 1, __ATOMIC_RELAXED);
    if (flags & 2) { __atomic_fetch_add(&weak_ends, 1, __ATOMIC_RELAXED); free(self); }
}
int strong_ended(void) { return strong_ends; }
int weak_ended(void) { return weak_ends; }

static Object *make(int32_t type_index, size_t size) {
    Object *object = calloc(1, size);
    object->combined_ref_count = 1 | (uint64_t)1 << 32;
    object->type_index = type_index;
    object->deleter = end;
    return object;
}

KERNEL(object) {
    result->type_index = args[0].v_int64;
    result->v_obj = make(result->type_index, sizeof(Object) + sizeof(Tensor));
    return 0;
}

/* With an object as its result, and yet an error. */
KERNEL(object_and_error) {
    __tvm_ffi_object(self, args, count, result);
    TVMFFIErrorSetRaisedFromCStr("RuntimeError", "after the result");
    return -1;
}

KERNEL(references) {
    result->type_index = INT;
    result->v_int64 = args[0].v_obj->combined_ref_count;
    return 0;
}

static Object *watched;
KERNEL(watched_object) {
    result->type_index = FUNCTION;
    result->v_obj = watched = make(FUNCTION, sizeof(Object));
    watched->combined_ref_count += (uint64_t)1 << 32;
    return 0;
}
/* The weak reference goes. */
int unwatch(void) {
    uint64_t before = __atomic_fetch_sub(&watched->combined_ref_count, (uint64_t)1 << 32, __ATOMIC_ACQ_REL);
    if (before == (uint64_t)1 << 32) end(watched, 2);
    return before == (uint64_t)1 << 32;
}

/* A string that is kept after the call. */
static Any kept;
KERNEL(keep) { kept = args[0]; kept.v_obj->combined_ref_count++; return 0; }
KERNEL(give) { *result = kept; return 0; }

/* A tensor, as an object. */
KERNEL(tensor_object) {
    static float data[2] = { 1, 2 };
    static int64_t shape[1] = { 2 }, strides[1] = { 1 };
    int64_t type_index = TENSOR;
    Object *object = make(type_index, sizeof(Object) + sizeof(Tensor));
    *(Tensor *)(object + 1) = (Tensor){ data, { 1, 0 }, 1, { 2, 32, 1 }, shape, strides, 0 };
    result->type_index = TENSOR;
    result->v_obj = object;
    return 0;
}

/* ---- errors ---- */

KERNEL(raise) {
    TVMFFIErrorSetRaisedFromCStr(args[0].v_c_str, args[1].v_c_str);
    return -1;
}

KERNEL(raise_parts) {
    const char *parts[] = { "Argument 1", NULL, " mismatch in `", "f(x: Tensor)", "`" };
    TVMFFIErrorSetRaisedFromCStrParts("TypeError", parts, 5);
    return -1;
}

KERNEL(raise_with_backtrace) {
    TVMFFIErrorSetRaisedFromCStr("ValueError", "deep");
    Object *error;
    TVMFFIErrorMoveFromRaised(&error);
    Error *cell = (Error *)(error + 1);
    cell->update_backtrace(error, &(Bytes){ "inner\n....", 6 }, 0);
    cell->update_backtrace(error, &(Bytes){ "outer", 5 }, 1);
    TVMFFIErrorSetRaised(error);
    TVMFFIObjectDecRef(error);
    return -1;
}

KERNEL(raise_object) {
    Object *object = make(SHAPE, sizeof(Object));
    TVMFFIErrorSetRaised(object);
    TVMFFIObjectDecRef(object);
    return -1;
}

/* An error that the library has made, whose texts and end are its own. */
static Object *own_error(void) {
    Object *error = make(ERROR, sizeof(Object) + sizeof(Error));
    *(Error *)(error + 1) = (Error){ { "OwnError", 8 }, { "of the library's own", 20 }, { "own.c:1", 7 } };
    return error;
}

/* Leaves it to whoever looks next if the argument is 0. */
static int raise_and_forget(Object *error, const Any *args) {
    TVMFFIErrorSetRaised(error);
    TVMFFIObjectDecRef(error);
    return args[0].v_int64;
}

KERNEL(raise_own) { return raise_and_forget(own_error(), args); }
KERNEL(raise_own_object) { return raise_and_forget(make(SHAPE, sizeof(Object)), args); }

/* One that nobody ends. */
static struct { Object header; Error error; } fixed = {
    { 1 | (uint64_t)1 << 32, ERROR }, { { "OwnError", 8 }, { "in the library's data", 21 }, { "own.c:2", 7 } }
};
KERNEL(raise_fixed) { TVMFFIErrorSetRaised(&fixed.header); return args[0].v_int64; }

KERNEL(fail) { return args[0].v_int64; }

KERNEL(swallow) {
    Object *error;
    __tvm_ffi_raise_parts(self, args, count, result);
    TVMFFIErrorMoveFromRaised(&error);
    result->type_index = INT;
    result->v_int64 = ((Error *)(error + 1))->message.size;
    TVMFFIObjectDecRef(error);
    TVMFFIErrorMoveFromRaised(&error);
    return error != NULL;
}

KERNEL(stream) {
    result->type_index = POINTER;
    result->v_ptr = TVMFFIEnvGetStream(args[0].v_device.device_type, args[0].v_device.device_id);
    return 0;
}

/* ---- tensors ---- */

/* Sum of a tensor of float, by its strides. */
static double sum(const Tensor *t, int dimension, int64_t offset) {
    if (dimension == t->ndim) return ((float *)((char *)t->data + t->byte_offset))[offset];
    double all = 0;
    for (int64_t i = 0; i < t->shape[dimension]; i++) all += sum(t, dimension + 1, offset + i * t->strides[dimension]);
    return all;
}

KERNEL(sum) {
    const Tensor *t = args[0].v_ptr;
    if (args[0].type_index != TENSOR_POINTER || t->dtype.code != 2 || t->dtype.bits != 32 || t->dtype.lanes != 1 || t->device.device_type != 1) {
        TVMFFIErrorSetRaisedFromCStr("TypeError", "a tensor of float32 on the CPU is expected");
        return -1;
    }
    result->type_index = FLOAT;
    result->v_float64 = sum(t, 0, 0);
    return 0;
}

KERNEL(fill) {
    Tensor *t = args[0].v_ptr;
    for (int64_t i = 0; i < t->shape[0]; i++)
        for (int64_t j = 0; j < t->shape[1]; j++)
            ((float *)t->data)[i * t->strides[0] + j * t->strides[1]] = args[1].v_float64;
    return 0;
}

KERNEL(data_pointer) {
    Tensor *t = args[0].v_ptr;
    result->type_index = INT;
    result->v_int64 = (int64_t)t->data + t->device.device_type * 1000 + t->device.device_id + t->ndim + t->byte_offset;
    return 0;
}
