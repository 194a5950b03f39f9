/* The C interface of slabjit-llvm-wrap. Mechanism only: every decision is made by the caller, in Rust.
 *
 * Conventions, unless a function says otherwise
 *  - Errors: a function that can fail returns NULL for success, else a string in LLVM's own words. The caller owns the
 *    string and frees it with slabjit_string_free.
 *  - Threads: every function may be called from any thread. Functions on one graph must not overlap.
 *  - Nothing throws or unwinds out of a function (`noexcept`), except slabjit_call_catching, and no callback may unwind.
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

/* The cookie of slots of indirect functions in `placed`: 8 bytes with the address of the resolver, for the caller to call and to
 * replace by what it returns. */
#define SLABJIT_SLOT (UINT64_MAX - 1)

/* In a cookie of `retain_block`: the caller has memory of its own for the section. */
#define SLABJIT_APART (UINT64_C(1) << 62)

/* What becomes of a symbol. */
typedef enum {
  SLABJIT_KEEP = 0,     /* external: leave it to JITLink; defined: make it local and keep it alive */
  SLABJIT_ABSOLUTE = 1, /* external: it is at `address` */
  SLABJIT_RENAME = 2,   /* external: another graph has it as `name`; defined: keep it alive, and others know it as `name` */
  SLABJIT_DISCARD = 3,  /* defined: another definition was chosen; it becomes an external and is asked about again */
  SLABJIT_DROP = 4,     /* defined: make it local, keep it only if something refers to it */
} slabjit_verdict;

typedef struct {
  uint32_t verdict; /* slabjit_verdict */
  uint64_t address; /* for SLABJIT_ABSOLUTE */
  uint64_t cookie;  /* defined and kept: reported with the address in `placed` */
  const char *name; /* for SLABJIT_RENAME; copied. Among the names of symbols of all graphs that are linked together, only once */
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
                        * R_AARCH64_ADD_ABS_LO12_NC and MoveWide16 R_AARCH64_MOVW_UABS_G0_NC, whatever the instruction */
  uint32_t offset;     /* of the field, in the block */
  uint32_t place;      /* slabjit_place; SLABJIT_AT_ADDRESS once addresses are known */
  uint32_t drop;       /* out, of `check`: 1 if the caller has written the field and LLVM must not */
  int64_t addend;      /* the ABI's */
  uint64_t target;
  uint64_t target_block; /* where the block begins that the target is in, which may be its end; 0 before that is known, and for none */
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
   * their addresses, or 0 for no. `content` is the block's bytes in the object, NULL for zero-fill. With SLABJIT_APART in the
   * cookie, which is not reported, all blocks of the section lie where `place` says. */
  uint64_t (*retain_block)(void *object, const char *section, size_t len, const char *content);

  /* Whether a defined symbol is an indirect function: 1 or 0. `content`: what is there in the object. Asked before all others. */
  int (*indirect)(void *object, const char *name, size_t len, const char *content);

  /* Whether a section need not be near the others, if no reference keeps it: 1 or 0. */
  int (*may_leave)(void *object, const char *section, size_t len);

  /* -- before memory is allocated: where a block of a section apart lies, and where it is written, which is writable until `publish`, and
   * zero. `origin` is NULL for zero-fill; blocks of a section come in the order of the file where they have contents. 0 is success; after a
   * failure the caller has kept the reason -- */
  int (*place)(void *object, const slabjit_block *block, uint64_t alignment, uint64_t *address, uint64_t *written);

  /* -- references that may turn out to be too long: every block that refers to something, before addresses are known (`bytes`:
   * of all blocks of the graph, padding included), some of its references at a time; then once: how many bytes the caller
   * wants at the head and at the tail of the code, and among read-only data -- */
  void (*survey)(void *object, uint64_t bytes, const slabjit_block *block, const slabjit_edge *edges, size_t n);
  void (*reserve)(void *object, uint64_t *code_head, uint64_t *code_tail, uint64_t *data);
  /* -- at final addresses, before LLVM writes any field: what was reserved, in that order, and where the GOT is (or 0);
   * every block that refers to something; then once: 0 if the link may go on. A failure is explained by the caller -- */
  void (*settled)(void *object, const slabjit_room rooms[3], uint64_t got);
  void (*check)(void *object, const slabjit_block *block, slabjit_edge *edges, size_t n);
  int (*checked)(void *object);

  /* -- memory: 0 is success; after a failure the caller has kept the reason, the text LLVM carries is unspecific -- */
  /* For all segments, their addresses and where they are to be written, which may be elsewhere: what is there is writable until
   * `publish`, and what is at the addresses readable. On success *allocation is set, and ends in exactly one of commit or abandon. */
  int (*allocate)(void *object, const slabjit_segment *segments, size_t n, uint64_t *addresses, uint64_t *written,
                  void **allocation);
  /* The content of all of these is final: apply protections. They are the memory of all that was linked together. */
  int (*publish)(const slabjit_memory *memory, size_t n);
  /* Finalisation actions have run. Memory and `actions` (may be NULL) are the caller's alone from here on; LLVM keeps no
   * share in them. The caller runs the actions with slabjit_actions_run before the memory goes. */
  void (*commit)(void *object, void *allocation, slabjit_actions *actions);
  /* The link failed after `allocate`. */
  void (*abandon)(void *object, void *allocation);

  /* -- addresses are known; symbols and blocks are those with cookies; .eh_frame is {0,0} where there is none -- */
  void (*placed)(void *object, const slabjit_placed *symbols, size_t n_symbols, const slabjit_placed *blocks,
                 size_t n_blocks, uint64_t eh_frame, uint64_t eh_frame_bytes);
  /* The link of `object` has failed, in LLVM's words; of those that are linked together the first only. */
  void (*failed)(void *object, const char *text, size_t len);
} slabjit_callbacks;

