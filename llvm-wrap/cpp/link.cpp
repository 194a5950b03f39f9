// Graphs that are linked together, by JITLink alone: each as far as it comes without the others, then to its end; then
// the memory of all.
#include "internal.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"

using namespace llvm;
using namespace llvm::jitlink;

/// What graphs that are linked together know of each other.
struct slabjit_batch {
  /// Where what they refer to each other by is.
  StringMap<orc::ExecutorAddr> Exports;
  /// A graph that has its addresses and wants others'.
  struct Lookup {
    /// Holds the names, which are looked up until the graph is gone.
    slabjit::NamePool Pool;
    JITLinkContext::LookupMap Names;
    std::unique_ptr<JITLinkAsyncLookupContinuation> Continuation;
    /// How many of the names are nowhere yet.
    size_t Missing = 0;
  };
  /// In the order in which they came; those that went on are empty.
  std::vector<std::unique_ptr<Lookup>> Waiting;
  /// By name, the positions of those that wait for it.
  StringMap<SmallVector<size_t, 1>> Wanted;
  /// Positions of those that miss nothing any more.
  std::vector<size_t> Ready;
  /// Those whose content is final. Their graphs are gone.
  std::vector<slabjit::Finished> Finished;
  /// One has failed: none of the others goes on.
  bool Failed = false;

  void define(StringRef Name, orc::ExecutorAddr At) {
    Exports[Name] = At;
    auto For = Wanted.find(Name);
    if (For == Wanted.end())
      return;
    for (size_t At : For->second)
      if (--Waiting[At]->Missing == 0)
        Ready.push_back(At);
    Wanted.erase(For);
  }

  /// The caller is told of the first.
  void fail(const slabjit_callbacks &Callbacks, void *Object, Error E) {
    auto Text = toString(std::move(E));
    if (!Failed)
      Callbacks.failed(Object, Text.data(), Text.size());
    Failed = true;
  }
};

namespace {

/// What is found of some names, and which are not there.
std::pair<AsyncLookupResult, std::vector<StringRef>> find(const slabjit_batch &Peers,
                                                          const JITLinkContext::LookupMap &Names) {
  std::pair<AsyncLookupResult, std::vector<StringRef>> Result;
  for (auto &[Name, Flags] : Names) {
    auto At = Peers.Exports.find(slabjit::textOf(Name));
    if (At != Peers.Exports.end())
      Result.first[Name] = slabjit::foundAt(At->second);
    else if (Flags == jitlink::SymbolLookupFlags::RequiredSymbol)
      Result.second.push_back(slabjit::textOf(Name));
  }
  return Result;
}

Expected<AsyncLookupResult> lookUp(const slabjit_batch &Peers, const JITLinkContext::LookupMap &Names) {
  if (Peers.Failed)
    return make_error<StringError>("another object that is linked with this one failed", inconvertibleErrorCode());
  auto [Found, Missing] = find(Peers, Names);
  if (Missing.empty())
    return std::move(Found);
  llvm::sort(Missing);
  return make_error<StringError>("Symbols not found: [ " + llvm::join(Missing, ", ") + " ]", inconvertibleErrorCode());
}

/// One goes on, and its graph goes.
void finish(slabjit_batch &Peers, std::unique_ptr<slabjit_batch::Lookup> &Waits) {
  auto L = std::move(Waits);
  auto Continuation = std::move(L->Continuation);
  Continuation->run(lookUp(Peers, L->Names));
}

/// A graph that waits has its addresses: which section a block came from counts no more but for those that JITLink and
/// the passes of ours look for by name. Each section has two hash tables, of 512 bytes at least, and a large object has
/// thousands of sections: those of one protection become one. LLVM 22 as one batch of 1368 objects takes 150 MiB less
/// for that.
void mergeSections(LinkGraph &G) {
  SmallVector<Section *, 16> Into;
  std::vector<Section *> All;
  for (auto &Sec : G.sections())
    All.push_back(&Sec);
  for (auto *Sec : All) {
    auto Name = Sec->getName();
    if (Name == ".eh_frame" || Name.substr(0, 1) == "$")
      continue;
    auto Same = llvm::find_if(Into, [&](Section *Other) {
      return Other->getMemProt() == Sec->getMemProt() && slabjit::lifetime(*Other) == slabjit::lifetime(*Sec);
    });
    if (Same == Into.end())
      Into.push_back(Sec);
    else
      G.mergeSections(**Same, *Sec);
  }
}

class Context final : public JITLinkContext {
public:
  Context(std::unique_ptr<slabjit::Link> Link, slabjit_batch &Peers)
      : JITLinkContext(nullptr), Link(std::move(Link)), Manager(*this->Link, &Peers.Finished), Peers(Peers) {}

