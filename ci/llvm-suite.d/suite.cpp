// Joins llvm-jitlink to the shim's manager and passes, and to the crate behind them (src/link/llvm_suite.rs).
#include "suite.h"

#include "internal.h"

#include "llvm/ExecutionEngine/Orc/Core.h"
#include "llvm/Support/MemoryBuffer.h"

#include <mutex>

using namespace llvm;
using namespace llvm::jitlink;
using namespace llvm::orc;

extern "C" {
uint64_t slabjit_suite_start(uint64_t Size, uint64_t Base);
const slabjit_callbacks *slabjit_suite_callbacks();
int slabjit_suite_is_like_llvm(const char *What);
void *slabjit_suite_prepare(const char *Name, size_t NameLen, const char *Bytes, size_t Len, const char **Prepared,
                            size_t *PreparedLen);
}

namespace {

#if LLVM_VERSION_MAJOR >= 19
using PluginPointer = std::shared_ptr<ObjectLinkingLayer::Plugin>;
#else
using PluginPointer = std::unique_ptr<ObjectLinkingLayer::Plugin>;
#endif

/// A plugin that keeps nothing under resource keys.
class PluginWithoutResources : public ObjectLinkingLayer::Plugin {
#if LLVM_VERSION_MAJOR >= 16
  Error notifyRemovingResources(JITDylib &, ResourceKey) final { return Error::success(); }
  void notifyTransferringResources(JITDylib &, ResourceKey, ResourceKey) final {}
#else
  Error notifyRemovingResources(ResourceKey) final { return Error::success(); }
  void notifyTransferringResources(ResourceKey, ResourceKey) final {}
#endif
};

/// Whose link a graph or a responsibility is. The tool links on many threads.
class LinksInProgress {
public:
  slabjit::Link &insert(const void *Owner, LinkGraph &G, std::unique_ptr<slabjit::Link> L) {
    std::lock_guard<std::mutex> Lock(Mutex);
    auto &Entry = ByGraph[&G] = L.get();
    Owned[Owner] = {&G, std::move(L)};
    return *Entry;
  }
  slabjit::Link *find(LinkGraph &G) {
    std::lock_guard<std::mutex> Lock(Mutex);
    return ByGraph.lookup(&G);
  }
  void take(const void *Owner) {
    std::lock_guard<std::mutex> Lock(Mutex);
    ByGraph.erase(Owned[Owner].first);
    Owned.erase(Owner);
  }

private:
  std::mutex Mutex;
  DenseMap<LinkGraph *, slabjit::Link *> ByGraph;
  DenseMap<const void *, std::pair<LinkGraph *, std::unique_ptr<slabjit::Link>>> Owned;
};

/// They live as long as the process: the session goes in `main`, in LLVM's order.
LinksInProgress &links() {
  static auto *Links = new LinksInProgress;
  return *Links;
}
uint64_t Displacement;
bool NothingRuns;

/// The object whose graph is made on this thread, until its passes are asked for.
struct Pending {
  void *Object = nullptr;
  MemoryBufferRef Bytes;
};
thread_local Pending Current;

Pending prepare(StringRef Name, StringRef Bytes) {
  Pending P;
  const char *Prepared = nullptr;
  size_t Len = 0;
  P.Object = slabjit_suite_prepare(Name.data(), Name.size(), Bytes.data(), Bytes.size(), &Prepared, &Len);
  P.Bytes = MemoryBufferRef(StringRef(Prepared, Len), Name);
  return P;
}

std::unique_ptr<slabjit::Link> linkOf(const Pending &P) {
  auto Link = std::make_unique<slabjit::Link>();
  Link->Callbacks = slabjit_suite_callbacks();
  Link->Object = P.Object;
  Link->Displacement = Displacement;
  Link->KeepsRelaxations = slabjit_suite_is_like_llvm("relaxations");
  return Link;
}

/// Says whose link a graph is, and adds the shim's passes.
class OurPlugin final : public PluginWithoutResources {
public:
  void modifyPassConfig(MaterializationResponsibility &MR, LinkGraph &G, PassConfiguration &Config) override {
    auto P = std::exchange(Current, Pending());
    // A graph of the tool's own (-sectcreate) was never a file.
    if (!P.Object)
      P = prepare(G.getName(), {});
    auto &Link = links().insert(&MR, G, linkOf(P));
    if (NothingRuns)
      Config.PostFixupPasses.push_back([](LinkGraph &G) {
        G.allocActions().clear();
        return Error::success();
      });
    // As the shim does where it makes a graph itself (createLinkGraph).
    if (P.Bytes.getBuffer().size() && G.getTargetTriple().isOSBinFormatELF() && G.getTargetTriple().isArch64Bit())
      cantFail(slabjit::setProtections(G, P.Bytes));
    slabjit::addPasses(Link, G, Config);
  }
  Error notifyEmitted(MaterializationResponsibility &MR) override {
    links().take(&MR);
    return Error::success();
  }
  Error notifyFailed(MaterializationResponsibility &MR) override {
    links().take(&MR);
    return Error::success();
  }
};

/// The shim's manager for each graph, also for those that are not linked: LLVM's debugger support asks for memory with graphs of its own
/// (SimpleSegmentAlloc).
class Manager final : public JITLinkMemoryManager {
public:
  void allocate(const JITLinkDylib *JD, LinkGraph &G, OnAllocatedFunction OnAllocated) override {
    if (auto *Link = links().find(G))
      return slabjit::MemoryManager(*Link).allocate(JD, G, std::move(OnAllocated));
    // The crate keeps its object, for as long as the memory.
    auto Link = linkOf(prepare("(the tool's own)", {}));
    slabjit::MemoryManager(*Link).allocate(JD, G, std::move(OnAllocated));
  }
  void deallocate(std::vector<FinalizedAlloc> Allocs, OnDeallocatedFunction OnDeallocated) override {
    for (auto &A : Allocs)
      A.release();
    OnDeallocated(Error::success());
  }
};

} // namespace

slabjit_suite::Layer::Layer(ExecutionSession &ES, JITLinkMemoryManager &MemMgr) : ObjectLinkingLayer(ES, MemMgr) {
  addPlugin(PluginPointer(new OurPlugin));
}

void slabjit_suite::Layer::emit(std::unique_ptr<MaterializationResponsibility> R, std::unique_ptr<MemoryBuffer> O) {
  Current = prepare(O->getBufferIdentifier(), O->getBuffer());
  // Not NUL-terminated; the crate has the bytes for good.
  ObjectLinkingLayer::emit(std::move(R), MemoryBuffer::getMemBuffer(Current.Bytes, false));
  // If no graph came of it.
  Current = Pending();
}

std::unique_ptr<JITLinkMemoryManager> slabjit_suite::createMemoryManager(uint64_t Size, uint64_t Base, bool NoExec) {
  NothingRuns = NoExec;
  Displacement = slabjit_suite_start(Size, Base);
  return std::make_unique<Manager>();
}
