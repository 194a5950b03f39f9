// What the .cpp files share.
#ifndef SLABJIT_INTERNAL_H
#define SLABJIT_INTERNAL_H

#include "slabjit.h"
#include "version.h"

#include "llvm/ADT/SetVector.h"

#include <mutex>
#include <vector>

namespace slabjit {

/// A copy of `Text` for the C interface; freed by slabjit_string_free.
char *copyText(llvm::StringRef Text);
/// LLVM's words for an error, or nullptr for success.
char *takeText(llvm::Error E);

} // namespace slabjit

namespace slabjit {

llvm::Error refused(const char *What);

using NamedSymbols = llvm::SmallVector<llvm::jitlink::Symbol *, 16>;

/// One object from the moment its graph is made until its link has ended.
struct Link {
  const slabjit_callbacks *Callbacks = nullptr;
  void *Object = nullptr;
  struct Named {
    llvm::jitlink::Symbol *Symbol;
    uint64_t Cookie;
  };
  struct Retained {
    llvm::jitlink::Block *Block;
    uint64_t Cookie;
  };
  struct Function {
    llvm::StringRef Name;
    llvm::jitlink::Block *Block;
    uint64_t Offset, Bytes;
  };
  /// Named symbols in executable sections, as the object has them. JITLink prunes names that nothing refers to, also in
  /// blocks that stay; some of the blocks may be pruned since.
  llvm::SmallVector<Function, 4> Functions;
  struct Located {
    llvm::jitlink::Block *Block;
    llvm::StringRef Section;
    const char *Origin;
  };
  /// Mapped blocks as the object has them, if the caller wants to know where they are; some may be pruned since.
  std::vector<Located> Located;
  /// The object that the graph was made of.
  llvm::StringRef Bytes;
  /// Whether `buildPlain` made it.
  bool IsPlain = false;
  /// Whether a reference wants a GOT entry; said of plain graphs.
  bool WantsGOT = false;
  /// Whether JITLink's own passes would change nothing: the graph is bound without them.
  bool IsBare = false;
  /// Addresses that LLVM is told, less those of the memory. Only LLVM's own tests have another than 0 (ci/llvm-suite):
  /// they link for addresses of their choosing, and nothing of that runs.
  uint64_t Displacement = 0;
  /// Leaves out what undoes relaxations of JITLink's that are wrong: one of LLVM's own tests wants them.
  bool KeepsRelaxations = false;
  /// Why there is no memory, for the next pass to say where JITLink does not survive to be told.
  const char *Refused = nullptr;
  struct Source {
    llvm::jitlink::Block *Block;
    llvm::StringRef Section;
    /// Its bytes as the graph was made with them.
    const char *Origin;
  };
  /// Blocks that have references and memory, in the order of the file, which is that of failures.
  llvm::SmallVector<Source, 4> Referring;
  /// What `reserve` asked for, in its order.
  llvm::jitlink::Block *Rooms[3] = {};
  llvm::SmallVector<Named, 4> Symbols;
  /// Those that other graphs refer to, by the names that they have here.
  llvm::SmallVector<llvm::jitlink::Symbol *, 2> Exports;
  llvm::SmallVector<Retained, 2> Blocks;
  /// Those for which the caller has memory of its own.
  llvm::SmallSetVector<llvm::jitlink::Section *, 2> Apart;
  /// Symbols of indirect functions; some may be pruned since.
  llvm::DenseSet<llvm::jitlink::Symbol *> Indirect;
};

/// Memory whose content is final. It ends in one of `commit`, once it is published, and `abandon`.
struct Finished {
  const slabjit_callbacks *Callbacks;
  slabjit_memory Memory;
  llvm::orc::shared::AllocActions Actions;

  /// If an action fails, it is abandoned.
  llvm::Error commit();
  void abandon();
};

/// Memory of links that are published together. Several threads may add to it.
class FinishedLinks {
public:
  void add(Finished Link) {
    std::lock_guard<std::mutex> Locked(Lock);
    All.push_back(std::move(Link));
  }

