/* Functions that use libtvm_ffi itself. */
int TVMFFIFunctionGetGlobal(const Bytes *name, Object **out);
int TVMFFIFunctionCall(Object *function, Any *args, int32_t count, Any *result);
int TVMFFIFunctionCreate(void *self, int (*call)(void *, const Any *, int32_t, Any *), void (*deleter)(void *), Object **out);
int TVMFFIStringFromByteArray(const Bytes *input, Any *out);

/* Calls the global function of that name with the other arguments. */
KERNEL(global) {
    Object *function;
    if (TVMFFIFunctionGetGlobal(&(Bytes){ args[0].v_c_str, strlen(args[0].v_c_str) }, &function) != 0) return -1;
    if (function == NULL) { TVMFFIErrorSetRaisedFromCStr("KeyError", args[0].v_c_str); return -1; }
    int code = TVMFFIFunctionCall(function, (Any *)args + 1, count - 1, result);
    TVMFFIObjectDecRef(function);
    return code;
}

/* A string of the library's, of which one more reference is kept here. */
static Object *string;
KERNEL(string) {
    static char text[] = "made by libtvm_ffi";
    if (TVMFFIStringFromByteArray(&(Bytes){ text, sizeof text - 1 }, result) != 0) return -1;
    string = result->v_obj;
    return TVMFFIObjectIncRef(string);
}
KERNEL(string_references) { result->type_index = INT; result->v_int64 = string->combined_ref_count; return 0; }
KERNEL(string_ends) { return TVMFFIObjectDecRef(string); }

/* The other direction: the library calls a function that was loaded. */
KERNEL(through) {
    Object *function;
    if (TVMFFIFunctionCreate(NULL, args[0].type_index == INT ? __tvm_ffi_kind : __tvm_ffi_raise_parts, NULL, &function) != 0) return -1;
    int code = TVMFFIFunctionCall(function, (Any *)args, count, result);
    TVMFFIObjectDecRef(function);
    return code;
}

/* A tensor of the library's, made of memory that is lent to it. */
typedef struct Managed { Tensor tensor; void *context; void (*deleter)(struct Managed *); } Managed;
int TVMFFITensorFromDLPack(Managed *from, int32_t alignment, int32_t contiguous, Object **out);

static int returned;
int memory_returned(void) { return returned; }
static void take_back(Managed *managed) { returned++; }

KERNEL(tensor) {
    static float data[6] = { 1, 2, 3, 4, 5, 6 };
    static int64_t shape[2] = { 2, 2 }, strides[2] = { 3, 1 };
    static Managed managed = { { data, { 1, 0 }, 2, { 2, 32, 1 }, shape, strides, 0 }, NULL, take_back };
    result->type_index = TENSOR;
    return TVMFFITensorFromDLPack(&managed, 4, 0, &result->v_obj);
}