  JITLinkMemoryManager &getMemoryManager() override { return Manager; }

  bool shouldAddDefaultTargetPasses(const Triple &) const override { return !Link->IsBare; }

  // The caller has said what is alive (slabjit_graph_bind).
  LinkGraphPassFunction getMarkLivePass(const Triple &) const override {
    return [](LinkGraph &) { return Error::success(); };
  }

  Error modifyPassConfig(LinkGraph &G, PassConfiguration &Config) override {
    slabjit::addPasses(*Link, G, Config);
    return Error::success();
  }

  // Before the lookup.
  Error notifyResolved(LinkGraph &G) override {
    Graph = &G;
    for (auto *S : Link->Exports)
      Peers.define(slabjit::symbolName(*S), S->getAddress());
    return Error::success();
  }

  void lookup(const LookupMap &Names, std::unique_ptr<JITLinkAsyncLookupContinuation> Continuation) override {
    auto Waits = std::make_unique<slabjit_batch::Lookup>();
    for (auto &[Name, Flags] : Names)
      if (auto Text = slabjit::textOf(Name); !Peers.Exports.count(Text)) {
        Peers.Wanted[Text].push_back(Peers.Waiting.size());
        ++Waits->Missing;
      }
    if (!Waits->Missing)
      return Continuation->run(lookUp(Peers, Names));
    mergeSections(*Graph);
    Waits->Pool = slabjit::namePool(*Graph);
    Waits->Names = Names;
    Waits->Continuation = std::move(Continuation);
    Peers.Waiting.push_back(std::move(Waits));
  }

  void notifyFinalized(JITLinkMemoryManager::FinalizedAlloc Alloc) override { Alloc.release(); }

  void notifyFailed(Error E) override {
    Peers.fail(*Link->Callbacks, Link->Object, std::move(E));
  }

private:
  std::unique_ptr<slabjit::Link> Link;
  slabjit::MemoryManager Manager;
  slabjit_batch &Peers;
  LinkGraph *Graph = nullptr;
};

} // namespace

extern "C" slabjit_batch *slabjit_batch_begin() noexcept { return new slabjit_batch; }

extern "C" int slabjit_batch_link(slabjit_batch *Batch, slabjit_graph *Graph) noexcept {
  std::unique_ptr<slabjit_graph> Owned(Graph);
  if (Batch->Failed)
    return 1;
  {
    // What is looked up has names of the graph, and is there for longer.
    [[maybe_unused]] auto Pool = slabjit::namePool(*Owned->Graph);
    jitlink::link(std::move(Owned->Graph), std::make_unique<Context>(std::move(Owned->Link), *Batch));
  }
  // As soon as they can, so that few graphs are there at once.
  while (!Batch->Failed && !Batch->Ready.empty()) {
    size_t Next = Batch->Ready.back();
    Batch->Ready.pop_back();
    finish(*Batch, Batch->Waiting[Next]);
  }
  return Batch->Failed;
}

extern "C" void slabjit_batch_add(slabjit_batch *Batch, const slabjit_callbacks *Callbacks, void *Object) noexcept {
  Batch->Finished.push_back({Callbacks, slabjit_memory{Object, Object}, {}});
}

extern "C" int slabjit_batch_end(slabjit_batch *Batch, int GiveUp) noexcept {
  std::unique_ptr<slabjit_batch> Owned(Batch);
  Batch->Failed |= GiveUp != 0;
  for (auto &Waits : Batch->Waiting)
    if (Waits)
      finish(*Batch, Waits);
  // The caller says itself what it could not publish.
  Batch->Failed = Batch->Failed || !slabjit::publish(Batch->Finished);
  for (auto &Link : Batch->Finished)
    if (Batch->Failed)
      Link.abandon();
    else if (auto E = Link.commit())
      Batch->fail(*Link.Callbacks, Link.Memory.object, std::move(E));
  return Batch->Failed;
}
