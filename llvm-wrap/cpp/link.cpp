// Graphs that are linked together, by JITLink alone: each as far as it comes without the others, then to its end; then
// the memory of all. Several threads may do that, each with a graph: a lock guards what graphs know of each other, and
// is not held while one is linked.
#include "internal.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"

#include <atomic>
#include <mutex>

using namespace llvm;
using namespace llvm::jitlink;

/// What graphs that are linked together know of each other.
struct slabjit_batch {
  /// A graph that has its addresses and wants others'.
  struct Lookup {
    /// Holds the names, which are looked up until the graph is gone.
    slabjit::NamePool Pool;
    JITLinkContext::LookupMap Names;
    std::unique_ptr<JITLinkAsyncLookupContinuation> Continuation;
    /// How many of the names are nowhere yet.
    size_t Missing = 0;
  };

  /// Tells where names are. Those that miss nothing any more are `ready`.
  void define(ArrayRef<Symbol *> Symbols) {
    std::lock_guard<std::mutex> Locked(Lock);
    for (auto *S : Symbols) {
      auto Name = slabjit::symbolName(*S);
      Exports[Name] = S->getAddress();
      auto For = Wanted.find(Name);
      if (For == Wanted.end())
        continue;
      for (size_t At : For->second)
        if (--Waiting[At]->Missing == 0)
          Ready.push_back(At);
      Wanted.erase(For);
    }
  }

  /// Whether all of these names are there.
  bool has(const JITLinkContext::LookupMap &Names) {
    std::lock_guard<std::mutex> Locked(Lock);
    return llvm::all_of(Names, [&](auto &Name) { return Exports.count(slabjit::textOf(Name.first)) != 0; });
  }

  /// Has a graph wait, unless it misses nothing any more: then it is left to the caller.
  void wait(std::unique_ptr<Lookup> &Waits) {
    std::lock_guard<std::mutex> Locked(Lock);
    for (auto &[Name, Flags] : Waits->Names)
      if (auto Text = slabjit::textOf(Name); !Exports.count(Text)) {
        Wanted[Text].push_back(Waiting.size());
        ++Waits->Missing;
      }
    if (Waits->Missing)
      Waiting.push_back(std::move(Waits));
  }

  /// A graph that waits no more; none after a failure.
  std::unique_ptr<Lookup> ready() {
    std::lock_guard<std::mutex> Locked(Lock);
    if (Failed || Ready.empty())
      return nullptr;
    size_t Next = Ready.back();
    Ready.pop_back();
    return std::move(Waiting[Next]);
  }

  Expected<AsyncLookupResult> lookUp(const JITLinkContext::LookupMap &Names) {
    if (Failed)
      return make_error<StringError>("another object that is linked with this one failed", inconvertibleErrorCode());
    AsyncLookupResult Found;
    std::vector<StringRef> Missing;
    {
      std::lock_guard<std::mutex> Locked(Lock);
      for (auto &[Name, Flags] : Names) {
        auto At = Exports.find(slabjit::textOf(Name));
        if (At != Exports.end())
          Found[Name] = slabjit::foundAt(At->second);
        else if (Flags == jitlink::SymbolLookupFlags::RequiredSymbol)
          Missing.push_back(slabjit::textOf(Name));
      }
    }
    if (Missing.empty())
      return Found;
    llvm::sort(Missing);
    auto Text = "Symbols not found: [ " + llvm::join(Missing, ", ") + " ]";
    return make_error<StringError>(Text, inconvertibleErrorCode());
  }

  /// One goes on, and its graph goes.
  void finish(std::unique_ptr<Lookup> Waits) { Waits->Continuation->run(lookUp(Waits->Names)); }

  /// The caller is told of the first.
  void fail(const slabjit_callbacks &Callbacks, void *Object, Error E) {
    auto Text = toString(std::move(E));
    if (!Failed.exchange(true))
      Callbacks.failed(Object, Text.data(), Text.size());
  }

  /// Those whose content is final. Their graphs are gone.
  slabjit::FinishedLinks Finished;
  /// In the order in which they came; those that went on are empty.
  std::vector<std::unique_ptr<Lookup>> Waiting;
  /// One has failed: none of the others goes on.
  std::atomic<bool> Failed{false};

private:
  /// Guards all but `Finished` and `Failed`; `Waiting` while graphs are linked.
  std::mutex Lock;
  /// Where what they refer to each other by is.
  StringMap<orc::ExecutorAddr> Exports;
  /// By name, the positions of those that wait for it.
  StringMap<SmallVector<size_t, 1>> Wanted;
  /// Positions of those that miss nothing any more.
  std::vector<size_t> Ready;
};

namespace {

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
    if (!Link->Exports.empty())
      Peers.define(Link->Exports);
    return Error::success();
  }

  void lookup(const LookupMap &Names, std::unique_ptr<JITLinkAsyncLookupContinuation> Continuation) override {
    if (Peers.has(Names))
      return Continuation->run(Peers.lookUp(Names));
    mergeSections(*Graph);
    auto Waits = std::make_unique<slabjit_batch::Lookup>();
    Waits->Pool = slabjit::namePool(*Graph);
    Waits->Names = Names;
    Waits->Continuation = std::move(Continuation);
    Peers.wait(Waits);
    if (Waits)
      Peers.finish(std::move(Waits));
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
  while (auto Waits = Batch->ready())
    Batch->finish(std::move(Waits));
  return Batch->Failed;
}

extern "C" void slabjit_batch_add(slabjit_batch *Batch, const slabjit_callbacks *Callbacks, void *Object) noexcept {
  Batch->Finished.add({Callbacks, slabjit_memory{Object, Object}, {}});
}

extern "C" int slabjit_batch_end(slabjit_batch *Batch, int GiveUp) noexcept {
  std::unique_ptr<slabjit_batch> Owned(Batch);
  if (GiveUp)
    Batch->Failed = true;
  for (auto &Waits : Batch->Waiting)
    if (Waits)
      Batch->finish(std::move(Waits));
  // The caller says itself what it could not publish.
  if (!Batch->Failed && !slabjit::publish(Batch->Finished.All))
    Batch->Failed = true;
  for (auto &Link : Batch->Finished.All)
    if (Batch->Failed)
      Link.abandon();
    else if (auto E = Link.commit())
      Batch->fail(*Link.Callbacks, Link.Memory.object, std::move(E));
  return Batch->Failed;
}
