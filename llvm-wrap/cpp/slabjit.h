/* The C interface of slabjit-llvm-wrap. Mechanism only: every decision is made by the caller, in Rust.
 *
 * Conventions, unless a function says otherwise
 *  - Errors: a function that can fail returns NULL for success, else a string in LLVM's own words. The caller owns the
 *    string and frees it with slabjit_string_free.
 *  - Threads: every function may be called from any thread. Functions on one graph must not overlap.
 *  - Nothing throws or unwinds out of a function (`noexcept`), and no callback may unwind.
 *  - Strings are pointer and length, need not be NUL-terminated, and are borrowed for the duration of the call.
 */
#ifndef SLABJIT_H
#define SLABJIT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#define SLABJIT_NOEXCEPT noexcept
#else
#define SLABJIT_NOEXCEPT
#endif

/* Opaque: an LLJIT. */
typedef struct slabjit_session slabjit_session;
/* Opaque: a LinkGraph that was built and not linked yet. */
typedef struct slabjit_graph slabjit_graph;
typedef struct slabjit_batch slabjit_batch;
/* Opaque: deallocation actions of a finalised allocation. */
typedef struct slabjit_actions slabjit_actions;

/* One group of sections with the same protection and lifetime (jitlink::BasicLayout::Segment). */
typedef struct {
  uint8_t readable, writable, executable;
  uint8_t finalize;         /* lifetime: 0 until removal, 1 until finalisation has ended */
  uint8_t outside;          /* 1: a section that `may_leave` let go, and that only 64-bit references reach and leave */
  uint64_t alignment;       /* of the segment's first byte */
  uint64_t content_bytes;   /* bytes that have content; the zero-fill bytes follow */
  uint64_t zero_fill_bytes;
} slabjit_segment;

/* A definition or block that the caller asked to be told about, at its final address. */
typedef struct {
  uint64_t cookie; /* as the caller gave it */
  uint64_t address;
  uint64_t bytes;
} slabjit_placed;

/* A named symbol of executable memory, at its final address. */
typedef struct {
  const char *name;
  size_t name_len;
  uint64_t address;
  uint64_t bytes; /* up to the section's end, where the object does not say */
} slabjit_function;

/* A mapped block, at its final address. */
typedef struct {
  const char *section;
  size_t section_len;
  const char *origin; /* its bytes in the object; NULL for zero-fill, and for what LLVM made */
  uint64_t address;
  uint64_t bytes;
} slabjit_located;

/* The cookie of slots of indirect functions in `placed`: 8 bytes with the address of the resolver, for the caller to
 * call and to replace by what it returns. */
#define SLABJIT_SLOT (UINT64_MAX - 1)

/* In a cookie of `retain_block`: the caller has memory of its own for the section. */
#define SLABJIT_APART (UINT64_C(1) << 62)

/* What becomes of a symbol. */
typedef enum {
  SLABJIT_KEEP = 0,     /* external: leave it to JITLink; defined: make it local and keep it alive */
  SLABJIT_ABSOLUTE = 1, /* external: it is at `address` */
  /* external: another graph has it as `name`; defined: keep it alive, and others know it as `name` */
  SLABJIT_RENAME = 2,
  SLABJIT_DISCARD = 3,  /* defined: another definition was chosen; it becomes an external and is asked about again */
  SLABJIT_DROP = 4,     /* defined: make it local, keep it only if something refers to it */
} slabjit_verdict;

typedef struct {
  uint32_t verdict; /* slabjit_verdict */
  uint64_t address; /* for SLABJIT_ABSOLUTE */
  uint64_t cookie;  /* defined and kept: reported with the address in `placed` */
  /* for SLABJIT_RENAME; copied. Among the names of symbols of all graphs that are linked together, only once */
  const char *name;
  size_t name_len;
} slabjit_decision;

