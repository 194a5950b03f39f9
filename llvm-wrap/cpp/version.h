// The one place with LLVM version conditions. `ci/matrix` compiles each of them on both sides; README.md says which
// versions it runs.
#ifndef SLABJIT_VERSION_H
#define SLABJIT_VERSION_H

#include "llvm/Config/llvm-config.h"

// From build.rs: what the llvm-config that described the library says of itself.
static_assert(LLVM_VERSION_MAJOR == SLABJIT_LLVM_MAJOR && LLVM_VERSION_MINOR == SLABJIT_LLVM_MINOR,
              "LLVM's headers are of another version than its library");
static_assert(LLVM_VERSION_MAJOR >= 15, "slabjit-llvm-wrap needs LLVM 15 or newer");

#include "llvm-c/Core.h"
#include "llvm/ExecutionEngine/JITLink/JITLink.h"
#include "llvm/ExecutionEngine/JITLink/JITLinkMemoryManager.h"
#include "llvm/ExecutionEngine/JITLink/aarch64.h"
#include "llvm/ExecutionEngine/JITLink/x86_64.h"
#include "llvm/ExecutionEngine/Orc/Core.h"
#include "llvm/ExecutionEngine/Orc/LLJIT.h"
#include "llvm/ExecutionEngine/Orc/ObjectLinkingLayer.h"
#if LLVM_VERSION_MAJOR >= 21
#include "llvm/ExecutionEngine/Orc/SelfExecutorProcessControl.h"
#endif
#if LLVM_VERSION_MAJOR < 17
#include "llvm/ADT/StringSet.h"
#include "llvm/Object/ELF.h"
#endif

// Memory flags moved from jitlink to orc at 16.
#if LLVM_VERSION_MAJOR < 16
namespace llvm::orc {
using jitlink::AllocGroup;
using jitlink::MemProt;
} // namespace llvm::orc
namespace llvm::jitlink::aarch64 {
constexpr auto Branch26PCRel = Branch26;
} // namespace llvm::jitlink::aarch64
#endif

// Kinds of edges that later versions have.
#if LLVM_VERSION_MAJOR >= 16
#define SLABJIT_IF_LLVM16(...) __VA_ARGS__
#else
#define SLABJIT_IF_LLVM16(...)
#endif
#if LLVM_VERSION_MAJOR >= 17
#define SLABJIT_IF_LLVM17(...) __VA_ARGS__
#else
#define SLABJIT_IF_LLVM17(...)
#endif
#if LLVM_VERSION_MAJOR >= 19
#define SLABJIT_IF_LLVM19(...) __VA_ARGS__
#else
#define SLABJIT_IF_LLVM19(...)
#endif
#if LLVM_VERSION_MAJOR >= 20
#define SLABJIT_IF_LLVM20(...) __VA_ARGS__
#else
#define SLABJIT_IF_LLVM20(...)
#endif

