/* A driver without devices, for tests: the entry points that slabjit calls, and those that test objects call, as the CUDA Driver API
   reference has them. Memory of its devices is the host's; streams are busy, and calls fail, as the test says (`fake_…`). Every call is
   written down, except where texts and the current context are asked for.

   It ends the process where a real driver's behaviour is undefined: a call in a child of fork, a handle that is gone, a module that is
   unloaded while the stream it runs in is busy. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101, INVALID_CONTEXT = 201,
    INVALID_HANDLE = 400, NOT_READY = 600, LAUNCH_FAILED = 719, CAPTURE_UNSUPPORTED = 900, DRIVER_MISMATCH = 803
};
enum { DEVICES = 2, ALIVE = 0x600d };

typedef struct context { int alive, device, retained; } context;
typedef struct object { int alive; context *of; int busy, capturing; long long time; struct object *runs_in; } object;

static context contexts[DEVICES];
static __thread context *current;
static __thread int mode; /* CU_STREAM_CAPTURE_MODE_GLOBAL */
static int initialised, devices = DEVICES, capture_is_on, capture_was_disturbed;
static long long now;
static pid_t process;
static object default_stream = {.alive = ALIVE};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char written[1 << 16];
static size_t length;
static struct { char function[64]; int code, times; } failing[8];

__attribute__((constructor)) static void begin(void) { process = getpid(); }

static void undefined(const char *what) {
    fprintf(stderr, "undefined behaviour with a real driver: %s\n", what);
    abort();
}

/* Writes a call down, and says how it is to fail. */
static int enter(const char *function, const char *format, ...) {
    if (getpid() != process) undefined(function);
    pthread_mutex_lock(&lock);
    va_list arguments;
    va_start(arguments, format);
    length += snprintf(written + length, sizeof written - length, "%s", function);
    length += vsnprintf(written + length, sizeof written - length, format, arguments);
    length += snprintf(written + length, sizeof written - length, "\n");
    va_end(arguments);
    if (length > sizeof written - 256) undefined("too many calls for this test's driver");
    int code = SUCCESS;
    for (int i = 0; i < 8; i++)
        if (!strcmp(failing[i].function, function) && failing[i].times != 0) {
            failing[i].times -= failing[i].times > 0;
            code = failing[i].code;
        }
    pthread_mutex_unlock(&lock);
    if (code == SUCCESS && !initialised && strcmp(function, "cuInit") && strcmp(function, "cuDriverGetVersion")) code = NOT_INITIALIZED;
    return code;
}

#define ENTER(...) do { int code = enter(__func__, __VA_ARGS__); if (code) return code; } while (0)

/* Functions that may disturb the capture of another thread, which is in global mode. */
static int disturbs(void) {
    if (!capture_is_on || mode == 2) return SUCCESS;
    capture_was_disturbed = 1;
    return CAPTURE_UNSUPPORTED;
}

static object *make(void) {
    object *new = calloc(1, sizeof *new);
    new->alive = ALIVE;
    new->of = current;
    return new;
}

static object *alive(object *o, const char *what) {
    if (!o) o = &default_stream;
    if (o->alive != ALIVE || (o->of && !o->of->retained)) undefined(what);
    return o;
}

/* ---- what tests say ---- */

void fake_fail(const char *function, int code, int times) {
    for (int i = 0; i < 8; i++)
        if (!failing[i].function[0] || !strcmp(failing[i].function, function)) {
            strcpy(failing[i].function, function);
            failing[i].code = code;
            failing[i].times = times;
            return;
        }
    undefined("too many functions fail");
}
void fake_devices(int count) { devices = count; }
void fake_busy(object *stream, int busy) { (stream ? stream : &default_stream)->busy = busy; }
void fake_capturing(object *stream, int capturing) { stream->capturing = capturing; }
void fake_runs_in(object *module, object *stream) { module->runs_in = stream; }
void fake_capture(int on) { capture_is_on = on; }
int fake_disturbed(void) { return capture_was_disturbed; }
void fake_pass(long long nanoseconds) { now += nanoseconds; }
const char *fake_written(void) { return written; }
void fake_forget(void) { length = 0, written[0] = 0; }

/* ---- the driver ---- */

int cuInit(unsigned flags) { ENTER("(%u)", flags); initialised = 1; return SUCCESS; }
int cuDriverGetVersion(int *version) { ENTER("()"); *version = 12040; return SUCCESS; }