/* Kinds of references that only JITLink has, beside the numbers of the ABI's relocations. */
enum {
  SLABJIT_NEGATIVE_DELTA32 = 0x10000, /* P - S + A, 32 bits */
  SLABJIT_NEGATIVE_DELTA64 = 0x10001, /* P - S + A, 64 bits */
  SLABJIT_OTHER_KIND = 0x1ffff,       /* nothing that could be out of range, or a kind of a later LLVM */
};

/* Where a reference leads, before addresses are known. */
typedef enum {
  SLABJIT_SAME_BLOCK = 0,  /* `target` is an offset in the block */
  SLABJIT_OTHER_BLOCK = 1, /* somewhere else in this graph */
  SLABJIT_AT_ADDRESS = 2,  /* `target` is an address */
  SLABJIT_ELSEWHERE = 3,   /* in another graph */
} slabjit_place;

/* A reference: an edge in the terms of the ABI. */
typedef struct {
  uint32_t relocation; /* the number of the relocation that means this edge, or one of the kinds above. PageOffset12 is
                        * R_AARCH64_ADD_ABS_LO12_NC and MoveWide16 R_AARCH64_MOVW_UABS_G0_NC, whatever the
                        * instruction */
  uint32_t offset;     /* of the field, in the block */
  uint32_t place;      /* slabjit_place; SLABJIT_AT_ADDRESS once addresses are known */
  uint32_t drop;       /* out, of `check`: 1 if the caller has written the field and LLVM must not */
  int64_t addend;      /* the ABI's */
  uint64_t target;
  /* where the block begins that the target is in, which may be its end; 0 before that is known, and for none */
  uint64_t target_block;
  const char *symbol; /* the target's name; empty for one without */
  size_t symbol_len;
} slabjit_edge;

typedef struct {
  const char *section;
  size_t section_len;
  const char *origin; /* its bytes as the graph was made with them: in the object, or LLVM's own */
  uint8_t *content;   /* writable in `check`, NULL before */
  uint64_t size;
  uint64_t address; /* 0 before it is known */
  uint8_t executable;
} slabjit_block;

/* Memory of the graph that the caller asked for in `reserve`. */
typedef struct {
  uint8_t *content;
  uint64_t address, size;
} slabjit_room;

/* What `allocate` made for an object. */
typedef struct {
  void *object, *allocation;
} slabjit_memory;

/* Calls from the shim into the caller. `object` is what slabjit_graph_bind was given.
 * Called on the thread that binds or links the graph. None may unwind. */