  std::vector<Finished> All;

private:
  std::mutex Lock;
};

/// Has memory published together. If that fails, the caller knows why.
bool publish(llvm::ArrayRef<Finished> Links);

/// Asks the caller for the memory of one link.
class MemoryManager final : public llvm::jitlink::JITLinkMemoryManager {
public:
  /// What is finished goes to `Keep`; without it, it is published and committed at once.
  explicit MemoryManager(Link &L, FinishedLinks *Keep = nullptr) : L(L), Keep(Keep) {}
  void allocate(const llvm::jitlink::JITLinkDylib *, llvm::jitlink::LinkGraph &G,
                OnAllocatedFunction OnAllocated) override;
  void deallocate(std::vector<FinalizedAlloc> Allocs, OnDeallocatedFunction OnDeallocated) override;
  using JITLinkMemoryManager::allocate;
  using JITLinkMemoryManager::deallocate;

private:
  Link &L;
  FinishedLinks *Keep;
};

/// Makes the graph of an object, or returns nothing where the object has what this does not know. It leaves out what
/// JITLink prunes anyway: sections without memory, and symbols of sections to which nothing refers. `Named` gets its
/// symbols that have names, in the order of the file; `L` is told what it is.
std::unique_ptr<llvm::jitlink::LinkGraph> buildPlain(llvm::MemoryBufferRef Object, Link &L, NamedSymbols &Named);
/// The name of a block's section in the object, until the block has its final address.
llvm::StringRef sectionName(const Link &L, const llvm::jitlink::Block &B);
/// For tests: ends the process unless LLVM's builder makes the same, of objects of no more bytes than
/// SLABJIT_COMPARE_GRAPHS in the environment says.
void compareWithLLVMs(llvm::jitlink::LinkGraph &Plain, llvm::MemoryBufferRef Object);

/// Adds what is done for every link to JITLink's passes. `L` lives as long as they.
void addPasses(Link &L, llvm::jitlink::LinkGraph &Graph, llvm::jitlink::PassConfiguration &Config);

/// Keeps unwind tables in one piece where all that they describe is kept, and returns whether it did.
bool keepFramesWhole(llvm::jitlink::LinkGraph &G, llvm::jitlink::Section &Frames);
/// Whether JITLink's own passes would change nothing but the end of the unwind table, which this adds.
bool doWithoutPasses(const Link &L, llvm::jitlink::LinkGraph &G);
/// Has the records of unwind tables lie one after the other.
void closeGapsInFrames(llvm::jitlink::LinkGraph &G);

/// As many as small objects have, which need no memory for them.
using Sections = llvm::SmallVector<llvm::jitlink::Section *, 16>;
using Blocks = llvm::SmallVector<llvm::jitlink::Block *, 4>;
/// The sections with blocks in the order of the file, which LLVM's table of them does not have in every version.
Sections sectionsInOrder(llvm::jitlink::LinkGraph &G);
/// A section's blocks by their addresses.
Blocks blocksInOrder(llvm::jitlink::Section &Sec);
/// Gives the blocks of each section an order that does not depend on where they are stored.
llvm::Error orderBlocks(llvm::jitlink::LinkGraph &G, llvm::StringRef Object);
/// Shows the caller all references before there are addresses, and makes the room it asks for.
llvm::Error surveyReferences(Link &L, llvm::jitlink::LinkGraph &G);
/// Shows the caller all references at final addresses.
llvm::Error checkReferences(Link &L, llvm::jitlink::LinkGraph &G);

/// Asks the caller which symbols are indirect functions.
void noteIndirectFunctions(Link &L, llvm::jitlink::LinkGraph &G);
/// Gives each a stub and a slot that refers to its resolver.
llvm::Error makeIndirectFunctions(Link &L, llvm::jitlink::LinkGraph &G);
/// Adds the slots at their addresses.
void reportSlots(llvm::jitlink::LinkGraph &G, llvm::SmallVectorImpl<slabjit_placed> &Blocks);

/// The object layer that hands objects to the caller.
std::unique_ptr<llvm::orc::ObjectLayer> makeLayer(llvm::orc::ExecutionSession &ES, const slabjit_orc &Caller);
/// What runs the tasks of a session.
std::unique_ptr<llvm::orc::TaskDispatcher> makeDispatcher(const slabjit_orc &Caller);
llvm::orc::LLJIT &lljit(slabjit_session *Session);
/// Has the caller initialise dylibs.
void setUpPlatform(llvm::orc::LLJIT &JIT, const slabjit_orc &Caller);

} // namespace slabjit

struct slabjit_graph {
  std::unique_ptr<llvm::jitlink::LinkGraph> Graph;
  std::unique_ptr<slabjit::Link> Link = std::make_unique<slabjit::Link>();
  /// Its symbols that have names, until it is bound.
  slabjit::NamedSymbols Named;
};

struct slabjit_actions {
  std::vector<llvm::orc::shared::WrapperFunctionCall> Calls;
};

#endif