/* The LLVM these functions were compiled for, such as 19. */
uint32_t slabjit_llvm_major(void) SLABJIT_NOEXCEPT;

/* Major, minor and patch of the LLVM that is loaded, to `numbers`. LLVM 15 does not tell: then what these functions were compiled for. */
void slabjit_llvm_version(uint32_t numbers[3]) SLABJIT_NOEXCEPT;

/* Frees a string returned by one of these functions. NULL is allowed. */
void slabjit_string_free(char *text) SLABJIT_NOEXCEPT;

/* Has a module be compiled as for a shared library, also where it was made for an executable (`-fPIE`): its thread-local variables are reached by
 * the dynamic models then. Owner: the caller. Thread: that of the module's context. `module` is an LLVMModuleRef. */
struct LLVMOpaqueModule;
void slabjit_module_set_shared(struct LLVMOpaqueModule *module) SLABJIT_NOEXCEPT;

/* Makes an LLJIT for this process with an inactive platform, which links no objects: for what is not wrapped here. Owner: the caller, who
 * disposes of it with slabjit_session_dispose. `report` is told what LLVM says of errors in it; on any thread, and it may not unwind.
 * The native target must have been initialised (LLVMInitializeNativeTarget and its AsmPrinter). Fails if the library that is loaded is
 * of another version than the headers. */
char *slabjit_session_create(void (*report)(const char *text, size_t len), slabjit_session **out) SLABJIT_NOEXCEPT;
/* The LLJIT (LLVMOrcLLJITRef), owned by the session. */
void *slabjit_session_lljit(slabjit_session *session) SLABJIT_NOEXCEPT;
/* Ends the session. Returns what LLVM said while ending it. */
char *slabjit_session_dispose(slabjit_session *session) SLABJIT_NOEXCEPT;

/* Builds a LinkGraph from a relocatable ELF object of this machine. The bytes are borrowed until the link has ended.
 * `name` names the object in LLVM's messages. Owner: the caller, until slabjit_batch_link or slabjit_graph_dispose. */
char *slabjit_graph_create(const char *bytes, size_t len, const char *name, size_t name_len, slabjit_graph **out)
    SLABJIT_NOEXCEPT;
/* Asks `external`, `defined`, `retain_block` if `retain`, and `indirect` if `indirect`, about everything in the graph and does what they decide.
 * `object` is handed to all later callbacks of this graph, which are those of `callbacks`; both are borrowed until the graph is gone. Cannot
 * fail. */
void slabjit_graph_bind(slabjit_graph *graph, const slabjit_callbacks *callbacks, void *object, int retain, int indirect)
    SLABJIT_NOEXCEPT;
/* Begins to link graphs together, all on one thread. Owner: the caller, until slabjit_batch_end. */
slabjit_batch *slabjit_batch_begin(void) SLABJIT_NOEXCEPT;
/* Links a bound graph as far as it comes: until it needs the address of a name that none of the graphs so far has, or until its content is
 * final. All of a batch have the same callbacks. Consumes the graph. 1 if one of the batch has `failed`; then nothing is done any more. */
int slabjit_batch_link(slabjit_batch *batch, slabjit_graph *graph) SLABJIT_NOEXCEPT;
/* Finishes what waits, publishes the memory of all at once and commits it; or, with `give_up`, after a failure, or if it cannot be
 * published, abandons all. If an action of one fails, those before it stay committed. 0 if all were linked. Consumes the batch. */
int slabjit_batch_end(slabjit_batch *batch, int give_up) SLABJIT_NOEXCEPT;
/* Frees a graph that was not linked. NULL is allowed. */
void slabjit_graph_dispose(slabjit_graph *graph) SLABJIT_NOEXCEPT;

/* Runs deallocation actions in reverse and frees them. NULL is allowed. Works after the session has ended. */
char *slabjit_actions_run(slabjit_actions *actions) SLABJIT_NOEXCEPT;

/* Calls `function(argument)`. A C++ exception is caught and described in the result. An exception of another language
 * (a Rust panic) passes through: this is the one function that may unwind. */
char *slabjit_call_catching(void (*function)(void *), void *argument);

#ifdef __cplusplus
}
#endif
#endif