typedef struct {
  /* -- while the graph is prepared (slabjit_graph_bind) -- */
  void (*external)(void *object, const char *name, size_t len, slabjit_decision *out);
  void (*defined)(void *object, const char *name, size_t len, slabjit_decision *out);
  /* Whether a section's blocks are kept though nothing refers to them; returns a cookie to have them reported with
   * their addresses, or 0 for no. `content` is the block's bytes in the object, NULL for zero-fill. With
   * SLABJIT_APART in the cookie, which is not reported, all blocks of the section lie where `place` says. */
  uint64_t (*retain_block)(void *object, const char *section, size_t len, const char *content);

  /* Whether a defined symbol is an indirect function: 1 or 0. `content`: what is there in the object. Asked before
   * all others. */
  int (*indirect)(void *object, const char *name, size_t len, const char *content);

  /* Whether a section need not be near the others, if no reference keeps it: 1 or 0. */
  int (*may_leave)(void *object, const char *section, size_t len);

  /* -- before memory is allocated: where a block of a section apart lies, and where it is written, which is writable
   * until `publish`, and zero. `origin` is NULL for zero-fill; blocks of a section come in the order of the file
   * where they have contents. 0 is success; after a failure the caller has kept the reason -- */
  int (*place)(void *object, const slabjit_block *block, uint64_t alignment, uint64_t *address, uint64_t *written);

  /* -- references that may turn out to be too long: every block that refers to something, before addresses are known
   * (`bytes`: of all blocks of the graph, padding included), some of its references at a time; then once: how many
   * bytes the caller wants at the head and at the tail of the code, and among read-only data -- */
  void (*survey)(void *object, uint64_t bytes, const slabjit_block *block, const slabjit_edge *edges, size_t n);
  void (*reserve)(void *object, uint64_t *code_head, uint64_t *code_tail, uint64_t *data);
  /* -- at final addresses, before LLVM writes any field: what was reserved, in that order, and where the GOT is (or
   * 0); every block that refers to something; then once: 0 if the link may go on. A failure is explained by the
   * caller -- */
  void (*settled)(void *object, const slabjit_room rooms[3], uint64_t got);
  void (*check)(void *object, const slabjit_block *block, slabjit_edge *edges, size_t n);
  int (*checked)(void *object);

  /* -- memory: 0 is success; after a failure the caller has kept the reason, the text LLVM carries is unspecific -- */
  /* For all segments, their addresses and where they are to be written, which may be elsewhere: what is there is
   * writable until `publish`, and what is at the addresses readable. On success *allocation is set, and ends in
   * exactly one of commit or abandon. */
  int (*allocate)(void *object, const slabjit_segment *segments, size_t n, uint64_t *addresses, uint64_t *written,
                  void **allocation);
  /* The content of all of these is final: apply protections. They are the memory of all that was linked together. */
  int (*publish)(const slabjit_memory *memory, size_t n);
  /* Finalisation actions have run. Memory and `actions` (may be NULL) are the caller's alone from here on; LLVM
   * keeps no share in them. The caller runs the actions with slabjit_actions_run before the memory goes. */
  void (*commit)(void *object, void *allocation, slabjit_actions *actions);
  /* The link failed after `allocate`. */
  void (*abandon)(void *object, void *allocation);

  /* -- addresses are known; symbols and blocks are those with cookies; .eh_frame is {0,0} where there is none -- */
  void (*placed)(void *object, const slabjit_placed *symbols, size_t n_symbols, const slabjit_placed *blocks,
                 size_t n_blocks, uint64_t eh_frame, uint64_t eh_frame_bytes);
  /* -- with them, in no order, by the names that the object has; the texts are lent -- */
  void (*functions)(void *object, const slabjit_function *functions, size_t n);
  /* -- and, if wanted, blocks, likewise -- */
  void (*located)(void *object, const slabjit_located *blocks, size_t n);
  /* The link of `object` has failed, in LLVM's words; of those that are linked together the first only. */
  void (*failed)(void *object, const char *text, size_t len);
} slabjit_callbacks;

/* The LLVM these functions were compiled for, such as 19. */
uint32_t slabjit_llvm_major(void) SLABJIT_NOEXCEPT;

/* Major, minor and patch of the LLVM that is loaded, to `numbers`. LLVM 15 does not tell: then what these functions
 * were compiled for. */
void slabjit_llvm_version(uint32_t numbers[3]) SLABJIT_NOEXCEPT;

/* Frees a string returned by one of these functions. NULL is allowed. */
void slabjit_string_free(char *text) SLABJIT_NOEXCEPT;

/* Copies a text for the shim, which frees it. */
char *slabjit_string_copy(const char *text, size_t len) SLABJIT_NOEXCEPT;

/* Has a module be compiled as for a shared library, also where it was made for an executable (`-fPIE`): its
 * thread-local variables are reached by the dynamic models then. Owner: the caller. Thread: that of the module's
 * context. `module` is an LLVMModuleRef. */
struct LLVMOpaqueModule;
struct LLVMOpaqueValue;
void slabjit_module_set_shared(struct LLVMOpaqueModule *module) SLABJIT_NOEXCEPT;
/* Makes parts of a module: each function that can be by itself, and all the rest. What was the module's own can be
 * referred to by all parts, by a name that ends in the suffix. Owner and thread: as above. */