static const struct { int code; const char *name, *text; } texts[] = {
    {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {DRIVER_MISMATCH, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system has unsupported display driver / cuda driver combination"},
};
static int text(int code, const char **to, int name) {
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (texts[i].code == code) return *to = name ? texts[i].name : texts[i].text, SUCCESS;
    return *to = NULL, INVALID_VALUE;
}
int cuGetErrorName(int code, const char **to) { return text(code, to, 1); }
int cuGetErrorString(int code, const char **to) { return text(code, to, 0); }

int cuDeviceGetCount(int *count) { ENTER("()"); *count = devices; return SUCCESS; }
int cuDeviceGet(int *device, int ordinal) {
    ENTER("(%d)", ordinal);
    if (ordinal < 0 || ordinal >= devices) return INVALID_DEVICE;
    *device = ordinal;
    return SUCCESS;
}
int cuDeviceGetName(char *name, int bytes, int device) { ENTER("(%d)", device); snprintf(name, bytes, "Fake %d", device); return SUCCESS; }

int cuDevicePrimaryCtxRetain(context **to, int device) {
    ENTER("(%d)", device);
    if (device < 0 || device >= DEVICES) return INVALID_DEVICE;
    contexts[device].device = device;
    __atomic_add_fetch(&contexts[device].retained, 1, __ATOMIC_SEQ_CST);
    *to = &contexts[device];
    return SUCCESS;
}
#ifndef OLD
int cuDevicePrimaryCtxRelease_v2(int device) {
    ENTER("(%d)", device);
    if (__atomic_fetch_sub(&contexts[device].retained, 1, __ATOMIC_SEQ_CST) <= 0) undefined("a context is released that is not retained");
    return SUCCESS;
}
#endif

int cuCtxGetCurrent(context **to) { if (getpid() != process) undefined(__func__); *to = current; return SUCCESS; }
int cuCtxSetCurrent(context *to) {
    ENTER("(%d)", to ? to->device : -1);
    if (to && !to->retained) undefined("a context is made current that is gone");
    current = to;
    return SUCCESS;
}
int cuThreadExchangeStreamCaptureMode(int *to) { ENTER("(%d)", *to); int old = mode; mode = *to; *to = old; return SUCCESS; }

int cuStreamCreate(object **to, unsigned flags) {
    ENTER("(%u)", flags);
    if (!current) return INVALID_CONTEXT;
    *to = make();
    return SUCCESS;
}
int cuStreamIsCapturing(object *stream, int *to) { ENTER("()"); *to = alive(stream, "a stream")->capturing; return SUCCESS; }
int cuStreamQuery(object *stream) {
    ENTER("()");
    stream = alive(stream, "a stream");
    if (!current || (stream->of && stream->of != current)) return INVALID_CONTEXT;
    if (stream->capturing) return capture_was_disturbed = 1, CAPTURE_UNSUPPORTED;
    int code = disturbs();
    return code ? code : stream->busy ? NOT_READY : SUCCESS;
}
int cuStreamSynchronize(object *stream) { ENTER("()"); alive(stream, "a stream")->busy = 0; return current ? SUCCESS : INVALID_CONTEXT; }

int cuEventCreate(object **to, unsigned flags) {
    ENTER("(%u)", flags);
    if (!current) return INVALID_CONTEXT;
    *to = make();
    (*to)->time = -1;
    return SUCCESS;
}
int cuEventRecord(object *event, object *stream) {
    ENTER("()");
    if (!current || current != event->of) return INVALID_CONTEXT;
    alive(event, "an event")->time = now;
    event->runs_in = alive(stream, "a stream");
    return SUCCESS;
}
int cuEventQuery(object *event) {
    ENTER("()");
    int code = disturbs();
    if (code) return code;
    event = alive(event, "an event");
    return event->runs_in && event->runs_in->busy ? NOT_READY : SUCCESS;
}
int cuEventSynchronize(object *event) { ENTER("()"); alive(event, "an event"); return SUCCESS; }
int cuEventElapsedTime(float *to, object *start, object *end) {
    ENTER("()");
    if (alive(start, "an event")->time < 0 || alive(end, "an event")->time < 0) return INVALID_HANDLE;
    *to = (end->time - start->time) / 1e6f;
    return SUCCESS;
}
int cuEventDestroy_v2(object *event) { ENTER("()"); alive(event, "an event")->alive = 0; return SUCCESS; }

int cuModuleLoadData(object **to, const void *image) {
    ENTER("(%s)", (const char *)image);
    if (!current) return INVALID_CONTEXT;
    *to = make();
    return SUCCESS;
}
int cuModuleUnload(object *module) {
    ENTER("()");
    if (!current || alive(module, "a module")->of != current) return INVALID_CONTEXT;
    int code = disturbs();
    if (code) return code;
    if (module->runs_in && module->runs_in->busy) undefined("a module is unloaded that runs");
    module->alive = 0;
    return SUCCESS;
}

int cuMemAlloc_v2(unsigned long long *to, size_t bytes) {
    ENTER("(%zu)", bytes);
    if (bytes == 0) return INVALID_VALUE;
    if (!current) return INVALID_CONTEXT;
    void *memory = malloc(bytes);
    if (!memory) return OUT_OF_MEMORY;
    *to = (unsigned long long)memory;
    return SUCCESS;
}
int cuMemFree_v2(unsigned long long memory) { ENTER("()"); free((void *)memory); return SUCCESS; }
static int copy(const char *function, void *to, const void *from, size_t bytes, object *stream) {
    int code = enter(function, "(%zu)", bytes);
    if (code) return code;
    alive(stream, "a stream");
    if (!current) return INVALID_CONTEXT;
    memcpy(to, from, bytes);
    return SUCCESS;
}
int cuMemcpyHtoDAsync_v2(unsigned long long to, const void *from, size_t bytes, object *stream) {
    return copy(__func__, (void *)to, from, bytes, stream);
}
int cuMemcpyDtoHAsync_v2(void *to, unsigned long long from, size_t bytes, object *stream) {
    return copy(__func__, to, (void *)from, bytes, stream);
}
int cuMemcpyDtoDAsync_v2(unsigned long long to, unsigned long long from, size_t bytes, object *stream) {
    return copy(__func__, (void *)to, (void *)from, bytes, stream);
}