namespace slabjit {

/// Whether JITLink defines `__start_NAME` and `__stop_NAME`: up to 18 it looks for the section `_NAME`, and for
/// `__end`.
constexpr bool DefinesSectionBounds = LLVM_VERSION_MAJOR >= 19;

/// Whether a link ends when its memory manager has no memory: 17 abandons the allocation that it did not get.
constexpr bool SurvivesRefusal = LLVM_VERSION_MAJOR != 17;

// ---- graphs ----

#if LLVM_VERSION_MAJOR >= 20 // Symbol::getName() became a SymbolStringPtr.
inline llvm::StringRef symbolName(const llvm::jitlink::Symbol &S) {
  return S.hasName() ? *S.getName() : llvm::StringRef();
}
inline void setSymbolName(llvm::jitlink::LinkGraph &G, llvm::jitlink::Symbol &S, llvm::StringRef Name) {
  S.setName(G.intern(Name));
}
/// A name that stays with the graph when the symbol loses it.
inline llvm::StringRef keptName(llvm::jitlink::LinkGraph &G, const llvm::jitlink::Symbol &S) {
  auto Name = symbolName(S);
  auto Copy = G.allocateContent(llvm::ArrayRef<char>(Name.data(), Name.size()));
  return {Copy.data(), Copy.size()};
}
#else
inline llvm::StringRef symbolName(const llvm::jitlink::Symbol &S) { return S.getName(); }
inline void setSymbolName(llvm::jitlink::LinkGraph &G, llvm::jitlink::Symbol &S, llvm::StringRef Name) {
  auto Copy = G.allocateContent(llvm::ArrayRef<char>(Name.data(), Name.size()));
  S.setName({Copy.data(), Copy.size()});
}
/// A name that stays with the graph when the symbol loses it: it is in the object.
inline llvm::StringRef keptName(llvm::jitlink::LinkGraph &, const llvm::jitlink::Symbol &S) { return S.getName(); }
#endif

/// Up to 16, JITLink makes whatever is not executable writable. Object preparation sees to it that sections of one name
/// agree.
inline llvm::Error setProtections([[maybe_unused]] llvm::jitlink::LinkGraph &G,
                                  [[maybe_unused]] llvm::MemoryBufferRef Object) {
#if LLVM_VERSION_MAJOR < 17
  auto File = llvm::object::ELFFile<llvm::object::ELF64LE>::create(Object.getBuffer());
  if (!File)
    return File.takeError();
  auto Headers = File->sections();
  if (!Headers)
    return Headers.takeError();
  constexpr auto Flags = llvm::ELF::SHF_ALLOC | llvm::ELF::SHF_WRITE | llvm::ELF::SHF_EXECINSTR;
  llvm::StringSet<> ReadOnly;
  for (auto &Header : *Headers) {
    auto Name = File->getSectionName(Header);
    if (!Name)
      return Name.takeError();
    if ((Header.sh_flags & Flags) == llvm::ELF::SHF_ALLOC)
      ReadOnly.insert(*Name);
  }
  for (auto &Sec : G.sections())
    if (ReadOnly.contains(Sec.getName()))
      Sec.setMemProt(llvm::orc::MemProt::Read);
#endif
  return llvm::Error::success();
}

inline llvm::Expected<std::unique_ptr<llvm::jitlink::LinkGraph>>
createLinkGraph(llvm::MemoryBufferRef Object) {
#if LLVM_VERSION_MAJOR >= 20
  // A pool of its own: names of graphs are compared as texts, and threads wait for no common one.
  auto Graph = llvm::jitlink::createLinkGraphFromObject(Object, std::make_shared<llvm::orc::SymbolStringPool>());
#else
  auto Graph = llvm::jitlink::createLinkGraphFromObject(Object);
#endif
  if (Graph)
    if (auto E = setProtections(**Graph, Object))
      return E;
  return Graph;
}

/// Whether plain.cpp knows how the graphs of this version are made.
#define SLABJIT_KNOWS_GRAPHS (LLVM_VERSION_MAJOR >= 19)

#if SLABJIT_KNOWS_GRAPHS
/// An empty graph for little-endian 64-bit code, with names of its own as above.
inline std::unique_ptr<llvm::jitlink::LinkGraph> emptyGraph(llvm::StringRef Name, const llvm::Triple &Target,
                                                            const char *(*KindName)(llvm::jitlink::Edge::Kind)) {
#if LLVM_VERSION_MAJOR >= 20
  auto Pool = std::make_shared<llvm::orc::SymbolStringPool>();
  return std::make_unique<llvm::jitlink::LinkGraph>(Name.str(), std::move(Pool), Target, llvm::SubtargetFeatures(),
                                                    KindName);
#else
  return std::make_unique<llvm::jitlink::LinkGraph>(Name.str(), Target, KindName);
#endif
}
#endif

/// LinkGraph::makeAbsolute forgets the address of an external symbol in 15.
inline void makeAbsolute(llvm::jitlink::LinkGraph &G, llvm::jitlink::Symbol &S, llvm::orc::ExecutorAddr Address) {
  G.makeAbsolute(S, Address);
#if LLVM_VERSION_MAJOR < 16
  S.getAddressable().setAddress(Address);
#endif
}

/// A block of zeros. LinkGraph's own function for that is missing in 15, and makes a block of one byte in 16.
inline llvm::jitlink::Block &createZeros(llvm::jitlink::LinkGraph &G, llvm::jitlink::Section &Sec, size_t Size,
                                         uint64_t Alignment) {
  auto Content = G.allocateBuffer(Size);
  std::memset(Content.data(), 0, Size);
  return G.createMutableContentBlock(Sec, Content, llvm::orc::ExecutorAddr(), Alignment, 0);
}

// ---- memory ----

#if LLVM_VERSION_MAJOR >= 18
template <typename T> auto lifetime(const T &Of) { return Of.getMemLifetime(); }
using MemLifetime = llvm::orc::MemLifetime;
inline void setLifetime(llvm::jitlink::Section &Sec, MemLifetime L) { Sec.setMemLifetime(L); }
#elif LLVM_VERSION_MAJOR >= 17
template <typename T> auto lifetime(const T &Of) { return Of.getMemLifetimePolicy(); }
using MemLifetime = llvm::orc::MemLifetimePolicy;
inline void setLifetime(llvm::jitlink::Section &Sec, MemLifetime L) { Sec.setMemLifetimePolicy(L); }
#else
template <typename T> auto lifetime(const T &Of) { return Of.getMemDeallocPolicy(); }
using MemLifetime = decltype(lifetime(std::declval<llvm::jitlink::Section>()));
#endif

/// Whether a section has memory: symbol tables and notes for the linker have none. Up to 16 they get into no graph.
inline bool isAllocated([[maybe_unused]] const llvm::jitlink::Section &Sec) {
#if LLVM_VERSION_MAJOR >= 17
  return lifetime(Sec) != MemLifetime::NoAlloc;
#else
  return true;
#endif
}

/// What a section was before `hide`.
struct Hidden {
  llvm::orc::MemProt Prot;
  MemLifetime Lifetime;
};

/// Keeps a section out of BasicLayout, until `show`.
inline Hidden hide(llvm::jitlink::Section &Sec) {
  Hidden Was{Sec.getMemProt(), lifetime(Sec)};
#if LLVM_VERSION_MAJOR >= 17
  setLifetime(Sec, MemLifetime::NoAlloc);
#else // Into a segment of its own, which `segments` drops.
  Sec.setMemProt(llvm::orc::MemProt::None);
#endif
  return Was;
}

inline void show(llvm::jitlink::Section &Sec, const Hidden &Was) {
#if LLVM_VERSION_MAJOR >= 17
  setLifetime(Sec, Was.Lifetime);
#else
  Sec.setMemProt(Was.Prot);
#endif
}

using Segment = llvm::jitlink::BasicLayout::Segment;

/// The segments of a layout, without hidden sections.
inline llvm::SmallVector<std::pair<llvm::orc::AllocGroup, Segment *>, 4> segments(llvm::jitlink::BasicLayout &Layout) {
  llvm::SmallVector<std::pair<llvm::orc::AllocGroup, Segment *>, 4> Shown;
  for (auto &[Group, Seg] : Layout.segments()) {
#if LLVM_VERSION_MAJOR < 17
    if (Group.getMemProt() == llvm::orc::MemProt::None) {
      Seg = Segment();
      continue;
    }
#endif
    Shown.push_back({Group, &Seg});
  }
  return Shown;
}

#if LLVM_VERSION_MAJOR == 21
/// The result of a function of LLVM's that hands it to a callback before it returns.
template <typename T, typename Run> T resultOf(Run Call) {
  std::optional<T> Result;
  Call([&](T Given) { Result.emplace(std::move(Given)); });
  return std::move(*Result);
}
#endif

/// The actions to run when memory goes. Finalize actions run first, and undo what they did if one fails.
inline llvm::Expected<std::vector<llvm::orc::shared::WrapperFunctionCall>>
runFinalizeActions(llvm::orc::shared::AllocActions &Actions) {
#if LLVM_VERSION_MAJOR == 21
  using Result = llvm::Expected<std::vector<llvm::orc::shared::WrapperFunctionCall>>;
  return resultOf<Result>([&](auto Done) { llvm::orc::shared::runFinalizeActions(Actions, std::move(Done)); });
#else
  return llvm::orc::shared::runFinalizeActions(Actions);
#endif
}

inline llvm::Error runDeallocActions(llvm::ArrayRef<llvm::orc::shared::WrapperFunctionCall> Calls) {
#if LLVM_VERSION_MAJOR == 21
  return resultOf<llvm::Error>([&](auto Done) { llvm::orc::shared::runDeallocActions(Calls, std::move(Done)); });
#else
  return llvm::orc::shared::runDeallocActions(Calls);
#endif
}

// ---- lookups ----

#if LLVM_VERSION_MAJOR >= 20
inline llvm::StringRef textOf(const llvm::orc::SymbolStringPtr &Name) { return *Name; }
/// What names of a graph are kept in. Lookups and their results hold such names, and end after the graph.
using NamePool = std::shared_ptr<llvm::orc::SymbolStringPool>;
inline NamePool namePool(llvm::jitlink::LinkGraph &G) { return G.getSymbolStringPool(); }
#else
inline llvm::StringRef textOf(llvm::StringRef Name) { return Name; }
struct NamePool {};
inline NamePool namePool(llvm::jitlink::LinkGraph &) { return {}; }
#endif

/// What a lookup finds at an address.
#if LLVM_VERSION_MAJOR >= 17
inline llvm::orc::ExecutorSymbolDef foundAt(llvm::orc::ExecutorAddr Address) {
  return {Address, llvm::JITSymbolFlags::Exported};
}
#else
inline llvm::JITEvaluatedSymbol foundAt(llvm::orc::ExecutorAddr Address) {
  return {Address.getValue(), llvm::JITSymbolFlags::Exported};
}
#endif

/// A definition for ORC, and its address.
#if LLVM_VERSION_MAJOR >= 17
inline llvm::orc::ExecutorSymbolDef definedAt(llvm::orc::ExecutorAddr Address, llvm::JITSymbolFlags Flags) {
  return {Address, Flags};
}
inline uint64_t addressOf(const llvm::orc::ExecutorSymbolDef &Of) { return Of.getAddress().getValue(); }
#else
inline llvm::JITEvaluatedSymbol definedAt(llvm::orc::ExecutorAddr Address, llvm::JITSymbolFlags Flags) {
  return {Address.getValue(), Flags};
}
inline uint64_t addressOf(const llvm::JITEvaluatedSymbol &Of) { return Of.getAddress(); }
#endif

// ---- sessions ----

/// Has `By` run a session's tasks. From 19 on, that is what its process was made with.
inline void runTasks([[maybe_unused]] llvm::orc::ExecutionSession &ES,
                     [[maybe_unused]] std::unique_ptr<llvm::orc::TaskDispatcher> By) {
#if LLVM_VERSION_MAJOR < 19
  ES.setDispatchTask([By = std::move(By)](std::unique_ptr<llvm::orc::Task> T) { By->dispatch(std::move(T)); });
#endif
}

/// Has the main dylib find the process's symbols. From 17 on, LLJIT does that for every dylib.
inline llvm::Error findProcessSymbols([[maybe_unused]] llvm::orc::LLJIT &JIT) {
#if LLVM_VERSION_MAJOR < 17
  auto Symbols = llvm::orc::DynamicLibrarySearchGenerator::GetForCurrentProcess(JIT.getDataLayout().getGlobalPrefix());
  if (!Symbols)
    return Symbols.takeError();
  JIT.getMainJITDylib().addGenerator(std::move(*Symbols));
#endif
  return llvm::Error::success();
}

// ---- layers ----

// What comes before the key in a resource manager's functions.
#if LLVM_VERSION_MAJOR >= 16
#define SLABJIT_RESOURCES_OF llvm::orc::JITDylib &,
#else
#define SLABJIT_RESOURCES_OF
#endif

/// Has ORC wait for `Dependences`, which may be empty, before all symbols of `R` are ready.
inline llvm::Error notifyEmitted(llvm::orc::MaterializationResponsibility &R,
                                 llvm::orc::SymbolDependenceMap Dependences) {
#if LLVM_VERSION_MAJOR >= 19
  llvm::SmallVector<llvm::orc::SymbolDependenceGroup, 1> Groups;
  if (!Dependences.empty()) {
    Groups.emplace_back();
    for (auto &[Name, Flags] : R.getSymbols())
      Groups[0].Symbols.insert(Name);
    Groups[0].Dependencies = std::move(Dependences);
  }
  return R.notifyEmitted(Groups);
#else
  if (!Dependences.empty())
    R.addDependenciesForAll(Dependences);
  return R.notifyEmitted();
#endif
}

// ---- passes ----

/// Up to 19, JITLink's first pass takes an unwind table apart record by record, and with each moves all references that
/// are left. It gets the table without them, unless they are few.
inline void splitFramesWithoutReferences([[maybe_unused]] llvm::jitlink::LinkGraph &G,
                                         [[maybe_unused]] llvm::jitlink::PassConfiguration &Config) {
#if LLVM_VERSION_MAJOR < 20
  using namespace llvm::jitlink;
  auto HasMany = [](Block *B) { return !B->isZeroFill() && B->edges_size() >= 64; };
  auto *Whole = G.findSectionByName(".eh_frame");
  if (Config.PrePrunePasses.empty() || !Whole || llvm::none_of(Whole->blocks(), HasMany))
    return;
  auto &First = Config.PrePrunePasses.front();
  First = [HasMany, Split = std::move(First)](LinkGraph &G) mutable -> llvm::Error {
    auto *Frames = G.findSectionByName(".eh_frame");
    std::vector<std::pair<const char *, Edge>> References;
    std::vector<Block *> Blocks;
    if (Frames)
      for (auto *B : Frames->blocks()) {
        if (!HasMany(B))
          continue;
        for (auto &E : B->edges())
          References.emplace_back(B->getContent().data() + E.getOffset(), E);
        while (!B->edges_empty())
          B->removeEdge(std::prev(B->edges().end()));
      }
    if (auto Err = Split(G))
      return Err;
    if (References.empty())
      return llvm::Error::success();
    for (auto *B : Frames->blocks())
      if (!B->isZeroFill())
        Blocks.push_back(B);
    auto Start = [](Block *B) { return B->getContent().data(); };
    llvm::sort(Blocks, [&](Block *L, Block *R) { return Start(L) < Start(R); });
    for (auto &[At, E] : References) {
      auto *B = *std::prev(llvm::upper_bound(Blocks, At, [&](const char *P, Block *B) { return P < Start(B); }));
      B->addEdge(E.getKind(), At - Start(B), E.getTarget(), E.getAddend());
    }
    return llvm::Error::success();
  };
#endif
}

/// Unwinders read frames up to a length of zero, which JITLink 15 appends on x86-64 only.
inline void terminateFrames([[maybe_unused]] llvm::jitlink::PassConfiguration &Config) {
#if LLVM_VERSION_MAJOR < 16
  Config.PrePrunePasses.push_back([](llvm::jitlink::LinkGraph &G) {
    auto *Frames = G.findSectionByName(".eh_frame");
    if (Frames && G.getTargetTriple().isAArch64()) {
      static const char Zero[4] = {};
      // The highest address comes last.
      llvm::orc::ExecutorAddr Last(~uint64_t(7));
      auto &End = G.createContentBlock(*Frames, llvm::ArrayRef<char>(Zero), Last, 1, 0);
      G.addAnonymousSymbol(End, 0, sizeof(Zero), false, true);
    }
    return llvm::Error::success();
  });
#endif
}

// ---- LLJIT ----

// LLJITBuilder's layer creator lost its Triple parameter in 21.
template <typename Make> auto layerCreator(Make M) {
#if LLVM_VERSION_MAJOR >= 23
  return [M](llvm::orc::ExecutionSession &ES, llvm::jitlink::JITLinkMemoryManager &)
             -> llvm::Expected<std::unique_ptr<llvm::orc::ObjectLayer>> { return M(ES); };
#elif LLVM_VERSION_MAJOR >= 21
  return [M](llvm::orc::ExecutionSession &ES)
             -> llvm::Expected<std::unique_ptr<llvm::orc::ObjectLayer>> { return M(ES); };
#else
  return [M](llvm::orc::ExecutionSession &ES, const llvm::Triple &)
             -> llvm::Expected<std::unique_ptr<llvm::orc::ObjectLayer>> { return M(ES); };
#endif
}

// What sets a platform up may make a dylib for it since 17.
template <typename SetUp> auto platformSetUp(SetUp S) {
#if LLVM_VERSION_MAJOR >= 17
  return [S](llvm::orc::LLJIT &JIT) -> llvm::Expected<llvm::orc::JITDylibSP> {
    S(JIT);
    return nullptr;
  };
#else
  return [S](llvm::orc::LLJIT &JIT) -> llvm::Error {
    S(JIT);
    return llvm::Error::success();
  };
#endif
}

/// The version of the library in use. 15 does not tell: that of the headers, and of what a build was told of the
/// library.
inline void libraryVersion(unsigned (&Numbers)[3]) {
#if LLVM_VERSION_MAJOR >= 16
  LLVMGetVersion(&Numbers[0], &Numbers[1], &Numbers[2]);
#else
  Numbers[0] = LLVM_VERSION_MAJOR, Numbers[1] = LLVM_VERSION_MINOR, Numbers[2] = LLVM_VERSION_PATCH;
#endif
}

} // namespace slabjit

#endif