void slabjit_module_part(struct LLVMOpaqueModule *module, const char *suffix, size_t len) SLABJIT_NOEXCEPT;
/* Whether a value is a function that is a part. */
int slabjit_function_is_part(struct LLVMOpaqueValue *value) SLABJIT_NOEXCEPT;
/* Leaves one part of a module: a function, under another name, or, with NULL, the rest. The module's functions may be
 * read when they are needed. */
char *slabjit_module_keep_part(struct LLVMOpaqueModule *module, const char *function, size_t len, const char *name,
                               size_t name_len) SLABJIT_NOEXCEPT;

/* ---- an LLJIT whose objects the caller links ---- */

/* An object that an LLJIT waits for. Owner: the caller, from `prepare` on, until slabjit_unit_ready or
 * slabjit_unit_fail. */
typedef struct slabjit_unit slabjit_unit;

/* A definition of an object that other objects may see. */
typedef struct {
  const char *name;
  size_t name_len;
  uint64_t address;  /* of an absolute one */
  uint8_t absolute;
  uint8_t exported;  /* other objects see it */
  uint8_t callable;
  uint8_t counts;    /* out, before `bind`: 0 if another object's definition of this name counts */
} slabjit_definition;

/* A name that an object defines, for whoever looks it up. */
typedef struct {
  const char *name;
  size_t name_len;
  uint8_t exported;  /* dylibs that are linked against this one see it */
  uint8_t weak;      /* another definition may count */
  uint8_t kind;      /* the caller's: what it is; SLABJIT_FUNCTION is known to ORC, too */
} slabjit_named;
enum { SLABJIT_FUNCTION = 1 };

/* Calls from an LLJIT into the caller, on any thread that uses it. `object` is what `prepare` returned. None may
 * unwind. */
typedef struct {
  void *user;
  /* Prepares a copy of an object's bytes. Returns NULL for an object that cannot be linked, and has failed the unit
   * then. The definitions are there as long as the object; their cookies (slabjit_decision) are their positions plus
   * 1. */
  void *(*prepare)(void *user, slabjit_unit *unit, const void *dylib, const char *dylib_name, size_t dylib_len,
                   const char *bytes, size_t len, const char *name, size_t name_len,
                   slabjit_definition **definitions, size_t *n);
  /* Makes the object's graph and binds it. Returns NULL if that fails, and has failed the unit then. */
  slabjit_graph *(*bind)(void *object);
  /* The object has its addresses, which others are told next. */
  void (*placed)(void *object);
  /* A name that it refers to is nowhere; `failed` comes next. */
  void (*missing)(void *object, const char *name, size_t len);
  /* What it refers to is looked up, perhaps again. */
  void (*asks)(void *object);
  /* Its references lead to these addresses: `known[i]` becomes 1 for what is in an object of the caller's.
   * 0 if something was removed since `asks`, so that they may be anybody's: they are looked up again; -1 if one is in
   * an object that failed. */
  int (*refers)(void *object, const uint64_t *addresses, uint8_t *known, size_t n);
  /* The linked object belongs to this resource key. The session is locked: no call into LLVM. */
  void (*belongs)(void *object, uintptr_t key);
  /* The object is linked, and committed. `object` is the caller's alone from here on, as it is after `failed`. */
  void (*linked)(void *object);
  void (*failed)(void *object, const char *text, size_t len);
  /* What belongs to a key goes, or, with the session locked, is another key's. */
  void (*removed)(void *user, uintptr_t key);
  void (*transferred)(void *user, uintptr_t to, uintptr_t from);
  /* Takes a task that compiles or links, and runs it on another thread (slabjit_task_run): 1; or 0, and it is run as
   * any other. */
  int (*dispatch)(void *user, void *task);
  /* Runs the initialisers of a dylib's objects that are ready, and their finalisers. NULL, or a text
   * (slabjit_string_copy). */
  char *(*initialise)(void *user, const void *dylib);
  char *(*deinitialise)(void *user, const void *dylib);
} slabjit_orc;

/* ---- dylibs ---- */

/* An object with names that the caller knows. */
typedef struct {
  const char *bytes;  /* borrowed until `dropped` */
  size_t len;
  const char *name;
  size_t name_len;
  const slabjit_named *names;
  size_t n;
  /* A name of its own in its dylib, if it has initialisers; else the length is 0. */
  const char *initialiser;
  size_t initialiser_len;
  /* The bytes are needed no more: they were prepared, or never will be. Called once. */
  void (*dropped)(void *object);
  void *object;
} slabjit_object;

/* A caller's function that finds names for a dylib, on any thread that looks one up there. It may not unwind. */
typedef struct {
  void *user;
  /* 1 and the address of a name, and what it is (`slabjit_named`); 0 if it has none; -1 fails the look-up. It may
   * have added the name to the dylib meanwhile. */
  int (*find)(void *user, const char *name, size_t len, uint64_t *address, uint8_t *kind);
  void (*dropped)(void *user);
} slabjit_finder;

/* A look-up has ended: with the symbol's address and kind, or with a text; `missing` says that nothing defines it. */
typedef void slabjit_looked_up(void *user, uint64_t address, uint8_t kind, int missing, const char *text, size_t len);

/* What a dylib's code looks names up in: these dylibs, in this order. The first is itself. */
void slabjit_dylib_set_order(void *dylib, void *const *dylibs, size_t n) SLABJIT_NOEXCEPT;
/* Defines an address. */
char *slabjit_dylib_define(void *dylib, const slabjit_named *name, uint64_t address) SLABJIT_NOEXCEPT;
void slabjit_dylib_add_finder(void *dylib, const slabjit_finder *finder) SLABJIT_NOEXCEPT;
/* Adds objects, to a tracker (LLVMOrcResourceTrackerRef) or, with NULL, the dylib's own. No look-up finds some of them
 * only, unless this fails: those before the one that cannot be added are there then. */
char *slabjit_dylib_add_objects(slabjit_session *session, void *dylib, void *tracker, const slabjit_object *objects,
                                size_t n) SLABJIT_NOEXCEPT;
/* Looks a name up that the dylib itself exports, or, with `hidden`, defines, and links what it needs. `done` is called
 * once, on any thread, and perhaps before this returns; it may not unwind. */
void slabjit_dylib_look_up(void *dylib, const char *name, size_t len, int hidden, slabjit_looked_up *done, void *user)
    SLABJIT_NOEXCEPT;
/* Whether a dylib exports a name, or its generators define it. Links nothing. */
int slabjit_dylib_defines(void *dylib, const char *name, size_t len) SLABJIT_NOEXCEPT;
/* Links all of a dylib, and of those it is linked against, that has initialisers, and runs these. */
char *slabjit_dylib_initialise(slabjit_session *session, void *dylib) SLABJIT_NOEXCEPT;
/* Runs a task that the caller has taken. Consumes it. */
void slabjit_task_run(void *task) SLABJIT_NOEXCEPT;
/* Runs one of the tasks that wait for this thread; 0 if none does. */
int slabjit_run_waiting_task(void) SLABJIT_NOEXCEPT;

/* Tells ORC that an object is ready; with `wait`, as soon as all that it refers to is. Consumes the unit. Fails if
 * its tracker was removed; then the unit has failed. */
char *slabjit_unit_ready(slabjit_unit *unit, int wait) SLABJIT_NOEXCEPT;
/* Whether it refers to something that is not ready, and in no object of the caller's. */
int slabjit_unit_waits_for_foreign(const slabjit_unit *unit) SLABJIT_NOEXCEPT;
/* Tells its resource key, with the session locked; 0 if its tracker was removed. */
int slabjit_unit_key(const slabjit_unit *unit, void (*told)(void *user, uintptr_t key), void *user) SLABJIT_NOEXCEPT;
/* Reports an error to the session, and tells ORC that the object failed. Consumes the unit. */
void slabjit_unit_fail(slabjit_unit *unit, const char *text, size_t len) SLABJIT_NOEXCEPT;
/* NULL, or in what the library that is loaded differs from the headers. */
char *slabjit_check_version(void) SLABJIT_NOEXCEPT;

/* Makes an LLJIT for this process that hands its objects to `caller`, which is copied. IR is compiled as for a
 * shared library. Owner: the caller, who ends it with slabjit_session_end and frees it with slabjit_session_dispose.
 * `report` is told what LLVM says of errors in it; on any thread, and it may not unwind. With `find_process_symbols`,
 * the main dylib finds the process's symbols also where an LLJIT does not see to that (up to LLVM 16). The native
 * target must have been initialised (LLVMInitializeNativeTarget and its AsmPrinter). */
char *slabjit_session_create(void (*report)(const char *text, size_t len), const slabjit_orc *caller,
                             int find_process_symbols, slabjit_session **out)
    SLABJIT_NOEXCEPT;
/* The LLJIT (LLVMOrcLLJITRef), owned by the session. */
void *slabjit_session_lljit(slabjit_session *session) SLABJIT_NOEXCEPT;
/* Ends the session: removes all that it has. Returns what LLVM said while ending it. */
char *slabjit_session_end(slabjit_session *session) SLABJIT_NOEXCEPT;
/* Frees a session that has ended. Nobody has a tracker of it any more. */
void slabjit_session_dispose(slabjit_session *session) SLABJIT_NOEXCEPT;

/* Builds a LinkGraph from a relocatable ELF object of this machine. The bytes are borrowed until the link has ended.
 * `name` names the object in LLVM's messages. Owner: the caller, until slabjit_batch_link or slabjit_graph_dispose. */
char *slabjit_graph_create(const char *bytes, size_t len, const char *name, size_t name_len, slabjit_graph **out)
    SLABJIT_NOEXCEPT;
/* Asks `external`, `defined`, `retain_block` if `retain`, and `indirect` if `indirect`, about everything in the
 * graph and does what they decide. With `locate`, `located` is told of blocks. `object` is handed to all later
 * callbacks of this graph, which are those of `callbacks`; both are borrowed until the graph is gone. Cannot fail. */
void slabjit_graph_bind(slabjit_graph *graph, const slabjit_callbacks *callbacks, void *object, int retain,
                        int indirect, int locate)
    SLABJIT_NOEXCEPT;
/* Begins to link graphs together. Owner: the caller, until slabjit_batch_end. */
slabjit_batch *slabjit_batch_begin(void) SLABJIT_NOEXCEPT;
/* Links a bound graph as far as it comes: until it needs the address of a name that none of the graphs so far has,
 * or until its content is final. All of a batch have the same callbacks. Several threads may link graphs of a batch at
 * once; the callbacks of any of its graphs are called by any of them. Consumes the graph. 1 if one of the batch has
 * `failed`; then nothing is done any more. */
int slabjit_batch_link(slabjit_batch *batch, slabjit_graph *graph) SLABJIT_NOEXCEPT;
/* Adds an object that the caller has linked and that is to be published and committed, or abandoned, with the graphs,
 * by their callbacks: `object` is object and allocation. */
void slabjit_batch_add(slabjit_batch *batch, const slabjit_callbacks *callbacks, void *object) SLABJIT_NOEXCEPT;
/* Finishes what waits, publishes the memory of all at once and commits it; or, with `give_up`, after a failure, or
 * if it cannot be published, abandons all. If an action of one fails, those before it stay committed. 0 if all were
 * linked. Consumes the batch. */
int slabjit_batch_end(slabjit_batch *batch, int give_up) SLABJIT_NOEXCEPT;
/* Frees a graph that was not linked. NULL is allowed. */
void slabjit_graph_dispose(slabjit_graph *graph) SLABJIT_NOEXCEPT;

/* Runs deallocation actions in reverse and frees them. NULL is allowed. Works after the session has ended. */
char *slabjit_actions_run(slabjit_actions *actions) SLABJIT_NOEXCEPT;

#ifdef __cplusplus
}
#endif
#endif
